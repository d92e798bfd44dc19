"""longstride.attention as an `attn_implementation` of transformers."""
import functools

import torch

from .attention_op import attention
from .pattern import Pattern

ELSE = "choose another attn_implementation, such as sdpa"


def register_in_transformers(name="longstride", pattern=None):
    """Makes `attn_implementation=name` of any model in transformers compute attention by longstride.attention, where its
    layers look attention up by that name.

    Without a `pattern`, layers see what they do otherwise: all keys of the past, those of a sliding window, or of both
    directions. A Pattern is used by every layer instead. Keys of fewer heads are not expanded, learned sinks (s_aux) join
    the softmax, and a row's padding and packed sequences (position_ids) are hidden. What cannot be computed is refused:
    dropout of probabilities, masks of pairs, caches with room for later keys, caps of scores and biases.
    """
    if pattern is not None and not isinstance(pattern, Pattern):
        raise ValueError(f"pattern is {pattern!r}, but must be a longstride.Pattern")
    try:
        from transformers import AttentionInterface, AttentionMaskInterface
    except ImportError:
        raise ImportError("register_in_transformers needs transformers 4.53 or later; install it with pip install "
                          "transformers") from None
    AttentionInterface.register(name, functools.partial(attend, pattern=pattern))
    AttentionMaskInterface.register(name, bounds_of_rows)


@functools.lru_cache(maxsize=None)
def _pattern(causal, window):
    if not causal:
        return Pattern(direction="both") if window is None else Pattern(["local"], window=2 * window + 1, direction="both")
    return Pattern() if window is None else Pattern(["local"], window=window)


def attend(module, query, key, value, attention_mask=None, scaling=None, dropout=0.0, is_causal=None, sliding_window=None,
           s_aux=None, *, pattern=None, **others):
    """As transformers calls it: (batch, heads, n, size) to (batch, n, heads, size), and no probabilities."""
    if dropout:
        raise ValueError(f"attention_dropout is {dropout}, but longstride.attention drops no probabilities; set it to 0, "
                         f"or {ELSE}")
    for what in ("softcap", "position_bias"):
        if others.get(what) is not None:
            raise ValueError(f"this model has a {what}, which longstride.attention does not compute; {ELSE}")
    if pattern is None:
        causal = is_causal if is_causal is not None else getattr(module, "is_causal", True)
        pattern = _pattern(bool(causal), sliding_window)
    bounds = None
    if attention_mask is not None:
        if attention_mask.dtype != torch.int32 or attention_mask.dim() != 4 or len(attention_mask) != 2:
            raise ValueError(f"attention_mask is {tuple(attention_mask.shape)} of {attention_mask.dtype}, a mask of pairs, "
                             f"but must be (batch, positions), which are padding or not; {ELSE}")
        bounds = attention_mask.unbind(0)
    rows, before = query.shape[2], key.shape[2] - query.shape[2]
    if before > 0 and rows > 1 and pattern.direction == "past":  # some rows next to a cache: as if all were asked
        query = torch.nn.functional.pad(query, (0, 0, before, 0))
        if bounds is not None:
            bounds = [torch.cat([x[..., :1].expand(-1, -1, before), x], 2) for x in bounds]
    o = attention(query, key, value, pattern, scaling, bounds=bounds, sink=s_aux)
    return o[:, :, -rows:].transpose(1, 2), None


def bounds_of_rows(batch_size, q_length, kv_length, q_offset=0, kv_offset=0, mask_function=None, attention_mask=None,
                   use_vmap=False, device=None, **how):
    """What padding and packed sequences leave of every row: begin and end, (2, batch, 1, rows), or None for all."""
    if use_vmap:
        raise ValueError(f"this model changes the mask by a function of its own, which longstride.attention does not "
                         f"compute; {ELSE}")
    if int(q_offset) + q_length != int(kv_offset) + kv_length:
        raise ValueError(f"the cache has room for {kv_length} keys, but longstride.attention takes those there are; use "
                         f"DynamicCache, or {ELSE}")
    begin = end = None
    if attention_mask is not None and not attention_mask[:, -kv_length:].all():
        kept = attention_mask[:, -kv_length:].bool()
        begin = kept.int().argmax(1, keepdim=True)
        end = kv_length - kept.flip(1).int().argmax(1, keepdim=True)
        if not torch.equal(end - begin, kept.sum(1, keepdim=True)):
            raise ValueError("attention_mask hides positions between others of a row, but longstride.attention takes "
                             f"padding at its ends; {ELSE}")
        begin, end = (x.expand(batch_size, q_length) for x in (begin, end))
    # transformers says of a plain mask that it may be left out.
    plain = how.get("allow_is_causal_skip", True) or how.get("allow_is_bidirectional_skip", False)
    if not plain and q_length == kv_length > 1:
        i = torch.arange(1, q_length, device=device)
        row, head = torch.arange(batch_size, device=device)[:, None], torch.zeros((), dtype=torch.long, device=device)
        if mask_function(row, head, i[None] - 1, i[None]).any():
            raise ValueError(f"some positions of this model see later ones, which longstride.attention does not compute; "
                             f"{ELSE}")
        starts = torch.where(mask_function(row, head, i[None], i[None] - 1), 0, i[None]).expand(batch_size, -1)
        starts = torch.nn.functional.pad(starts.cummax(1).values, (1, 0))
        begin = starts if begin is None else torch.maximum(begin, starts)
        end = torch.full_like(begin, kv_length) if end is None else end
    if begin is None:
        return None
    return torch.stack([begin, end]).to(torch.int32)[:, :, None]
