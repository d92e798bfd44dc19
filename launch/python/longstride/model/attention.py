"""Attention under a pattern, as a module: the projections, and what is done to queries and keys."""
import math

import torch
from torch import nn

from .patterns import attend


class Attention(nn.Module):
    """W_p attention(q, k, v) + b_p (2, 3, 5)."""

    def __init__(self, settings, layer):
        super().__init__()
        s = self.settings = settings
        self.layer = layer
        self.sizes = [s.heads * s.key_size, s.key_heads * s.key_size, s.key_heads * s.value_size]
        self.query_key_value = nn.Linear(s.width, sum(self.sizes), bias=s.attention_bias)
        self.output = nn.Linear(s.heads * s.value_size, s.width, bias=s.attention_bias)
        learned = s.pattern is not None and s.pattern.sink == "learned"
        self.sink = nn.Parameter(torch.zeros(s.heads)) if learned else None
        if s.global_own:  # queries of global rows, and the keys and values that they read
            self.global_query = nn.Linear(s.width, self.sizes[0], bias=s.attention_bias)
            self.global_key_value = nn.Linear(s.width, sum(self.sizes[1:]), bias=s.attention_bias)
        self.attend = attend

    def normalised(self, x):
        """Queries or keys of root mean square 1, with query_key_norm. fp32 at least."""
        if not self.settings.query_key_norm:
            return x
        x = x if x.dtype == torch.float64 else x.float()
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6)

    def transform(self, x, first):
        """Queries or keys as attention takes them: normalised and rotated, if at all. fp32 at least."""
        s, dtype = self.settings, x.dtype
        if not s.query_key_norm and s.rotary_base == 0:
            return x
        x = self.normalised(x if dtype == torch.float64 else x.float())
        if s.rotary_base > 0:
            n, size = x.shape[-2:]
            pairs = torch.arange(0, size, 2, dtype=torch.float64, device=x.device)
            turns = s.rotary_base ** (-pairs / size) / (2 * math.pi)
            turns = torch.arange(first, first + n, dtype=torch.float64, device=x.device)[:, None] * turns
            angle = 2 * math.pi * (turns - torch.round(turns))
            cosine, sine = torch.cos(angle).to(x.dtype), torch.sin(angle).to(x.dtype)
            a, b = x[..., 0::2], x[..., 1::2]
            x = torch.stack([a * cosine - b * sine, a * sine + b * cosine], -1).flatten(-2)
        return x.to(dtype)

    @staticmethod
    def heads(x, count):
        """(batch, heads, positions, size)."""
        return x.reshape(*x.shape[:2], count, -1).transpose(1, 2)

    def of_global_rows(self, x, mixed, shown):
        """`mixed` with global rows that have projections of their own."""
        count = min(self.settings.global_first, x.shape[1])
        q = self.heads(self.global_query(x[:, :count]), self.settings.heads)
        k, v = (self.heads(y, self.settings.key_heads) for y in self.global_key_value(x).split(self.sizes[1:], -1))
        return torch.cat([attend(q, k, v, None, self.layer, 0, self.sink, shown), mixed[:, :, count:]], 2)

    def forward(self, x, first, cache, shown=None):
        batch, n, _ = x.shape
        s = self.settings
        q, k, v = (self.heads(y, count) for y, count in
                   zip(self.query_key_value(x).split(self.sizes, -1), (s.heads, s.key_heads, s.key_heads)))
        q, k = self.transform(q, first), self.transform(k, first)
        if cache is not None:
            k, v = cache.extend(self.layer, first, k, v)
        if shown is None:
            mixed = self.attend(q, k, v, s.pattern, self.layer, first, self.sink)
        else:
            mixed = attend(q, k, v, s.pattern, self.layer, first, self.sink, shown)
        if s.global_own:
            mixed = self.of_global_rows(x, mixed, shown)
        return self.output(mixed.transpose(1, 2).reshape(batch, n, -1))
