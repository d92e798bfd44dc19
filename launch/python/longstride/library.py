"""The library longstride_attention through ctypes: kernels/c_api/attention.h."""
import ctypes
import json
import os
import pathlib
import struct
import typing

OK, INVALID, UNSUPPORTED, OUT_OF_MEMORY = range(4)
CPU, CUDA = range(2)
F32, F64, BF16, F16 = range(4)
NO_BOUNDS, INTERVALS, DOCUMENTS = range(3)
_name = "liblongstride_attention.so.0"


class _Pattern(ctypes.Structure):
    _fields_ = [
        ("struct_bytes", ctypes.c_size_t),
        ("integration", ctypes.c_char_p),
        ("parts", ctypes.POINTER(ctypes.c_char_p)),
        ("part_count", ctypes.c_size_t),
        ("stride", ctypes.c_int64),
        ("window", ctypes.c_int64),
        ("summary", ctypes.POINTER(ctypes.c_int64)),
        ("summary_count", ctypes.c_size_t),
        ("distinct_heads", ctypes.c_int32),
        ("summary_inclusive", ctypes.c_int32),
        ("layer", ctypes.c_int64),
        ("direction", ctypes.c_char_p),
        ("first", ctypes.c_int64),
        ("block", ctypes.c_int64),
        ("blocks", ctypes.c_int64),
        ("shifts", ctypes.POINTER(ctypes.c_int64)),
        ("shift_count", ctypes.c_size_t),
        ("dilation", ctypes.POINTER(ctypes.c_int64)),
        ("dilation_count", ctypes.c_size_t),
    ]


class _PlanConfig(ctypes.Structure):
    _fields_ = [
        ("struct_bytes", ctypes.c_size_t),
        ("pattern", ctypes.POINTER(_Pattern)),
        ("batch", ctypes.c_int64),
        ("n", ctypes.c_int64),
        ("heads", ctypes.c_int64),
        ("key_size", ctypes.c_int64),
        ("value_size", ctypes.c_int64),
        ("scale", ctypes.c_double),
        ("dtype", ctypes.c_int32),
        ("device", ctypes.c_int32),
        ("queries", ctypes.c_int64),
        ("bounds", ctypes.c_int32),
        ("sink", ctypes.c_int32),
        ("bounds_heads", ctypes.c_int64),
        ("block", ctypes.c_int64),
        ("list_batch", ctypes.c_int64),
        ("list_heads", ctypes.c_int64),
        ("list_entries", ctypes.c_int64),
        ("labels", ctypes.c_int64),
        ("clip", ctypes.c_int32),
        ("labels_from_end", ctypes.c_int32),
        ("label_groups", ctypes.c_int32),
        ("shared_labels", ctypes.c_int32),
        ("key_heads", ctypes.c_int64),
    ]


class _Memory(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in ("struct_bytes", "kept", "forward_scratch", "backward_scratch")]


# The structs of calls, written by one call of pack: a tensor is a pointer and three strides, and pointers fit Q.
_forward = struct.Struct("@N" + 4 * "P3q" + "PPNP3P5P")
_backward = struct.Struct("@N" + 4 * "P3q" + "P" + 4 * "P3q" + "PNP4P6P")


def _load():
    """The library that LONGSTRIDE_ATTENTION_LIBRARY names, else the one that pip built, else one that is installed."""
    named = os.environ.get("LONGSTRIDE_ATTENTION_LIBRARY")
    built = pathlib.Path(__file__).parent / _name
    path = named or (str(built) if built.exists() else _name)
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        else_ = ("it was built for GPUs: install a PyTorch that brings this library of CUDA, or a wheel of longstride "
                 "without CUDA" if str(error).startswith("libcuda") else
                 "install the package with pip from Longstride's source tree, or set LONGSTRIDE_ATTENTION_LIBRARY to the "
                 "library's path")
        raise ImportError(f"the library {path} cannot be loaded ({error}); {else_}") from error
    library.longstride_last_error.restype = ctypes.c_char_p
    library.longstride_version.restype = ctypes.c_char_p
    return library


_library = _load()


class Functions(typing.NamedTuple):
    """Of one kind of plan."""

    create: typing.Callable
    destroy: typing.Callable
    memory: typing.Callable
    forward: typing.Callable
    backward: typing.Callable


