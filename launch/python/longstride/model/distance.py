"""Attention with a term of the distance, learned spans and memory (docs/develop/numerics.md).

Transformer-XL (Dai et al. 2019), Adaptive-Span (Sukhbaatar et al. 2019), Longformer (Beltagy et al. 2020) and the
Compressive Transformer (Rae et al. 2020). It is computed from its definition, for some queries at a time.
"""
import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from . import patterns
from .attention import Attention

LEAST_WEIGHT = 1 / 1024  # below it, a span's weight is 0


def exact(t):
    """Half precision as fp32, in which scores, their softmax and what follows from it are computed."""
    return t.float() if t is not None and t.element_size() == 2 else t


def biases(module, settings):
    """u and v, of which v needs a table."""
    size, table = settings.heads * settings.key_size, settings.distance.table
    module.content_bias = nn.Parameter(torch.zeros(size))
    if table != "none":
        module.position_bias = nn.Parameter(torch.zeros(size))


class Shared(nn.Module):
    """What all layers share: a table of distances, and biases."""

    def __init__(self, settings):
        super().__init__()
        self.settings, d = settings, settings.distance
        if d.shared_table:
            self.table = nn.Parameter(torch.empty(d.distances, settings.key_size))
        if d.biases == "model":
            biases(self, settings)

    def sines(self, rows, like):
        """R of the distances below `rows`: (rows, width), sines and then cosines. Some are dropped in training."""
        d, width = self.settings.distance, self.settings.width
        t = torch.arange(min(rows, d.distances) if d.distances else rows, dtype=torch.float64, device=like.device)
        rates = 10000.0 ** (-torch.arange(0, width, 2, dtype=torch.float64, device=like.device) / width)
        angles = t[:, None] * rates
        made = torch.cat([torch.sin(angles), torch.cos(angles)], -1).to(like.dtype)
        made = F.dropout(made, d.table_dropout, self.training)
        return made[torch.arange(rows, device=like.device).clamp(max=len(t) - 1)]


class Scores:
    """What determines the scores of a layer apart from its weights: scale, windows, dilations and spans."""

    def __init__(self, distance, layer, heads, key_size):
        self.distance, self.scale = distance, 1 / math.sqrt(key_size)
        self.window = distance.window_of(layer)
        self.steps = [distance.dilation_of(layer, head) for head in range(heads)]

    def allowed(self, t):
        """Whether pairs at distances t (queries, keys) are seen: (heads or 1, queries, keys)."""
        steps = self.steps if len(set(self.steps)) > 1 else self.steps[:1]
        made = []
        for step in steps:
            seen = (t >= self.distance.first * step) & (t % step == 0)
            if self.window > 0:
                seen = seen & (t < self.window * step)
            made.append(seen)
        return torch.stack(made)

    def log_weights(self, t, z):
        """log w(t) of a span z per head, and where w is not 0: (heads, queries, keys)."""
        span = self.distance.span
        w = ((span.ramp + z[:, None, None] * span.longest - t) / span.ramp).clamp(max=1)
        seen = w >= LEAST_WEIGHT
        return torch.where(seen, w, 1.0).log(), seen

    def farthest(self, z):
        """No pair at a greater distance is seen."""
        most = math.inf if self.window == 0 else (self.window - 1) * max(self.steps)
        if z is not None:
            far = self.distance.span.ramp + float(z.detach().max()) * self.distance.span.longest
            most = most if math.isnan(far) else min(most, math.ceil(far))
        return most


def attend_rows(q, k, v, table, u, w, z, hidden, scores, i, j, dropout):
    """Outputs (batch, heads, queries, size) of queries at positions i for keys at positions j, and the probabilities.

    `table` (heads or 1, size, distances) may be None, and so may the biases u and w (heads, 1, size) and z (heads).
    A batch's first hidden (batch) rows are not seen. A query without a key gets 0.
    """
    t = i[:, None] - j[None, :]
    s = (q if u is None else q + u) @ k.transpose(-1, -2)
    if table is not None:
        far = (q if w is None else q + w) @ table
        s = s + far.gather(-1, t.clamp(0, far.shape[-1] - 1).expand(*far.shape[:2], *t.shape))
    s, allowed = s * scores.scale, scores.allowed(t)
    if z is not None:
        weights, seen = scores.log_weights(t, z.to(s.dtype))
        s, allowed = s + weights, allowed & seen
    if hidden is not None:
        allowed = allowed & (j >= hidden[:, None])[:, None, None, :]
    empty = ~allowed.any(-1, keepdim=True)
    p = torch.softmax(s.masked_fill(~(allowed | empty), -math.inf), -1).masked_fill(empty, 0.0)
    return F.dropout(p, dropout) @ v, p


