"""Attention with distances as operators of PyTorch: longstride::distance_attention and its backward.

As in attention_op, torch.library knows them, with rules for fake tensors and autograd, and a call that needs nothing of
this goes to distance_run at once.
"""
import torch

from . import distance_run
from .attention_op import LARGEST, _checked_scale, call, define
from .pattern import whole


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
    how = settings, 0.0 if scale is None else _checked_scale(scale)  # 0: the library's default
    given = dict(zip(given, (q, k, v, *parameters)))
    return call(torch.ops.longstride.distance_attention, _eager, distance_run, given, how)


def _as(x, dtype, name="a table, bias or span"):
    if x is None or x.dtype == dtype:
        return x
    if x.is_complex():  # PyTorch would drop a part of it
        raise ValueError(f"{name} is {x.dtype}, but must be of real numbers")
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


_eager = define("distance_attention", "Tensor q, Tensor k, Tensor v, Tensor? table, Tensor? content_bias, Tensor? "
                "position_bias, Tensor? span, Tensor? first_key", "str settings, float scale", distance_run)
