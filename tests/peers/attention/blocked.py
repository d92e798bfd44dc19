"""The patterns' attention on the CPU, of q, k and v (batch, heads, n, d), as modules made of (pattern, layer, heads, n).

Masked takes every pattern: one scaled_dot_product_attention with an n x n mask. An expert's forms never touch most of the
n x n scores: blocks by reshaping, columns by transposing, summary keys by gathering. They have dense, local and column
attention, one a layer, and blocks merged with summaries.
"""
import pathlib
import sys

import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "golden"))
from reference import mask, part_mask  # noqa: E402


class Masked(nn.Module):
    def __init__(self, pattern, layer, heads, n):
        super().__init__()
        masks = [torch.from_numpy(mask(pattern, layer, head, heads, n)) for head in range(heads)]
        if all(torch.equal(masks[0], other) for other in masks):
            masks = masks[:1]
        allowed = torch.stack(masks)
        empty = ~allowed.any(-1)
        allowed[..., 0] |= empty  # so that softmax stays finite; the row's output is set to 0
        self.register_buffer("allowed", allowed)
        self.register_buffer("keep", None if not empty.any() else (~empty)[..., None])

    def forward(self, q, k, v):
        o = F.scaled_dot_product_attention(q, k, v, attn_mask=self.allowed)
        return o if self.keep is None else o * self.keep


class Dense(nn.Module):
    def __init__(self, pattern, layer, heads, n):
        super().__init__()

    def forward(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


class Blocks(nn.Module):
    def __init__(self, pattern, layer, heads, n):
        super().__init__()
        self.n, self.stride = n, pattern["stride"]
        self.count = -(-n // self.stride)

    def blocks(self, x):
        """(batch * heads, count, stride, d), padded with zeros at the end."""
        return F.pad(x, (0, 0, 0, self.count * self.stride - self.n)).reshape(-1, self.count, self.stride, x.shape[-1])

    def whole(self, o, q):
        return o.reshape(*q.shape[:2], -1, o.shape[-1])[:, :, : self.n]


class Local(Blocks):
    """Every block of queries attends to its own and the previous block."""

    def __init__(self, pattern, layer, heads, n):
        super().__init__(pattern, layer, heads, n)
        window = pattern.get("window", 0) or self.stride + 1
        i = torch.arange(self.count * self.stride).view(self.count, self.stride, 1)
        j = i[:, :1] - self.stride + torch.arange(2 * self.stride)
        self.register_buffer("allowed", (j >= 0) & (j <= i) & (i - j < window))

    def keys(self, x):
        x = self.blocks(x)
        return torch.cat([F.pad(x, (0, 0, 0, 0, 1, 0))[:, :-1], x], 2)

    def forward(self, q, k, v):
        return self.whole(F.scaled_dot_product_attention(self.blocks(q), self.keys(k), self.keys(v), attn_mask=self.allowed), q)


class Column(Blocks):
    """Dense causal attention in each residue class, by transposing."""

    def columns(self, x):
        return self.blocks(x).transpose(1, 2).contiguous()

    def forward(self, q, k, v):
        o = F.scaled_dot_product_attention(self.columns(q), self.columns(k), self.columns(v), is_causal=True)
        return self.whole(o.transpose(1, 2), q)


class Fixed(Blocks):
    """Every block attends to itself and, with a mask, to all summary rows, which are gathered once."""

    def __init__(self, pattern, layer, heads, n):
        super().__init__(pattern, layer, heads, n)
        padded = self.count * self.stride
        masks = [torch.from_numpy(part_mask("fixed_summary", pattern, head, heads, padded)) for head in range(heads)]
        columns = [allowed[-1].nonzero()[:, 0] for allowed in masks]
        self.equal = all(torch.equal(columns[0], c) for c in columns)
        self.register_buffer("columns", torch.stack(columns))  # (heads, summary rows)
        self.register_buffer("head", torch.arange(heads)[:, None])
        block = torch.arange(padded) // self.stride
        seen = torch.stack([m[:, c] & (block[c] < block[:, None]) for m, c in zip(masks, columns)][: 1 if self.equal else None])
        causal = torch.ones(self.stride, self.stride, dtype=torch.bool).tril().repeat(self.count, 1)
        allowed = torch.cat([causal.expand(len(seen), -1, -1), seen], 2)
        self.register_buffer("allowed", allowed.unflatten(1, (self.count, self.stride)))

    def keys(self, x):
        padded = F.pad(x, (0, 0, 0, self.count * self.stride - self.n))
        summaries = padded[:, :, self.columns[0]] if self.equal else padded[:, self.head, self.columns]
        return torch.cat([self.blocks(x), summaries.flatten(0, 1)[:, None].expand(-1, self.count, -1, -1)], 2)

    def forward(self, q, k, v):
        allowed = self.allowed if self.equal else self.allowed.repeat(q.shape[0], 1, 1, 1)
        return self.whole(F.scaled_dot_product_attention(self.blocks(q), self.keys(k), self.keys(v), attn_mask=allowed), q)


def blocked(pattern, layer):
    """The expert's form, or None where there is only Masked."""
    parts, summary = pattern["parts"], pattern.get("summary", 0)
    if pattern["integration"] == "merged" and set(parts) == {"fixed_block", "fixed_summary"}:
        return Fixed if len(set(summary if isinstance(summary, list) else [summary])) == 1 else None
    part = parts[layer % len(parts)] if pattern["integration"] == "interleaved" or len(parts) == 1 else None
    if part == "local" and pattern.get("window", 0) > pattern["stride"] + 1:
        return None
    return {"dense": Dense, "local": Local, "column": Column}.get(part)