class DistanceAttention(Attention):
    def __init__(self, settings, layer):
        super().__init__(settings, layer)
        s, d, m = settings, settings.distance, settings.memory
        self.scores, self.kernels = Scores(d, layer, s.heads, s.key_size), None
        if d.table == "sinusoid":
            self.distance = nn.Linear(s.width, s.heads * s.key_size, bias=False)
        if d.table == "learned" and not d.shared_table:
            self.distance = nn.Module()
            self.distance.table = nn.Parameter(torch.empty(d.distances, s.heads, s.key_size))
        if d.biases == "layer":
            biases(self, s)
        if d.span:
            self.span = nn.Parameter(torch.empty(s.heads))
        if m and m.learns_to_compress:
            self.compress = nn.Linear(m.rate * s.width, s.width, bias=False)

    def keys_values(self, rows, first):
        """Of rows that are at positions first, first + 1, ...; heads in front."""
        at, bias = self.sizes[0], self.query_key_value.bias
        both = F.linear(rows, self.query_key_value.weight[at:], None if bias is None else bias[at:])
        k, v = (self.heads_of(y) for y in both.split(self.sizes[1:], -1))
        return self.transform(k, first), v

    def heads_of(self, y):
        return y.unflatten(-1, (self.settings.heads, -1)).transpose(1, 2)

    def table_of(self, rows, part, segment):
        """T of the distances below `rows`, (heads or 1, size, rows), or None.

        Without gradients a segment keeps it, since every position that is read by itself needs it again.
        """
        if torch.is_grad_enabled() or self.settings.distance.table == "none":
            return self.made_table(rows, segment)
        if part.table is None:
            part.table = self.made_table(rows, segment)
        elif part.table.shape[-1] < rows:
            part.table = self.made_table(min(2 * rows, segment.before + self.settings.context), segment)
        return part.table[..., :rows]

    def made_table(self, rows, segment):
        d, shared = self.settings.distance, segment.shared
        if d.table == "none":
            return None
        if d.table == "sinusoid":
            if segment.sines is None:
                segment.sines = shared.sines(segment.before + self.settings.context, self.output.weight)
            made = self.distance(segment.sines[:rows]).unflatten(-1, (self.settings.heads, -1))
        else:
            own = shared.table[:, None] if d.shared_table else self.distance.table
            made = own[(torch.arange(rows, device=own.device) - d.first).clamp(0, d.distances - 1)]
        return made.permute(1, 2, 0)

    def bias_of(self, name, shared):
        found = getattr({"layer": self, "model": shared}.get(self.settings.distance.biases), name, None)
        return None if found is None else found.view(self.settings.heads, 1, -1)

    def spans(self):
        """z of the heads, or None. Training clamps z after every update; another optimizer has not, so this does."""
        z = getattr(self, "span", None)
        if z is not None and bool(((z < 0) | (z > 1)).any()):
            with torch.no_grad():
                z.clamp_(0, 1)
        return z

    def forward(self, x, first, segment):
        part, room = segment.parts[self.layer], segment.before + self.settings.context
        if part.keys is None and segment.before > 0:
            part.extend(None, *self.keys_values(segment.remembered(self.layer), 0), room)
        at = segment.before + first
        q = self.transform(self.heads_of(F.linear(x, *self.query_weights())), at)
        part.extend(x, *self.keys_values(x, at), room)
        mixed = None
        if self.kernels is not None and not self.counts():
            mixed = self.kernels(self, q, part, segment)
        if mixed is None:
            mixed = self.mix(q, part, at, segment)
        return self.output(mixed.transpose(1, 2).flatten(2))

    def query_weights(self):
        bias = self.query_key_value.bias
        return self.query_key_value.weight[:self.sizes[0]], None if bias is None else bias[:self.sizes[0]]

    def mix(self, q, part, at, segment):
        """(batch, heads, queries, value size) of queries at positions at, at + 1, ...."""
        dtype = q.dtype
        q, keys, values = exact(q), exact(part.keys), exact(part.values)
        batch, heads, rows, _ = q.shape
        z = self.spans()
        reach = int(min(keys.shape[2] - 1, self.scores.farthest(z)))
        table = exact(self.table_of(reach + 1, part, segment))
        u, w = (exact(self.bias_of(name, segment.shared)) for name in ("content_bias", "position_bias"))
        dropout = self.settings.distance.dropout if self.training else 0.0
        step, out = max(1, patterns.MOST_SCORES // (batch * heads * min(keys.shape[2], reach + rows))), []
        for begin in range(0, rows, step):
            end = min(begin + step, rows)
            low, high = max(0, at + begin - reach), at + end
            i, j = (torch.arange(*r, device=q.device) for r in ((at + begin, high), (low, high)))
            span = min(reach + 1, high - low)
            work = (q[:, :, begin:end], keys[:, :, low:high], values[:, :, low:high],
                    None if table is None else table[..., :span], u, w, z, segment.hidden, self.scores, i, j, dropout)
            if step < rows and torch.is_grad_enabled():
                mixed, p = checkpoint(attend_rows, *work, use_reentrant=False, preserve_rng_state=dropout > 0)
            else:
                mixed, p = attend_rows(*work)
            out.append(mixed)
            self.count(p, low, part)
        return torch.cat(out, 2).to(dtype)

    def counts(self):
        """Whether the memory keeps those of its oldest rows that receive the most attention."""
        m = self.settings.memory
        return m is not None and m.compressed > 0 and m.compress == "most_used"

    def count(self, p, low, part):
        """Adds up the attention that these rows receive."""
        if not self.counts():
            return
        m = self.settings.memory
        if part.received is None:
            part.received = p.new_zeros(p.shape[0], self.settings.context)
        first, last = max(low, m.compressed), m.compressed + self.settings.context
        if first < last:
            by_key = p.detach().sum((1, 2))[:, first - low:last - low]
            part.received[:, first - m.compressed:] += by_key

    def shorten(self, rows, received):
        """What a compressed memory keeps of `rows` (batch, n, width) that leave: (batch, n / rate, width)."""
        m, (batch, n, width) = self.settings.memory, rows.shape
        count = n // m.rate
        if m.compress == "most_used":
            order = torch.sort(received[:, :n], dim=-1, descending=True, stable=True).indices[:, :count]
            return rows.gather(1, order.sort(-1).values[..., None].expand(-1, -1, width))
        if m.compress == "dilated":  # row r is made of rows r, r + count, r + 2 count, ...
            grouped = rows.view(batch, m.rate, count, width).transpose(1, 2)
        else:
            grouped = rows.view(batch, count, m.rate, width)
        if m.compress == "mean":
            return grouped.mean(2)
        if m.compress == "max":
            return grouped.amax(2)
        return self.compress(grouped.flatten(2))

    def content(self, x, rows):
        """Attention of queries of x to rows, without positions, biases or a mask, and with constant weights."""
        weight, bias = self.query_key_value.weight.detach(), self.query_key_value.bias
        bias = None if bias is None else bias.detach()
        q_size, k_size, _ = self.sizes

        def part(t, begin, end):
            return exact(self.heads_of(F.linear(t, weight[begin:end], None if bias is None else bias[begin:end])))

        q, k = self.normalised(part(x, 0, q_size)), self.normalised(part(rows, q_size, q_size + k_size))
        v = part(rows, q_size + k_size, sum(self.sizes))
        return torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(self.settings.key_size), -1) @ v

    def reconstruction(self, x, evicted, made, full):
        """mean |A(f(E)) - A(E)|^2, which trains f alone; rows of the batch whose memory is not full count 0."""
        x = x.detach()
        error = self.content(x, made) - self.content(x, evicted)
        return (error.square() * full[:, None, None, None]).mean()
