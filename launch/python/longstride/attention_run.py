"""Attention of tensors by the library, on the CPU or on the current stream of a GPU; no gradients."""
import functools

import torch

from . import library

dtypes = {torch.float32: library.F32, torch.float64: library.F64, torch.bfloat16: library.BF16,
          torch.float16: library.F16}


def check(q_shape, k_shape, v_shape, q_dtype, k_dtype, v_dtype, q_device, k_device, v_device):
    if not len(q_shape) == len(k_shape) == len(v_shape) == 4 or k_shape[0] != q_shape[0] \
            or k_shape[3] != q_shape[3] or v_shape[:3] != k_shape[:3]:
        raise ValueError(
            f"q, k and v are {tuple(q_shape)}, {tuple(k_shape)} and {tuple(v_shape)}, but must be (batch, heads, n_q, "
            "key size), (batch, key heads, n, key size) and (batch, key heads, n, value size)")
    if q_shape[1] != k_shape[1] and (k_shape[1] == 0 or q_shape[1] % k_shape[1] != 0):
        raise ValueError(f"q has {q_shape[1]} heads and k and v have {k_shape[1]}, but theirs must divide those of q")
    if q_shape[2] == 0 and k_shape[2] > 0:
        raise ValueError(f"q has no rows, but must have one or more next to the {k_shape[2]} of k")
    if not (q_dtype == k_dtype == v_dtype and q_dtype in dtypes):
        raise ValueError(
            f"q, k and v are {q_dtype}, {k_dtype} and {v_dtype}, but must be of one type: float32, bfloat16, float16 "
            "or, on the CPU, float64")
    if not q_device == k_device == v_device:
        raise ValueError(f"q, k and v are on {q_device}, {k_device} and {v_device}, but must be on one device")


def properties(q, k, v):
    """What `check` takes."""
    return q.shape, k.shape, v.shape, q.dtype, k.dtype, v.dtype, q.device, k.device, v.device


GRADIENTS = 3
KEPT = ("lse",)  # results after o: what backward needs, and others that have gradients


def keeping(*settings):
    """Settings with which forward keeps what backward needs."""
    return settings


def results(found):
    """What a caller gets, of what forward found."""
    return found[0]


def gradients_of(q, parameters):
    """Those of other tensors than q, k and v."""
    return ()


def in_their_types(tensors, gradients):
    return gradients


def check_backward(dout, q, k, v, *rest):
    """That what backward takes besides the inputs of forward, which are checked, is as forward makes it."""
    *_, o, lse, _, _ = rest
    rows = tuple(q.shape[:3])
    like_o = (*rows, v.shape[3])
    check_like(q, ("dout", dout, like_o, q.dtype), ("o", o, like_o, q.dtype), ("lse", lse, rows, lse_dtype(q.dtype)))


def check_like(q, *wanted):
    """Of a name, a tensor, a shape and a type each."""
    for name, x, shape, dtype in wanted:
        if x.shape != shape or x.dtype != dtype or x.device != q.device:
            raise ValueError(f"{name} is {tuple(x.shape)}, {x.dtype}, on {x.device}, but must be {shape}, {dtype}, on "
                             f"{q.device}")


def check_each(device, *rules):
    """Of a name, properties of a tensor or None, the shapes that it may have and its type each."""
    for name, x, allowed, wanted in rules:
        if x is None:
            continue
        shape, found, on = x
        if tuple(shape) not in allowed or found != wanted or on != device:
            raise ValueError(f"{name} is {tuple(shape)}, {found}, on {on}, but must be "
                             f"{' or '.join(map(str, dict.fromkeys(allowed)))}, {wanted}, on {device}")


def layout(shape, size):
    """The shape (batch, heads, n, size) and its strides in memory (batch, n, heads, size), as the layers around attention
    have it."""
    batch, heads, n, _ = shape
    return (batch, heads, n, size), (n * heads * size, size, heads * size, 1)


def lse_layout(shape):
    batch, heads, n, _ = shape
    return (batch, heads, n), (heads * n, n, 1)


def lse_dtype(dtype):
    return torch.float64 if dtype == torch.float64 else torch.float32


@functools.lru_cache(maxsize=None)
def allocator(device):
    """torch.empty_strided as a function of shape, strides and type, for this device: the current one, if it is a GPU."""
    # Where PyTorch has it, what code of torch.compile allocates with: it takes half as long.
    fast = getattr(getattr(torch._C._dynamo, "guards", None), f"_empty_strided_{device.type}", None)
    return fast or (lambda shape, strides, dtype: torch.empty_strided(shape, strides, dtype=dtype, device=device))


def empty(like, size):
    """(batch, heads, n, size)."""
    return like.new_empty_strided(*layout(like.shape, size))


def empty_lse(q):
    return torch.empty_strided(*lse_layout(q.shape), dtype=lse_dtype(q.dtype), device=q.device)


def empty_results(q, k, v, *rest):
    return empty(q, v.shape[3]), empty_lse(q)


class Plan(library.Plan):
    """With the layouts of its results."""

    def __init__(self, pattern, scale, q_shape, v_shape, dtype, device, **extras):
        batch, heads, queries, key_size = q_shape
        _, _, n, value_size = v_shape
        super().__init__(pattern, batch, n, heads, key_size, value_size, scale, dtypes[dtype],
                         library.CUDA if device.type == "cuda" else library.CPU, queries, key_heads=v_shape[1], **extras)
        self.of_q, self.of_k = layout(q_shape, key_size), layout(v_shape, key_size)
        self.of_o, self.of_v = layout(q_shape, value_size), layout(v_shape, value_size)
        self.of_lse = lse_layout(q_shape)
        self.rows_of_o, self.rows_of_v = _row_strides(self.of_o), _row_strides(self.of_v)
        self.dtype, self.lse_dtype = dtype, lse_dtype(dtype)
        self.empty = allocator(device)


