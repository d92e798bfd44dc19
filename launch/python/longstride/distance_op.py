"""Attention with distances as operators of PyTorch: longstride::distance_attention and its backward.

As in attention_op, torch.library knows them, with rules for fake tensors and autograd, and a call that needs nothing of
this goes to distance_run at once.
"""
import torch

from . import distance_run
from .attention_op import (LARGEST, _checked_scale, _differentiable, _is_batched, _needs_no_operator, _operators,
                           _plain_apply, _refuse_other_layouts, _within_forward)
from .pattern import whole

_inputs = ("Tensor q, Tensor k, Tensor v, Tensor? table, Tensor? content_bias, Tensor? position_bias, Tensor? span, "
           "Tensor? first_key")
_constants = "str settings, float scale"
_operators.define(f"distance_attention({_inputs}, {_constants}) -> (Tensor, Tensor)")
_operators.define(f"distance_attention_backward(Tensor dout, {_inputs}, Tensor o, Tensor lse, {_constants}) -> "
                  f"({', '.join(['Tensor'] * 7)})")


def distance_attention(q, k, v, table=None, content_bias=None, position_bias=None, span=None, first_key=None, *,
                       window=0, dilation=(), include_self=True, longest_span=0, ramp=32, scale=None):
    """Attention whose scores have a term of the distance t = p - j of query i, at p = keys - queries + i, and key j:

        s_ij = scale [(q_i + content_bias) . k_j + (q_i + position_bias) . table[min(t, distances - 1)]]

    over the keys j = p - m dilation with 0 <= m < window (0: all; m >= 1 without include_self). With a span per head
    every weight exp(s_ij) is multiplied by min((ramp + span longest_span - t) / ramp, 1), or 0 where that is below
    1/1024.

    q is (batch, heads, queries, key size), k and v (batch, heads, keys, size), with the keys of a memory in front;
    table (distances, heads, key size), or (distances, key size) for all heads; biases (heads, key size); span (heads),
    from 0 to 1; first_key (batch), int32: keys before it are hidden. `dilation` is a step for each head. Types and
    devices are as in `attention`; biases and spans become float32 (float64 next to float64), a table takes q's type.
    Returns (batch, heads, queries, value size). A query without a key gets 0. Gradients are of the first order.
    """
    given = {"q": q, "k": k, "v": v, **dict(zip(distance_run.NAMES, (table, content_bias, position_bias, span,
                                                                     first_key)))}
    for name, x in given.items():
        if not isinstance(x, torch.Tensor) and (x is not None or name in ("q", "k", "v")):
            raise ValueError(f"{name} is {type(x).__name__}, but must be a tensor")
    if not isinstance(dilation, (list, tuple)):
        raise ValueError(f"dilation is {dilation!r}, but must be a list of steps, one for each head")
    if span is None and longest_span:
        raise ValueError(f"longest_span is {longest_span!r}, but there is no span; give one per head")
    exact = distance_run.exact_type(q.dtype)
    parameters = (_as(table, q.dtype), *(_as(x, exact) for x in (content_bias, position_bias, span)),
                  _first_key(first_key))
    settings = _settings(window, tuple(dilation), include_self, span is not None, longest_span, ramp)
    args = (q, k, v, *parameters, settings, 0.0 if scale is None else _checked_scale(scale))  # 0: the library's default
    tensors = [x for x in (q, k, v, *parameters) if x is not None]
    if not _needs_no_operator(*tensors):
        _refuse_other_layouts(**given)
        return torch.ops.longstride.distance_attention(*args)[0]
    try:
        if torch.is_grad_enabled() and any(x.requires_grad for x in tensors):
            return _eager(*args)
        return distance_run.forward(*args)[0]
    except RuntimeError:
        _refuse_other_layouts(**given)
        raise


def _as(x, dtype):
    if x is None or x.dtype == dtype:
        return x
    if x.is_complex():  # PyTorch would drop a part of it
        raise ValueError(f"a table, bias or span is {x.dtype}, but must be of real numbers")
    return x.to(dtype)


def _first_key(x):
    """As int32, in which a number from 2^31 would be another."""
    if x is None or x.dtype == torch.int32:
        return x
    if x.is_floating_point() or x.is_complex() or x.dtype == torch.bool:
        raise ValueError(f"first_key is {x.dtype}, but must be of whole numbers, such as torch.int32")
    return x.long().clamp(0, 2**31 - 1).to(torch.int32)


