"""Attention with distances of tensors by the library, on the CPU or on the current stream of a GPU; no gradients."""
import functools

import torch

from . import distance_library, library
from .attention_run import (KEPT, _dense_rows, _on_cpu, _on_cuda, _scratch, allocator,  # noqa: F401: of the operator
                            check_backward, dtypes, empty, empty_lse, empty_results, keeping, results, rows)

GRADIENTS = 7  # of q, k, v, and all of NAMES but first_key
# Tensors that a call may leave out.
NAMES = ("table", "content_bias", "position_bias", "span", "first_key")


def exact_type(dtype):
    """Of biases, spans and what is summed over rows."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def properties(*tensors):
    """What `check` takes: of every tensor, or None."""
    return tuple(None if x is None else (x.shape, x.dtype, x.device) for x in tensors)


def check(q, k, v, *parameters):
    """Properties of q, k, v and of what NAMES says, which may be None."""
    (q, dtype, device), shapes = q, (q[0], k[0], v[0])
    if any(len(x) != 4 for x in shapes) or k[0][:2] != q[:2] or k[0][3] != q[3] or v[0][:3] != k[0][:3] \
            or q[2] > k[0][2]:
        raise ValueError(
            f"q, k and v are {', '.join(str(tuple(x)) for x in shapes)}, but must be (batch, heads, queries, key "
            "size), (batch, heads, keys, key size) and (batch, heads, keys, value size), with no more queries than "
            "keys")
    if not (dtype == k[1] == v[1] and dtype in dtypes):
        raise ValueError(f"q, k and v are {dtype}, {k[1]} and {v[1]}, but must be of one type: float32, bfloat16, "
                         "float16 or, on the CPU, float64")
    for name, x in zip(NAMES, parameters):
        if x is not None:
            _check_parameter(name, q, dtype, *x[:2])
    table, _, position_bias, _, _ = parameters
    if position_bias is not None and table is None:
        raise ValueError("position_bias is given, but no table, without which it has no effect")
    devices = [device, k[2], v[2], *(x[2] for x in parameters if x is not None)]
    if any(on != device for on in devices):
        raise ValueError(f"tensors are on {', '.join(sorted(set(map(str, devices))))}, but must be on one device")


def _check_parameter(name, q, q_dtype, shape, dtype):
    batch, heads, _, size = q
    allowed = {"table": [(*shape[:1], size), (*shape[:1], heads, size)], "span": [(heads,)], "first_key": [(batch,)]}
    if tuple(shape) not in allowed.get(name, [(heads, size)]) or (name == "table" and shape[0] == 0):
        wanted = f"(distances, {size}) or (distances, {heads}, {size}), with a distance" if name == "table" else \
            str(allowed.get(name, [(heads, size)])[0])
        raise ValueError(f"{name} is {tuple(shape)}, but must be {wanted}")
    wanted = {"table": q_dtype, "first_key": torch.int32}.get(name, exact_type(q_dtype))
    if dtype != wanted:
        raise ValueError(f"{name} is {dtype}, but must be {wanted} next to a q of {q_dtype}")


# As in attention_run: checked when a plan is made, so that a call whose plan exists spends no time on it.
@functools.lru_cache(maxsize=512)
def _plan(settings, scale, q, k, v, *parameters):
    check(q, k, v, *parameters)
    (batch, heads, queries, key_size), dtype, device = q
    table = parameters[0]
    distances, shared = (0, False) if table is None else (table[0][0], len(table[0]) == 2)
    has = tuple(parameters[at] is not None for at in (1, 2, 4))
    return distance_library.Plan(settings, batch, queries, k[0][2], heads, key_size, v[0][3], scale, dtypes[dtype],
                                 library.CUDA if device.type == "cuda" else library.CPU, distances, shared, has)


def _pointers(parameters):
    return [0 if x is None else x.data_ptr() for x in parameters]


def _forward(q, k, v, *rest):
    *parameters, settings, scale, stream = rest
    plan = _plan(settings, scale, *properties(q, k, v, *parameters))
    (q, q_rows), (k, k_rows), (v, v_rows) = _dense_rows(q), _dense_rows(k), _dense_rows(v)
    parameters = [x if x is None else x.contiguous() for x in parameters]
    o, lse = empty(q, v.shape[3]), empty_lse(q)
    _memory, address, count = _scratch(plan, False, allocator(q.device))
    plan.forward(q_rows, k_rows, _pointers(parameters), v_rows, rows(o), lse.data_ptr(), address, count, stream)
    return o, lse


def _backward(dout, q, k, v, *rest):
    *parameters, o, lse, settings, scale, stream = rest
    plan = _plan(settings, scale, *properties(q, k, v, *parameters))
    (dout, dout_rows), (o, o_rows) = _dense_rows(dout), _dense_rows(o)
    (q, q_rows), (k, k_rows), (v, v_rows) = _dense_rows(q), _dense_rows(k), _dense_rows(v)
    parameters = [x if x is None else x.contiguous() for x in parameters]
    dq, dk, dv = empty(q, q.shape[3]), empty(k, k.shape[3]), empty(v, v.shape[3])
    gradients = gradients_of(q, parameters)
    _memory, address, count = _scratch(plan, True, allocator(q.device))
    pointers = [x.data_ptr() if x.numel() else 0 for x in gradients]
    plan.backward(q_rows, k_rows, _pointers(parameters), v_rows, o_rows, lse.data_ptr(), dout_rows, rows(dq), rows(dk),
                  rows(dv), pointers, address, count, stream)
    return dq, dk, dv, *gradients


def gradients_of(q, parameters):
    """Zeros for the gradients of table, biases and span, to which the library adds; empty where there is none."""
    exact = exact_type(q.dtype)
    return [q.new_zeros(0 if x is None else x.shape, dtype=exact) for x in parameters[:4]]


def in_their_types(tensors, gradients):
    """None for what was not given."""
    return [None if x is None else gradient.to(x.dtype) for x, gradient in zip(tensors, gradients)]


def forward(*args):
    """o and lse, of q, k, v, those of NAMES, settings and scale."""
    if args[0].is_cuda:
        return _on_cuda(_forward, *args)
    return _on_cpu(_forward, lambda *tensors: check(*properties(*tensors)), *args)


def backward(*args):
    """dq, dk, dv, and those of table, content_bias, position_bias and span in the exact type; of dout, what forward
    takes and, before the settings, its o and lse. dout, o and lse are trusted."""
    return _on_cuda(_backward, *args) if args[0].is_cuda else _on_cpu(_backward, None, *args)


def checked_backward(dout, q, k, v, *rest):
    """backward for a caller with tensors of any kind."""
    *parameters, o, lse, settings, scale = rest
    check(*properties(q, k, v, *parameters))
    check_backward(dout, q, k, v, *rest)
    return backward(dout, q, k, v, *parameters, o, lse.contiguous(), settings, scale)
