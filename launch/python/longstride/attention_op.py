"""Attention as operators of PyTorch: longstride::attention and longstride::attention_backward.

They are registered by torch.library, with rules for fake tensors and autograd, so that torch.compile, CUDA graphs and
torch.library.opcheck treat them as PyTorch's own. torch.library.custom_op would do the same, but takes 20 to 40
microseconds more per call on the host.
"""
import functools

import torch

from . import library
from .pattern import Pattern

_dtypes = {torch.float32: library.F32, torch.float64: library.F64, torch.bfloat16: library.BF16,
           torch.float16: library.F16}

_operators = torch.library.Library("longstride", "DEF")
_operators.define("attention(Tensor q, Tensor k, Tensor v, str pattern, float scale) -> (Tensor, Tensor)")
_operators.define("attention_backward(Tensor dout, Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse, str pattern, "
                  "float scale) -> (Tensor, Tensor, Tensor)")


def attention(q, k, v, pattern, scale=None):
    """softmax(scale q k^T) v over the pairs that the pattern allows.

    q and k are (batch, heads, n, key size), v and the result (batch, heads, n, value size), as in
    torch.nn.functional.scaled_dot_product_attention: one type and device, any strides. The type is float32, bfloat16
    or float16, or on the CPU also float64; the CPU computes 16-bit types in float32. `pattern` is a Pattern, and
    `scale` is 1 / sqrt(key size) unless given. Gradients are of the first order.
    """
    if not isinstance(pattern, Pattern):
        raise ValueError(f"pattern is {pattern!r}, but must be a longstride.Pattern")
    if not (isinstance(q, torch.Tensor) and isinstance(k, torch.Tensor) and isinstance(v, torch.Tensor)):
        raise ValueError(f"q, k and v are {type(q).__name__}, {type(k).__name__} and {type(v).__name__}, but must be "
                         "tensors")
    if scale is None:
        scale = 0.0  # the library's default
    elif isinstance(scale, bool) or not isinstance(scale, (int, float)) or not scale > 0:
        raise ValueError(f"scale is {scale!r}, but must be a positive number, or None for 1 / sqrt(key size)")
    return torch.ops.longstride.attention(q, k, v, pattern.text, scale)[0]


# Plans are small. One per shape that a program uses at about the same time is enough.
_plan = functools.lru_cache(maxsize=512)(library.Plan)


def _check_shapes(q, k, v):
    if q.dim() != 4 or k.shape != q.shape or v.dim() != 4 or v.shape[:3] != q.shape[:3]:
        raise ValueError(
            f"q, k and v are {tuple(q.shape)}, {tuple(k.shape)} and {tuple(v.shape)}, but must be (batch, heads, n, "
            "key size), the same, and (batch, heads, n, value size)")
    if not (q.dtype == k.dtype == v.dtype and q.dtype in _dtypes):
        raise ValueError(
            f"q, k and v are {q.dtype}, {k.dtype} and {v.dtype}, but must be of one type: float32, bfloat16, float16 "
            "or, on the CPU, float64")
    if not q.device == k.device == v.device:
        raise ValueError(f"q, k and v are on {q.device}, {k.device} and {v.device}, but must be on one device")


def _empty(like, size):
    """(batch, heads, n, size), in memory (batch, n, heads, size) as the layers around attention have it."""
    batch, heads, n, _ = like.shape
    return torch.empty_strided((batch, heads, n, size), (n * heads * size, size, heads * size, 1), dtype=like.dtype,
                               device=like.device)


def _empty_lse(q):
    dtype = torch.float64 if q.dtype == torch.float64 else torch.float32
    return torch.empty(q.shape[:3], dtype=dtype, device=q.device)


def _rows(x):
    """Where the elements of a tensor are, as library.Plan takes it."""
    batch, head, position, _ = x.stride()
    return x.data_ptr(), batch, position, head


def _dense(x):
    """With the elements of a row next to each other."""
    return x if x.stride(3) == 1 else x.contiguous()


def _plan_of(q, v, pattern, scale, device):
    batch, heads, n, key_size = q.shape
    return _plan(pattern, batch, n, heads, key_size, v.shape[3], scale, _dtypes[q.dtype], device)


def _scratch(plan, backward, device):
    """Memory, its address and its bytes."""
    count = plan.scratch(backward)
    if count == 0:
        return None, 0, 0
    memory = torch.empty(count, dtype=torch.uint8, device=device)
    return memory, memory.data_ptr(), count


