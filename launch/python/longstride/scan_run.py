"""The scan of tensors by the library, on the CPU or on the current stream of a GPU; no gradients."""
import functools
import json

import torch

from . import library, scan_library
from .attention_run import _dense_rows, _on_cpu, _on_cuda, _scratch, allocator, check_each, check_like, dtypes, empty, rows
from .distance_run import exact_type, in_their_types, properties  # noqa: F401: of the operator

GRADIENTS = 6  # of q, k, v, and all of NAMES but begin
KEPT = ("kept", "last_state")
# Tensors that a call may leave out.
NAMES = ("decay", "beta", "first_state", "begin")
CHUNK = 128  # positions per state that is kept
_parsed = functools.lru_cache(maxsize=512)(json.loads)


def keeping(settings):
    return (settings.replace('"keep": false', '"keep": true'),)


def results(found):
    o, _, last_state = found
    return o, last_state


def check(q, k, v, decay, beta, first_state, begin):
    """Properties of tensors, of which those of NAMES may be None."""
    (shape, dtype, device), shapes = q, [tuple(x[0]) for x in (q, k, v)]
    if any(len(x) != 4 for x in shapes) or shapes[1] != shapes[0] or shapes[2][:3] != shapes[0][:3]:
        raise ValueError(f"q, k and v are {shapes[0]}, {shapes[1]} and {shapes[2]}, but must be (batch, heads, n, key size) "
                         "twice and (batch, heads, n, value size)")
    if not (dtype == k[1] == v[1] and dtype in dtypes):
        raise ValueError(f"q, k and v are {dtype}, {k[1]} and {v[1]}, but must be of one type: float32, bfloat16, "
                         "float16 or, on the CPU, float64")
    if not device == k[2] == v[2]:
        raise ValueError(f"q, k and v are on {device}, {k[2]} and {v[2]}, but must be on one device")
    (*of_rows, key_size), exact = shapes[0], exact_type(dtype)
    batch, heads, n = of_rows
    check_each(device, ("decay", decay, [(*of_rows,), (*of_rows, key_size)], exact), ("beta", beta, [(*of_rows,)], exact),
               ("begin", begin, [(batch, 1, n)], torch.int32),
               ("first_state", first_state, [(batch, heads, key_size, v[0][3] + more) for more in (0, 1)], exact))