def functions(kind, Config):
    """Those of plans of this kind, whose calls take structs as bytes."""
    try:
        found = Functions(*(getattr(_library, f"longstride_{kind}_{name}") for name in Functions._fields))
    except AttributeError:
        raise ImportError(f"the library longstride_attention, {version()}, has no longstride_{kind}_create; install the "
                          "package with pip from Longstride's source tree") from None
    found.create.argtypes = [ctypes.POINTER(Config), ctypes.POINTER(ctypes.c_void_p)]
    found.destroy.argtypes, found.destroy.restype = [ctypes.c_void_p], None
    found.memory.argtypes = [ctypes.c_void_p, ctypes.POINTER(_Memory)]
    for run in (found.forward, found.backward):
        run.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
    return found


def version():
    return _library.longstride_version().decode()


def has_cuda():
    return _library.longstride_has_cuda() == 1


_attention = functions("attention", _PlanConfig)
_run_forward, _run_backward = _attention.forward, _attention.backward


def _check(status):
    if status == OK:
        return
    sentence = _library.longstride_last_error().decode(errors="replace")
    if status == INVALID:
        raise ValueError(sentence)
    if status == OUT_OF_MEMORY:
        raise MemoryError(sentence)
    raise RuntimeError(sentence)


def _pattern_of(text):
    """The struct of a pattern's text (pattern.py), which a program may have saved before keys were added; it keeps what
    it points to alive."""
    p = {"direction": "past", "first": 0, "block": 0, "blocks": 0, "shifts": [], "dilation": [], **json.loads(text)}

    def numbers(name):
        return (ctypes.c_int64 * len(p[name]))(*p[name]), len(p[name])

    parts = [part.encode() for part in p["parts"]]
    return _Pattern(
        ctypes.sizeof(_Pattern), p["integration"].encode(), (ctypes.c_char_p * len(parts))(*parts), len(parts),
        p["stride"], p["window"], *numbers("summary"), p["distinct_heads"], p["summary_inclusive"], p["layer"],
        p["direction"].encode(), p["first"], p["block"], p["blocks"], *numbers("shifts"), *numbers("dilation"))


class Plan:
    """An attention plan. Tensors are (pointer, batch stride, position stride, head stride), arrays pointers."""

    _functions, _plan = _attention, None

    def __init__(self, pattern, batch, n, heads, key_size, value_size, scale, dtype, device, queries=0,
                 bounds=NO_BOUNDS, sink=0, bounds_heads=0, block=0, list_batch=0, list_heads=0, list_entries=0,
                 labels=(0, 0, False, False, False), key_heads=0):
        described = _pattern_of(pattern)
        self._create(_PlanConfig(
            ctypes.sizeof(_PlanConfig), ctypes.pointer(described), batch, n, heads, key_size, value_size, scale, dtype,
            device, queries, bounds, sink, bounds_heads, block, list_batch, list_heads, list_entries,
            *labels, key_heads), device)

    def _create(self, config, device):
        self._plan = ctypes.c_void_p()
        _check(self._functions.create(ctypes.byref(config), ctypes.byref(self._plan)))
        self._fixed = device != CPU
        memory = self._memory_now()
        self.kept, self._scratch = memory.kept, (memory.forward_scratch, memory.backward_scratch)

    def __del__(self):
        if self._plan:
            self._functions.destroy(self._plan)

    def _memory_now(self):
        memory = _Memory(ctypes.sizeof(_Memory))
        _check(self._functions.memory(self._plan, ctypes.byref(memory)))
        return memory

    def scratch(self, backward):
        """Bytes. On the CPU they change with the number of threads."""
        if not self._fixed:
            memory = self._memory_now()
            self._scratch = memory.forward_scratch, memory.backward_scratch
        return self._scratch[backward]

    # others: key_begin and keys of lists; table, query_groups and key_groups of labels
    def forward(self, q, k, v, o, lse, scratch, scratch_bytes, stream, begin=0, end=0, sink=0, others=5 * (0,)):
        call = _forward.pack(_forward.size, *q, *k, *v, *o, lse, scratch, scratch_bytes, stream, begin, end, sink,
                             *others)
        _check(_run_forward(self._plan, call))

    def backward(self, q, k, v, o, lse, dout, dq, dk, dv, scratch, scratch_bytes, stream, begin=0, end=0, sink=0,
                 dsink=0, others=5 * (0,), dtable=0):
        call = _backward.pack(_backward.size, *q, *k, *v, *o, lse, *dout, *dq, *dk, *dv, scratch, scratch_bytes, stream,
                              begin, end, sink, dsink, *others, dtable)
        _check(_run_backward(self._plan, call))
