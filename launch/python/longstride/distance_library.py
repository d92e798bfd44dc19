"""Attention with distances in the library longstride_attention, through ctypes: kernels/c_api/distance.h."""
import ctypes
import json
import struct

from . import library


class _Config(ctypes.Structure):
    _fields_ = [
        ("struct_bytes", ctypes.c_size_t),
        *((name, ctypes.c_int64) for name in ("batch", "queries", "keys", "heads", "key_size", "value_size")),
        ("scale", ctypes.c_double),
        ("dtype", ctypes.c_int32),
        ("device", ctypes.c_int32),
        ("distances", ctypes.c_int64),
        *((name, ctypes.c_int32) for name in ("shared_table", "content_bias", "position_bias", "first_keys",
                                              "without_self")),
        ("window", ctypes.c_int64),
        ("longest_span", ctypes.c_double),
        ("ramp", ctypes.c_double),
        ("dilation", ctypes.POINTER(ctypes.c_int64)),
        ("dilation_count", ctypes.c_size_t),
    ]


# The structs of calls, written by one call of pack: q, k, five arrays, and so on, as distance.h has them.
_scores = 2 * "P3q" + "5P"
_forward = struct.Struct("@N" + _scores + 2 * "P3q" + "PPNP")
_backward = struct.Struct("@N" + _scores + 2 * "P3q" + "P" + 4 * "P3q" + "4P" + "PNP")

_functions = library.functions("distance", _Config)
_run_forward, _run_backward = _functions.forward, _functions.backward


class Plan(library.Plan):
    """Of one shape. Tensors are given as (pointer, batch stride, position stride, head stride), arrays as pointers.

    `settings` is JSON with window, dilation, without_self, longest_span and ramp; `has` says which of content_bias,
    position_bias and first_key calls give.
    """

    _functions = _functions

    def __init__(self, settings, batch, queries, keys, heads, key_size, value_size, scale, dtype, device, distances,
                 shared_table, has):
        s = json.loads(settings)
        dilation = s["dilation"]
        self._create(_Config(
            ctypes.sizeof(_Config), batch, queries, keys, heads, key_size, value_size, scale, dtype, device, distances,
            shared_table, *has, s["without_self"], s["window"], s["longest_span"], s["ramp"],
            (ctypes.c_int64 * len(dilation))(*dilation), len(dilation)), device)

    def forward(self, q, k, arrays, v, o, lse, scratch, scratch_bytes, stream):
        call = _forward.pack(_forward.size, *q, *k, *arrays, *v, *o, lse, scratch, scratch_bytes, stream)
        library._check(_run_forward(self._plan, call))

    def backward(self, q, k, arrays, v, o, lse, dout, dq, dk, dv, gradients, scratch, scratch_bytes, stream):
        call = _backward.pack(_backward.size, *q, *k, *arrays, *v, *o, lse, *dout, *dq, *dk, *dv, *gradients, scratch,
                              scratch_bytes, stream)
        library._check(_run_backward(self._plan, call))