def _run_forward(q, k, v, pattern, scale, device, stream):
    _check_shapes(q, k, v)
    plan = _plan_of(q, v, pattern, scale, device)
    q, k, v = _dense(q), _dense(k), _dense(v)
    o, lse = _empty(q, v.shape[3]), _empty_lse(q)
    _memory, address, count = _scratch(plan, False, q.device)
    plan.forward(_rows(q), _rows(k), _rows(v), _rows(o), lse.data_ptr(), address, count, stream)
    return o, lse


def _run_backward(dout, q, k, v, o, lse, pattern, scale, device, stream):
    plan = _plan_of(q, v, pattern, scale, device)
    dout, q, k, v, o = _dense(dout), _dense(q), _dense(k), _dense(v), _dense(o)
    dq, dk, dv = _empty(q, q.shape[3]), _empty(q, q.shape[3]), _empty(q, v.shape[3])
    _memory, address, count = _scratch(plan, True, q.device)
    plan.backward(
        _rows(q), _rows(k), _rows(v), _rows(o), lse.data_ptr(), _rows(dout), _rows(dq), _rows(dk), _rows(dv), address,
        count, stream)
    return dq, dk, dv


def _on_cpu(run):
    """The operator on the CPU, which computes 16-bit types in float32."""

    def kernel(*args):
        dtype = args[0].dtype
        if dtype not in (torch.bfloat16, torch.float16):
            return run(*args, library.CPU, 0)
        # lse is float32 already, here and as a result.
        args = [x.float() if isinstance(x, torch.Tensor) and x.dtype == dtype else x for x in args]
        first, *others = run(*args, library.CPU, 0)
        return (first.to(dtype), *(x if run is _run_forward else x.to(dtype) for x in others))

    return kernel


def _on_cuda(run):
    """The operator on the current stream of the tensors' device."""

    def kernel(*args):
        device = args[0].device
        stream = torch.cuda.current_stream(device).cuda_stream
        if device.index == torch.cuda.current_device():
            return run(*args, library.CUDA, stream)
        with torch.cuda.device(device):
            return run(*args, library.CUDA, stream)

    return kernel


def _below_autograd(operator, *args):
    with torch._C._AutoDispatchBelowAutograd():
        return operator(*args)


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, pattern, scale):
        o, lse = _below_autograd(torch.ops.longstride.attention, q, k, v, pattern, scale)
        ctx.save_for_backward(q, k, v, o, lse)
        ctx.mark_non_differentiable(lse)
        ctx.pattern, ctx.scale = pattern, scale
        return o, lse

    @staticmethod
    def backward(ctx, dout, _):
        gradients = torch.ops.longstride.attention_backward(dout, *ctx.saved_tensors, ctx.pattern, ctx.scale)
        return (*gradients, None, None)


class _AttentionBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, *args):
        return _below_autograd(torch.ops.longstride.attention_backward, *args)

    @staticmethod
    def backward(ctx, *_):
        raise RuntimeError("longstride.attention has gradients of the first order only, but one of a higher order is "
                           "asked for; take it of an attention that is written in PyTorch's own operators")


def _differentiable(operator, function):
    """The operator where autograd is on: by `function` if a gradient may be asked for."""

    def kernel(*args):
        if torch.is_grad_enabled() and any(isinstance(x, torch.Tensor) and x.requires_grad for x in args):
            return function.apply(*args)
        return _below_autograd(operator, *args)

    return kernel


_operators.impl("attention", _on_cpu(_run_forward), "CPU")
_operators.impl("attention", _on_cuda(_run_forward), "CUDA")
_operators.impl("attention_backward", _on_cpu(_run_backward), "CPU")
_operators.impl("attention_backward", _on_cuda(_run_backward), "CUDA")
_operators.impl("attention", _differentiable(torch.ops.longstride.attention, _Attention), "Autograd")
_operators.impl("attention_backward", _differentiable(torch.ops.longstride.attention_backward, _AttentionBackward),
                "Autograd")


@torch.library.register_fake("longstride::attention", lib=_operators)
def _(q, k, v, pattern, scale):
    _check_shapes(q, k, v)
    return _empty(q, v.shape[3]), _empty_lse(q)


@torch.library.register_fake("longstride::attention_backward", lib=_operators)
def _(dout, q, k, v, o, lse, pattern, scale):
    return _empty(q, q.shape[3]), _empty(q, q.shape[3]), _empty(q, v.shape[3])
