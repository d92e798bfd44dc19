"""The scan in the library longstride_attention, through ctypes: kernels/c_api/scan.h."""
import ctypes
import struct

from . import library

FORMS = ("sum", "gated", "delta")


class _Config(ctypes.Structure):
    _fields_ = [
        ("struct_bytes", ctypes.c_size_t),
        *((name, ctypes.c_int64) for name in ("batch", "n", "heads", "key_size", "value_size")),
        *((name, ctypes.c_int32) for name in ("dtype", "device", "form", "decay", "normalised", "both", "groups",
                                              "forward_only")),
    ]


# The structs of calls, written by one call of pack: inputs are three tensors and three arrays.
_inputs = 3 * "P3q" + "3P"
_forward = struct.Struct("@N" + _inputs + "P3q" + "3P" + "PNP")
_backward = struct.Struct("@N" + _inputs + "P3q" + "P" + "P3q" + "P" + 3 * "P3q" + "3P" + "PNP")
_functions = library.functions("scan", _Config)


class Plan(library.Plan):
    """Tensors are (pointer, batch stride, position stride, head stride), arrays pointers. `decay` is the number of its
    kind: none, per head, per channel."""

    _functions = _functions

    def __init__(self, *sizes, dtype, device, form, decay, normalised, both, groups, forward_only):
        self._create(_Config(ctypes.sizeof(_Config), *sizes, dtype, device, FORMS.index(form), decay, normalised, both,
                                groups, forward_only), device)

    def forward(self, q, k, v, arrays, o, first_state, last_state, kept, scratch, scratch_bytes, stream):
        call = _forward.pack(_forward.size, *q, *k, *v, *arrays, *o, first_state, last_state, kept, scratch, scratch_bytes,
                             stream)
        library._check(_functions.forward(self._plan, call))

    def backward(self, q, k, v, arrays, o, kept, dout, dlast_state, dq, dk, dv, gradients, scratch, scratch_bytes, stream):
        call = _backward.pack(_backward.size, *q, *k, *v, *arrays, *o, kept, *dout, dlast_state, *dq, *dk, *dv, *gradients,
                              scratch, scratch_bytes, stream)
        library._check(_functions.backward(self._plan, call))
