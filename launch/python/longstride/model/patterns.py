"""Attention under a pattern, from its definition: a mask over scores, for some queries at a time."""
import math

import torch
from torch.utils.checkpoint import checkpoint

from .blocks import drawn_blocks

MOST_SCORES = 1 << 24  # computed at once


def read_blocks(pattern, layer, head, n, device):
    """Which block of queries reads which block of keys, of those that are drawn and the global ones: (blocks, blocks)."""
    blocks = -(-n // pattern.block)
    reads = torch.zeros(blocks, blocks, dtype=torch.bool)
    for b, keys in enumerate(drawn_blocks(pattern, layer, head, blocks)):
        reads[b, keys] = True
    ends = [*range(min(pattern.global_first, blocks)), *range(max(0, blocks - pattern.global_last), blocks)]
    reads[:, ends] = reads[ends] = True
    return reads.to(device)


def part_mask(pattern, part, layer, head, n, i, j):
    """Whether queries at positions i of n may attend to keys at positions j, by one part; i and j broadcast."""
    both, l = pattern.direction == "both", pattern.stride
    causal = (j >= 0) & (i >= 0) if both else j <= i
    if part == "dense":
        return causal
    if part == "local" and both:
        return (i - j).abs() <= (pattern.window_of() - 1) // 2
    if part == "local":
        return causal & (i - j < pattern.window_of())
    if part == "column":
        return causal & ((i - j) % l == 0)
    if part == "fixed_block":
        return causal & (torch.div(i, l, rounding_mode="floor") == torch.div(j, l, rounding_mode="floor"))
    if part == "first":
        return causal & (j < pattern.first)
    if part == "block_window":
        blocks = [torch.div(at, pattern.block, rounding_mode="floor") for at in (i, j)]
        return causal & ((blocks[0] - blocks[1]).abs() <= 1)
    if part == "dilated":
        d = pattern.dilation_of(head)
        reach = (pattern.window - 1) // 2 if both else pattern.window - 1
        return causal & ((i - j) % d == 0) & ((i - j).abs() <= reach * d)
    if part == "shifted_block":
        length = -(-n // pattern.blocks)
        own = torch.div(i, length, rounding_mode="floor") + pattern.shift_of(head)
        return causal & (own % -(-n // length) == torch.div(j, length, rounding_mode="floor"))
    if part == "random_blocks":
        return causal & read_blocks(pattern, layer, head, n, i.device)[i // pattern.block, j // pattern.block]
    begin, width = pattern.sub_block_of(head)
    summary = (begin <= j % l) & (j % l < begin + width)
    if pattern.summary_inclusive:
        summary = summary | (j % l == 0)
    return causal & summary


def mask(pattern, layer, n, i, j):
    """(heads, queries, keys), or (1, queries, keys) when all heads have the same, of a row of n positions."""
    by_head, i, j = {}, i[:, None], j[None, :]
    order = []
    for head in range(pattern.heads):
        parts = pattern.parts_of(layer, head)
        key = (parts, pattern.sub_block_of(head) if "fixed_summary" in parts else None,
               pattern.dilation_of(head) if "dilated" in parts else None,
               pattern.shift_of(head) if "shifted_block" in parts else None, head if "random_blocks" in parts else None)
        order.append(key)
        if key in by_head:
            continue
        union = part_mask(pattern, parts[0], layer, head, n, i, j)
        for part in parts[1:]:
            union = union | part_mask(pattern, part, layer, head, n, i, j)
        if pattern.global_first and "random_blocks" not in parts:
            union = union | (i < pattern.global_first) | (j < pattern.global_first)
        by_head[key] = union
    if len(by_head) == 1:
        return by_head[order[0]][None]
    return torch.stack([by_head[key] for key in order])


def first_key(pattern, layer, row):
    """No query at this position or after it attends to a key before this one."""
    if pattern is None or pattern.direction == "both":
        return 0
    least = row
    for head in range(pattern.heads):
        for part in pattern.parts_of(layer, head):
            if part == "local":
                least = min(least, max(0, row - pattern.window_of() + 1))
            elif part == "dilated":
                least = min(least, max(0, row - (pattern.window - 1) * pattern.dilation_of(head)))
            elif part == "block_window":
                least = min(least, max(0, (row // pattern.block - 1) * pattern.block))
            elif part == "fixed_block":
                least = min(least, row // pattern.stride * pattern.stride)
            else:
                return 0
    return least


def attend_rows(q, k, v, pattern, layer, n, i, j, sink, shown=None):
    """Attention of queries at positions i of n to keys at positions j, those that are `shown`, (batch, keys), if given. A
    query that may attend to nothing gets 0. Without a pattern all keys are seen."""
    everything = torch.ones(1, len(i), len(j), dtype=torch.bool, device=q.device)
    allowed = everything if pattern is None else mask(pattern, layer, n, i, j)
    if shown is not None:
        allowed = allowed & shown[:, None, None, :]
    scores = (q @ k.transpose(-1, -2)) / math.sqrt(q.shape[-1])
    if sink is not None:
        sinks = sink.to(scores.dtype)[:, None, None].expand(*scores.shape[:3], 1)
        weights = torch.softmax(torch.cat([scores.masked_fill(~allowed, -math.inf), sinks], -1), -1)
        return weights[..., :-1] @ v
    empty = ~allowed.any(-1)
    if bool(empty.any()):
        allowed = allowed | empty[..., None]  # keeps softmax finite
    weights = torch.softmax(scores.masked_fill(~allowed, -math.inf), -1)
    return (weights @ v).masked_fill(empty[..., None], 0.0)


def attend(q, k, v, pattern, layer, first=0, sink=None, shown=None):
    """(batch, heads, queries, value size). Queries are those at positions first, first + 1, ...; keys begin at 0, and k
    and v may have fewer heads. `sink` (heads) is a logit that joins every softmax without a value; `shown` (batch, keys)
    leaves out keys where it is False.

    Half-precision inputs are multiplied, and their softmax taken, in fp32.
    """
    dtype = v.dtype
    if dtype in (torch.bfloat16, torch.float16):
        q, k, v = q.float(), k.float(), v.float()
    batch, heads, rows, _ = q.shape
    if k.shape[1] != heads:
        k, v = (x.repeat_interleave(heads // x.shape[1], 1) for x in (k, v))
    step = max(1, MOST_SCORES // (batch * heads * (first + rows)))
    out = []
    for begin in range(0, rows, step):
        end = min(begin + step, rows)
        low = first_key(pattern, layer, first + begin)
        i = torch.arange(first + begin, first + end, device=q.device)
        high = k.shape[2] if pattern is None or pattern.direction == "both" else first + end
        j = torch.arange(low, high, device=q.device)
        visible = None if shown is None else shown[:, low:high]
        work = (q[:, :, begin:end], k[:, :, low:high], v[:, :, low:high], pattern, layer, k.shape[2], i, j, sink, visible)
        if step < rows and torch.is_grad_enabled():  # scores of one piece at a time, in backward as well
            out.append(checkpoint(attend_rows, *work, use_reentrant=False, preserve_rng_state=False))
        else:
            out.append(attend_rows(*work))
    return torch.cat(out, 2).to(dtype)