def _whole(name, value):
    found = whole(value)
    if found is None:
        raise ValueError(f"{name} is {value!r}, but must be a whole number")
    return found


def _settings(window, dilation, include_self, spans, longest_span, ramp):
    """As the operators take them: JSON, written so that torch.compile can follow."""
    window, dilation = _whole("window", window), [_whole("dilation", step) for step in dilation]
    for name, value in (("longest_span", longest_span), ("ramp", ramp)):
        if isinstance(value, bool) or not isinstance(value, (int, float)) or (spans and not 0 < value <= LARGEST):
            raise ValueError(f"{name} is {value!r}, but must be a positive number with a span")
    if not isinstance(include_self, bool):
        raise ValueError(f"include_self is {include_self!r}, but must be True or False")
    longest_span, ramp = (longest_span, ramp) if spans else (0, 0)
    return (f'{{"window": {window}, "dilation": {dilation}, "without_self": {int(not include_self)}, '
            f'"longest_span": {longest_span}, "ramp": {ramp}}}')


def _save(ctx, args, o, lse):
    *tensors, ctx.settings, ctx.scale = args
    ctx.save_for_backward(*tensors, o, lse)


def _gradients(ctx, found):
    """In the types of what they belong to, in the order of forward's arguments; None for what was not given."""
    tensors = ctx.saved_tensors[:7]
    kept = [None if x is None else gradient.to(x.dtype) for x, gradient in zip(tensors, found)]
    return *kept, None, None, None  # first_key, settings, scale


class _Eager(torch.autograd.Function):
    """The operator without the dispatcher."""

    @staticmethod
    def forward(ctx, *args):
        o, lse = distance_run.forward(*args)
        _save(ctx, args, o, lse)
        return o

    @staticmethod
    def backward(ctx, dout):
        args = (dout, *ctx.saved_tensors, ctx.settings, ctx.scale)
        # The operator refuses a second derivative.
        if torch.is_grad_enabled() or not _needs_no_operator(dout) or _is_batched(dout):
            return _gradients(ctx, torch.ops.longstride.distance_attention_backward(*args))
        return _gradients(ctx, distance_run.backward(*args))


_eager = _plain_apply(_Eager)


class _Differentiable(torch.autograd.Function):
    @staticmethod
    def forward(ctx, *args):
        o, lse = _within_forward(torch.ops.longstride.distance_attention, *args)
        _save(ctx, args, o, lse)
        ctx.mark_non_differentiable(lse)
        return o, lse

    @staticmethod
    def backward(ctx, dout, _):
        args = (dout, *ctx.saved_tensors, ctx.settings, ctx.scale)
        return _gradients(ctx, torch.ops.longstride.distance_attention_backward(*args))


class _Backward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, *args):
        return _within_forward(torch.ops.longstride.distance_attention_backward, *args)

    @staticmethod
    def backward(ctx, *_):
        raise RuntimeError("longstride.distance_attention has gradients of the first order only, but one of a higher "
                           "order is asked for; take it of an attention that is written in PyTorch's own operators")


for _key in ("CPU", "CUDA"):
    _operators.impl("distance_attention", distance_run.forward, _key)
    _operators.impl("distance_attention_backward", distance_run.checked_backward, _key)
_operators.impl("distance_attention", _differentiable(torch.ops.longstride.distance_attention, _Differentiable),
                "Autograd")
_operators.impl("distance_attention_backward",
                _differentiable(torch.ops.longstride.distance_attention_backward, _Backward), "Autograd")


@torch.library.register_fake("longstride::distance_attention", lib=_operators)
def _(q, k, v, table, content_bias, position_bias, span, first_key, settings, scale):
    distance_run.check(*distance_run.properties(q, k, v, table, content_bias, position_bias, span, first_key))
    return distance_run.empty(q, v.shape[3]), distance_run.empty_lse(q)


@torch.library.register_fake("longstride::distance_attention_backward", lib=_operators)
def _(dout, q, k, v, table, content_bias, position_bias, span, first_key, o, lse, settings, scale):
    distance_run.check(*distance_run.properties(q, k, v, table, content_bias, position_bias, span, first_key))
    distance_run.check_backward(q, v, dout, o, lse)
    gradients = distance_run.gradients_of(q, (table, content_bias, position_bias, span))
    return (distance_run.empty(q, q.shape[3]), distance_run.empty(k, k.shape[3]), distance_run.empty(v, v.shape[3]),
            *gradients)