class _Shapes:
    """What a call has besides rows, by its settings."""

    def __init__(self, settings, q_shape, value_size):
        batch, heads, n, key_size = q_shape
        s = _parsed(settings)
        columns = value_size + s["normalise"]
        self.state, self.of_settings = (batch, heads, key_size, columns), s
        self.last_state = self.state if s["return_state"] else (0,)
        # Elements of the exact type: states, and denominators, as kernels/c_api/scan.h has them.
        # Without a product with True or False, which symbolic sizes do not take.
        states = 0 if s["both"] else batch * heads * (-(-n // CHUNK)) * key_size * columns
        denominators = batch * heads * n if s["normalise"] else 0
        self.kept = states + denominators if s["keep"] else 0

    def check(self, first_state):
        if first_state is not None and tuple(first_state) != self.state:
            raise ValueError(f"first_state is {tuple(first_state)}, but must be {self.state}")


def empty_results(q, k, v, decay, beta, first_state, begin, settings):
    shapes = _Shapes(settings, q.shape, v.shape[3])
    shapes.check(None if first_state is None else first_state.shape)
    return (empty(q, v.shape[3]), q.new_empty(shapes.kept, dtype=exact_type(q.dtype)),
            q.new_empty(shapes.last_state, dtype=exact_type(q.dtype)))


def check_backward(dout, dlast_state, q, k, v, *rest):
    """That what backward takes besides the inputs of forward, which are checked, is as forward makes it."""
    *_, o, kept, settings = rest
    shapes, like_o = _Shapes(*keeping(settings), q.shape, v.shape[3]), (*q.shape[:3], v.shape[3])
    check_like(q, ("dout", dout, like_o, q.dtype), ("o", o, like_o, q.dtype),
               ("kept", kept, (shapes.kept,), exact_type(q.dtype)),
               ("dlast_state", dlast_state, shapes.last_state, exact_type(q.dtype)))


# As in attention_run: checked when a plan is made, so that a call whose plan exists spends no time on it.
@functools.lru_cache(maxsize=512)
def _plan(settings, q, k, v, decay, beta, first_state, begin):
    check(q, k, v, decay, beta, first_state, begin)
    (batch, heads, n, key_size), dtype, device = q
    shapes = _Shapes(settings, q[0], v[0][3])
    shapes.check(first_state and first_state[0])
    s = shapes.of_settings
    return scan_library.Plan(
        batch, n, heads, key_size, v[0][3], dtype=dtypes[dtype],
        device=library.CUDA if device.type == "cuda" else library.CPU, form=s["form"],
        decay=0 if decay is None else len(decay[0]) - 2, normalised=s["normalise"], both=s["both"],
        groups=begin is not None, forward_only=not s["keep"])


def _arrays(decay, beta, begin):
    """Contiguous as the library has them, positions before heads, and their addresses."""
    arrays = [None if x is None else x.transpose(1, 2).contiguous() for x in (decay, beta)]
    arrays.append(None if begin is None else begin.contiguous())
    return arrays, [0 if x is None else x.data_ptr() for x in arrays]


def _forward(q, k, v, decay, beta, first_state, begin, settings, stream):
    plan = _plan(settings, *properties(q, k, v, decay, beta, first_state, begin))
    (q, q_rows), (k, k_rows), (v, v_rows) = _dense_rows(q), _dense_rows(k), _dense_rows(v)
    _arrays_alive, addresses = _arrays(decay, beta, begin)
    first = None if first_state is None else first_state.contiguous()
    o, kept, last = empty_results(q, k, v, decay, beta, first, begin, settings)
    _memory, address, count = _scratch(plan, False, allocator(q.device))
    plan.forward(q_rows, k_rows, v_rows, addresses, rows(o), 0 if first is None else first.data_ptr(),
                 last.data_ptr() if last.numel() else 0, kept.data_ptr(), address, count, stream)
    return o, kept, last


def _backward(dout, dlast_state, q, k, v, decay, beta, first_state, begin, o, kept, settings, stream):
    plan = _plan(*keeping(settings), *properties(q, k, v, decay, beta, first_state, begin))
    (dout, dout_rows), (o, o_rows) = _dense_rows(dout), _dense_rows(o)
    (q, q_rows), (k, k_rows), (v, v_rows) = _dense_rows(q), _dense_rows(k), _dense_rows(v)
    _arrays_alive, addresses = _arrays(decay, beta, begin)
    dlast = dlast_state.contiguous()
    kept = kept if kept.data_ptr() % 64 == 0 else kept.clone()  # one of a batch may be anywhere
    dq, dk, dv = empty(q, q.shape[3]), empty(k, k.shape[3]), empty(v, v.shape[3])
    gradients = gradients_of(q, (decay, beta, first_state))
    _memory, address, count = _scratch(plan, True, allocator(q.device))
    plan.backward(q_rows, k_rows, v_rows, addresses, o_rows, kept.data_ptr(), dout_rows,
                  dlast.data_ptr() if dlast.numel() else 0, rows(dq), rows(dk), rows(dv),
                  [x.data_ptr() if x.numel() else 0 for x in gradients], address, count, stream)
    return dq, dk, dv, *gradients


def gradients_of(q, parameters):
    """Memory for the gradients of decay, beta and first_state, as the library writes it; empty where there is none."""
    decay, beta, first_state = (q.new_empty(0) if x is None else x for x in parameters[:3])
    exact = exact_type(q.dtype)
    by_position = [x if x.dim() == 1 else x.transpose(1, 2) for x in (decay, beta)]
    made = [q.new_empty(x.shape, dtype=exact) for x in (*by_position, first_state)]
    return [*(x if x.dim() == 1 else x.transpose(1, 2) for x in made[:2]), made[2]]


def forward(*args):
    """o, what backward needs if the settings say so, and the last state if they do, else empty; of q, k, v, those of
    NAMES and settings."""
    if args[0].is_cuda:
        return _on_cuda(_forward, *args)
    return _on_cpu(_forward, lambda *tensors: check(*properties(*tensors)), *args)


def backward(*args):
    """dq, dk, dv, and those of decay, beta and first_state; of dout, dlast_state, what forward takes and, before the
    settings, its o and kept. All but what forward takes are trusted."""
    return _on_cuda(_backward, *args) if args[0].is_cuda else _on_cpu(_backward, None, *args)


def checked_backward(*args):
    """backward for a caller with tensors of any kind."""
    *tensors, o, kept, settings = args
    check(*properties(*tensors[2:]))
    check_backward(*args)
    return backward(*tensors, o, kept.contiguous(), settings)