def _row_strides(layout):
    _, (batch, head, position, _) = layout
    return batch, position, head


# Plans are small. One per shape that a program uses at about the same time is enough. Shapes are checked when their plan
# is made, so that a call whose plan exists spends no time on it.
@functools.lru_cache(maxsize=512)
def _plan(pattern, scale, q_shape, k_shape, v_shape, q_dtype, k_dtype, v_dtype, *devices):
    check(q_shape, k_shape, v_shape, q_dtype, k_dtype, v_dtype, *devices)
    return Plan(pattern, scale, q_shape, v_shape, q_dtype, devices[0])


def rows(x):
    """Where the elements of a tensor are, as library.Plan takes it."""
    batch, head, position, _ = x.stride()
    return x.data_ptr(), batch, position, head


def _dense_rows(x):
    """A tensor with the elements of a row next to each other, and its rows."""
    batch, head, position, element = x.stride()
    if element == 1:
        return x, (x.data_ptr(), batch, position, head)
    x = x.contiguous()
    return x, rows(x)


def _scratch(plan, backward, empty):
    """Memory, its address and its bytes. empty: as from allocator."""
    count = plan.scratch(backward)
    if count == 0:
        return None, 0, 0
    memory = empty((count,), (1,), torch.uint8)
    return memory, memory.data_ptr(), count


def _forward(q, k, v, pattern, scale, stream):
    plan = _plan(pattern, scale, *properties(q, k, v))
    q, q_rows = _dense_rows(q)
    k, k_rows = _dense_rows(k)
    v, v_rows = _dense_rows(v)
    o, lse = plan.empty(*plan.of_o, plan.dtype), plan.empty(*plan.of_lse, plan.lse_dtype)
    _memory, address, count = _scratch(plan, False, plan.empty)
    plan.forward(q_rows, k_rows, v_rows, (o.data_ptr(), *plan.rows_of_o), lse.data_ptr(), address, count, stream)
    return o, lse


def _backward(dout, q, k, v, o, lse, pattern, scale, stream):
    plan = _plan(pattern, scale, *properties(q, k, v))
    dout, dout_rows = _dense_rows(dout)
    q, q_rows = _dense_rows(q)
    k, k_rows = _dense_rows(k)
    v, v_rows = _dense_rows(v)
    o, o_rows = _dense_rows(o)
    dq, dk = plan.empty(*plan.of_q, plan.dtype), plan.empty(*plan.of_k, plan.dtype)
    dv = plan.empty(*plan.of_v, plan.dtype)
    _memory, address, count = _scratch(plan, True, plan.empty)
    plan.backward(q_rows, k_rows, v_rows, o_rows, lse.data_ptr(), dout_rows, rows(dq), rows(dk),
                  (dv.data_ptr(), *plan.rows_of_v), address, count, stream)
    return dq, dk, dv


def _on_cpu(run, check_forward, *args):
    """The CPU computes 16-bit types in float32. `check_forward`: where `run` is forward, the check of what it takes."""
    dtype = args[0].dtype
    if dtype not in (torch.bfloat16, torch.float16):
        return run(*args, 0)
    if check_forward is not None:  # before the types become one
        check_forward(*(x for x in args if not isinstance(x, (str, float))))
    # lse is float32 already, here and as a result, and so are gradients of parameters.
    args = [x.float() if isinstance(x, torch.Tensor) and x.dtype == dtype else x for x in args]
    found = run(*args, 0)
    count = 3 if check_forward is None else 1
    return *(x.to(dtype) for x in found[:count]), *found[count:]


# A build of PyTorch for CPUs alone has neither.
_current_device = getattr(torch._C, "_cuda_getDevice", None)
_current_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)


def _on_cuda(run, *args):
    index = args[0].get_device()
    if index == _current_device():
        return run(*args, _current_stream(index))
    with torch.cuda.device(index):
        return run(*args, _current_stream(index))


# Tensors on the current GPU do without _on_cuda: calls of functions are a good part of the time on the host.
def forward(q, k, v, pattern, scale):
    """o and lse."""
    if q.is_cuda:
        index = q.get_device()
        if index == _current_device():
            return _forward(q, k, v, pattern, scale, _current_stream(index))
        return _on_cuda(_forward, q, k, v, pattern, scale)
    return _on_cpu(_forward, lambda *tensors: check(*properties(*tensors)), q, k, v, pattern, scale)


def backward(dout, q, k, v, o, lse, pattern, scale):
    """dq, dk and dv. dout, o and lse are trusted."""
    if q.is_cuda:
        index = q.get_device()
        if index == _current_device():
            return _backward(dout, q, k, v, o, lse, pattern, scale, _current_stream(index))
        return _on_cuda(_backward, dout, q, k, v, o, lse, pattern, scale)
    return _on_cpu(_backward, None, dout, q, k, v, o, lse, pattern, scale)


def checked_backward(dout, q, k, v, o, lse, pattern, scale):
    """backward for a caller with tensors of any kind."""
    check(*properties(q, k, v))
    check_backward(dout, q, k, v, o, lse, pattern, scale)
    return backward(dout, q, k, v, o, lse.contiguous(), pattern, scale)
