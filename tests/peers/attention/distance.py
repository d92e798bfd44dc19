"""Attention with Transformer-XL's distance term (Dai et al. 2019) to all of [memory | segment], in four forms.

The term, B[i, j] = (q_i + v) W_r R_{i - j}, is added to scores by
  matrix  the authors' own way: whole matrices of scores, shifted by a view, fused by the compiler
  sdpa    the bias of scaled_dot_product_attention
  flex    FlexAttention, which reads B unshifted, by distance
  triton  hand-written kernels (relative.py)
"""
import functools

import torch
import torch.nn.functional as F
from torch import nn

from attention import flex
from frame.model import exact, join_heads, linear, product, split_heads

FORMS = ["matrix", "sdpa", "flex", "triton"]


def shifted(by_distance):
    """(..., n, keys) of scores by descending distance, from keys - 1 to 0, as scores by key (the authors' _rel_shift)."""
    *rest, n, keys = by_distance.shape
    padded = F.pad(by_distance, (1, 0)).view(*rest, keys + 1, n)
    return padded[..., 1:, :].reshape(*rest, n, keys)


@functools.lru_cache(maxsize=None)
def causal_mask(n, memory, device):
    return flex.create_block_mask(lambda b, h, i, j: j <= i + memory, 1, 1, n, n + memory, device=device)


class DistanceAttention(nn.Module):
    def __init__(self, o, layer):
        super().__init__()
        self.o = o
        self.q, self.kv = linear(o.width, o.width), linear(o.width, 2 * o.width)
        self.r, self.out = linear(o.width, o.width), linear(o.width, o.width)

    def mask(self, n):
        return causal_mask(n, self.o.farthest + 1 - n, self.q.weight.device) if self.o.attention == "flex" else None

    def forward(self, x, memory, shared, mask):
        (u, v, distances), heads = shared, self.o.heads
        q = split_heads(self.q(x), heads)
        k, value = (split_heads(t, heads) for t in self.kv(torch.cat([*memory, x], 1)).chunk(2, -1))
        r = split_heads(self.r(distances), heads)
        n, keys, scale = q.shape[2], k.shape[2], q.shape[-1] ** -0.5
        content, position = q + u[:, None].to(q.dtype), q + v[:, None].to(q.dtype)
        if self.o.attention == "triton":
            from attention import relative

            return self.out(join_heads(relative.attention(content, k, value, position * scale, r, n - 1, scale))), ()
        by_distance = product(self.o, position, r.transpose(-1, -2))
        if self.o.attention == "flex":
            def add(score, b, h, i, j):
                column = torch.clamp(j - i + (n - 1), max=keys - 1)
                return score + scale * by_distance[b, h, i, column]

            return self.out(join_heads(flex.attention(content, k, value, add, mask, scale))), ()
        i, j = torch.arange(n, device=x.device)[:, None], torch.arange(keys, device=x.device)
        hidden, bias = j > i + (keys - n), shifted(by_distance)
        if self.o.attention == "sdpa":
            y = F.scaled_dot_product_attention(content, k, value, (scale * bias).masked_fill(hidden, -torch.inf))
        else:
            scores = scale * (product(self.o, content, k.transpose(-1, -2)) + bias)
            probabilities = exact(scores).masked_fill(hidden, -torch.inf).softmax(-1)
            y = product(self.o, probabilities, value).to(value.dtype)
        return self.out(join_heads(y)), ()
