"""The patterns' attention as an expert would write it in PyTorch on the CPU. Each class takes q, k, v (batch, heads, n, d).

Masked: one scaled_dot_product_attention with an n x n mask; every pattern. The others never touch most of the n x n
scores: blocks by reshaping, columns by transposing, summary keys by gathering.
"""
import math
import pathlib
import sys

import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "golden"))
from reference import mask, part_mask, per_head  # noqa: E402


class Unsupported(Exception):
    """This form cannot express this pattern."""


class Causal(nn.Module):
    """Dense attention: the fused causal kernel."""

    def __init__(self, attention, layer, heads, n):
        super().__init__()
        parts = attention["parts"]
        if set(parts) != {"dense"}:
            raise Unsupported

    def forward(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


class Masked(nn.Module):
    def __init__(self, attention, layer, heads, n):
        super().__init__()
        masks = [torch.from_numpy(mask(attention, layer, head, heads, n)) for head in range(heads)]
        if all(torch.equal(masks[0], other) for other in masks):
            masks = masks[:1]
        allowed = torch.stack(masks)
        empty = ~allowed.any(-1)
        allowed[..., 0] |= empty  # so that softmax stays finite; the row's output is set to 0
        self.register_buffer("allowed", allowed)
        self.register_buffer("keep", None if not empty.any() else (~empty).float()[..., None])

    def forward(self, q, k, v):
        o = F.scaled_dot_product_attention(q, k, v, attn_mask=self.allowed)
        return o if self.keep is None else o * self.keep


def blocks(x, count, stride):
    """(batch * heads, count, stride, d), padded with zeros at the end."""
    batch, heads, n, d = x.shape
    if n < count * stride:
        x = F.pad(x, (0, 0, 0, count * stride - n))
    return x.reshape(batch * heads, count, stride, d)


class Local(nn.Module):
    """Every block of queries attends to its own and the previous block."""

    def __init__(self, attention, heads, n):
        super().__init__()
        self.n, self.stride = n, attention["stride"]
        window = attention.get("window", 0) or self.stride + 1
        if window > self.stride + 1:
            raise Unsupported
        self.count = -(-n // self.stride)
        i = torch.arange(self.count * self.stride).view(self.count, self.stride, 1)
        j = i[:, :1] - self.stride + torch.arange(2 * self.stride)
        self.register_buffer("allowed", (j >= 0) & (j <= i) & (i - j < window))

    def keys(self, x):
        x = blocks(x, self.count, self.stride)
        return torch.cat([F.pad(x, (0, 0, 0, 0, 1, 0))[:, :-1], x], 2)

    def forward(self, q, k, v):
        o = F.scaled_dot_product_attention(
            blocks(q, self.count, self.stride), self.keys(k), self.keys(v), attn_mask=self.allowed)
        return o.reshape(*q.shape[:2], -1, v.shape[-1])[:, :, : self.n]


class Column(nn.Module):
    """Dense causal attention in each residue class, by transposing."""

    def __init__(self, attention, heads, n):
        super().__init__()
        self.n, self.stride = n, attention["stride"]
        self.count = -(-n // self.stride)

    def columns(self, x):
        return blocks(x, self.count, self.stride).transpose(1, 2).contiguous()

    def forward(self, q, k, v):
        o = F.scaled_dot_product_attention(self.columns(q), self.columns(k), self.columns(v), is_causal=True)
        return o.transpose(1, 2).reshape(*q.shape[:2], -1, v.shape[-1])[:, :, : self.n]


class StridedMerged(nn.Module):
    """One softmax over both: the scores of window and column side by side."""

    def __init__(self, attention, heads, n):
        super().__init__()
        self.local, self.column = Local(attention, heads, n), Column(attention, heads, n)
        window = attention.get("window", 0) or attention["stride"] + 1
        row = torch.arange(self.column.count)
        distance = (row[:, None] - row) * attention["stride"]
        self.register_buffer("outside", (distance >= window)[:, None])  # (count, 1, count)

    def forward(self, q, k, v):
        local, column = self.local, self.column
        scale = 1 / math.sqrt(q.shape[-1])
        near = blocks(q, local.count, local.stride) @ local.keys(k).transpose(-1, -2)
        far = (column.columns(q) @ column.columns(k).transpose(-1, -2)).transpose(1, 2)
        near = (near * scale).masked_fill(~local.allowed, -math.inf)
        far = (far * scale).masked_fill(~self.outside, -math.inf)
        weights = torch.cat([near, far], -1).softmax(-1)
        near, far = weights.split([near.shape[-1], far.shape[-1]], -1)
        o = near @ local.keys(v) + (far.transpose(1, 2) @ column.columns(v)).transpose(1, 2)
        return o.reshape(*q.shape[:2], -1, v.shape[-1])[:, :, : local.n]


class FixedBlock(nn.Module):
    def __init__(self, attention, heads, n):
        super().__init__()
        self.n, self.stride = n, attention["stride"]
        self.count = -(-n // self.stride)

    def forward(self, q, k, v):
        f = lambda x: blocks(x, self.count, self.stride)
        o = F.scaled_dot_product_attention(f(q), f(k), f(v), is_causal=True)
        return o.reshape(*q.shape[:2], -1, v.shape[-1])[:, :, : self.n]


class Fixed(nn.Module):
    """Summary keys gathered once; `own` adds the query's own block (merged). `loop`: one call per block over the
    summaries so far, otherwise one call for all blocks over all summaries with a mask."""

    def __init__(self, attention, heads, n, own, loop):
        super().__init__()
        self.n, self.stride, self.own, self.loop = n, attention["stride"], own, loop
        self.count = -(-n // self.stride)
        padded = self.count * self.stride
        masks = [torch.from_numpy(part_mask("fixed_summary", attention, head, heads, padded)) for head in range(heads)]
        columns = [allowed[-1].nonzero()[:, 0] for allowed in masks]
        if len({len(c) for c in columns}) > 1:
            raise Unsupported
        self.equal = all(torch.equal(columns[0], c) for c in columns)
        self.width = len(columns[0]) // self.count
        self.register_buffer("columns", torch.stack(columns))  # (heads, count * width)
        self.register_buffer("head", torch.arange(heads)[:, None])
        block = torch.arange(padded) // self.stride
        seen = [m[:, c] & (block[c] < block[:, None]) if own else m[:, c] for m, c in zip(masks, columns)]
        allowed = torch.stack(seen[:1] if self.equal else seen)  # (heads or 1, padded, count * width)
        empty = torch.zeros(allowed.shape[:2], dtype=torch.bool)
        if own:
            causal = torch.ones(self.stride, self.stride, dtype=torch.bool).tril().repeat(self.count, 1)
            allowed = torch.cat([causal.expand(len(allowed), -1, -1), allowed], 2)
        else:
            empty = ~allowed.any(-1)
            allowed[..., 0] |= empty
        self.register_buffer("keep", None if own else (~empty[:, :n]).float()[..., None])
        self.register_buffer("allowed", allowed.unflatten(1, (self.count, self.stride)))

    def gather(self, x):
        x = F.pad(x, (0, 0, 0, self.count * self.stride - self.n))
        return x[:, :, self.columns[0]] if self.equal else x[:, self.head, self.columns]

    def forward(self, q, k, v):
        o = self.by_block(q, k, v) if self.loop else self.at_once(q, k, v)
        return o if self.keep is None else o * self.keep

    def by_block(self, q, k, v):
        ks, vs = self.gather(k), self.gather(v)
        outs = []
        for b in range(self.count):
            rows = slice(b * self.stride, min((b + 1) * self.stride, self.n))
            size = rows.stop - rows.start
            seen = (b if self.own else b + 1) * self.width
            keys, values, allowed = ks[:, :, :seen], vs[:, :, :seen], self.allowed[:, b, :size]
            if self.own:
                keys, values = torch.cat([k[:, :, rows], keys], 2), torch.cat([v[:, :, rows], values], 2)
                allowed = torch.cat([allowed[..., :size], allowed[..., self.stride : self.stride + seen]], -1)
            else:
                allowed = allowed[..., :seen]
            outs.append(F.scaled_dot_product_attention(q[:, :, rows], keys, values, attn_mask=allowed))
        return torch.cat(outs, 2)

    def at_once(self, q, k, v):
        batch, heads = q.shape[:2]

        def keys(x):
            summary = self.gather(x).flatten(0, 1)[:, None].expand(-1, self.count, -1, -1)
            return torch.cat([blocks(x, self.count, self.stride), summary], 2) if self.own else summary

        allowed = self.allowed.repeat(batch, 1, 1, 1) if not self.equal else self.allowed
        o = F.scaled_dot_product_attention(blocks(q, self.count, self.stride), keys(k), keys(v), attn_mask=allowed)
        return o.reshape(batch, heads, -1, v.shape[-1])[:, :, : self.n]


def part(name, attention, heads, n, loop):
    if name == "dense":
        return Causal({"parts": ["dense"]}, 0, heads, n)
    if name == "fixed_summary":
        return Fixed(attention, heads, n, own=False, loop=loop)
    return {"local": Local, "column": Column, "fixed_block": FixedBlock}[name](attention, heads, n)


class Blocked(nn.Module):
    loop = False

    def __init__(self, attention, layer, heads, n):
        super().__init__()
        parts = attention["parts"]
        self.sizes = [heads]
        if attention["integration"] == "interleaved" or len(parts) == 1:
            made = [part(parts[layer % len(parts)], attention, heads, n, self.loop)]
        elif attention["integration"] == "multihead":
            if attention.get("distinct_heads") or len(set(per_head(attention.get("summary", 0), heads))) > 1:
                raise Unsupported
            owner = [head * len(parts) // heads for head in range(heads)]
            self.sizes = [owner.count(p) for p in range(len(parts))]
            made = [part(p, attention, size, n, self.loop) for p, size in zip(parts, self.sizes)]
        elif set(parts) == {"fixed_block", "fixed_summary"}:
            made = [Fixed(attention, heads, n, own=True, loop=self.loop)]
        elif set(parts) == {"local", "column"}:
            made = [StridedMerged(attention, heads, n)]
        else:
            raise Unsupported
        self.made = nn.ModuleList(made)

    def forward(self, q, k, v):
        if len(self.made) == 1:
            return self.made[0](q, k, v)
        split = zip(self.made, q.split(self.sizes, 1), k.split(self.sizes, 1), v.split(self.sizes, 1))
        return torch.cat([attend(*qkv) for attend, *qkv in split], 1)


class BlockedLoop(Blocked):
    """The same with one call per block if there are summary keys."""

    loop = True

    def __init__(self, attention, layer, heads, n):
        if "fixed_summary" not in attention["parts"]:
            raise Unsupported
        super().__init__(attention, layer, heads, n)


FORMS = {"causal": Causal, "masked": Masked, "blocked": Blocked, "blocked_loop": BlockedLoop}
