"""Models that remember, written again in PyTorch from their papers: Transformer-XL (Dai et al. 2019), Adaptive-Span
(Sukhbaatar et al. 2019), Longformer's language model (Beltagy et al. 2020) and the Compressive Transformer (Rae et al.
2020), and any mixture of these.

Like reference.py it shares no code with the C++. Every pair of a query and a key has its distance written out, masks are
built by brute force, a span multiplies the probabilities, which are normalised again, as Sukhbaatar et al. have it, and
autograd does the rest.
"""
import math
from dataclasses import dataclass

import torch

from reference import Reference, per_head


@dataclass
class Memory:
    """What rows remember before a segment. `seen` and `compressed_seen` count a row's last rows that are not hidden."""

    rows: list  # one per layer: (batch, length, width)
    compressed: list  # one per layer: (batch, compressed, width)
    seen: torch.Tensor  # (batch)
    compressed_seen: torch.Tensor  # (batch)


class MemoryReference(Reference):
    """`model` has `distance`, and `memory` unless it forgets everything between segments."""

    def __init__(self, model, data):
        super().__init__(model, data)
        self.distance, memory = model["distance"], model.get("memory", {})
        self.length, self.starts_with_zeros = memory.get("length", 0), memory.get("start", "empty") == "zeros"
        self.compressed, self.rate = memory.get("compressed", 0), memory.get("rate", 1)
        self.kind, self.reconstruction = memory.get("compress"), memory.get("reconstruction", 1.0)
        self.span = self.distance.get("span")
        self.first = 0 if self.distance.get("self", True) else 1  # the smallest distance
        self.closest_choice = math.inf  # how near most_used came to another choice: rounding must not decide

    def shapes(self):
        d, size = self.width, self.heads * self.key_size
        rows, table = self.distance.get("distances", 0), self.distance["table"]
        biases, shared = self.distance["biases"], self.distance.get("shared_table", False)
        shapes = {}

        def biases_of(name):
            shapes[name + ".content_bias"] = (size,)
            if table != "none":
                shapes[name + ".position_bias"] = (size,)

        for name, shape in super().shapes().items():
            if name == "layers.0.attention_norm.weight":
                if table == "learned" and shared:
                    shapes["distance.table"] = (rows, self.key_size)
                if biases == "model":
                    biases_of("distance")
            shapes[name] = shape
            if not name.endswith("attention.output.weight"):
                continue
            layer = name.removesuffix(".output.weight")
            if table == "sinusoid":
                shapes[layer + ".distance.weight"] = (size, d)
            if table == "learned" and not shared:
                shapes[layer + ".distance.table"] = (rows, self.heads, self.key_size)
            if biases == "layer":
                biases_of(layer)
            if self.span:
                shapes[layer + ".span"] = (self.heads,)
            if self.kind in ("convolution", "dilated"):
                shapes[layer + ".compress.weight"] = (d, self.rate * d)
        return shapes

    def empty(self, batch, dtype):
        """Before the first segment. With zeros, these are there from the start."""
        made = lambda rows: [torch.zeros(batch, rows, self.width, dtype=dtype) for _ in range(self.layers)]
        seen = lambda rows: torch.full((batch,), rows if self.starts_with_zeros else 0)
        return Memory(made(self.length), made(self.compressed), seen(self.length), seen(self.compressed))

    def begin(self, memory, starts):
        """Rows that start a stream remember nothing."""
        fresh = self.empty(len(starts), memory.rows[0].dtype)
        choose = lambda new, old: torch.where(starts.bool().reshape(-1, *[1] * (old.dim() - 1)), new, old)
        each = lambda new, old: [choose(a, b) for a, b in zip(new, old)]
        return Memory(each(fresh.rows, memory.rows), each(fresh.compressed, memory.compressed),
                      choose(fresh.seen, memory.seen), choose(fresh.compressed_seen, memory.compressed_seen))

    def table(self, p, layer, farthest, dtype):
        """T_h[t] of the distances 0 to `farthest`: (farthest + 1, heads, key size). Row 0 is not read without `self`."""
        h, size, d = self.heads, self.key_size, self.width
        rows, distance = self.distance.get("distances", 0), torch.arange(farthest + 1)
        if self.distance["table"] == "sinusoid":
            t = distance.clamp(max=rows - 1) if rows > 0 else distance
            rates = 10000.0 ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)
            angles = t[:, None] * rates
            sinusoids = torch.cat([angles.sin(), angles.cos()], -1).to(dtype)
            return (sinusoids @ p[f"layers.{layer}.attention.distance.weight"].T).reshape(-1, h, size)
        row = (distance - self.first).clamp(min=0, max=rows - 1)
        if self.distance.get("shared_table", False):
            return p["distance.table"][row][:, None].expand(-1, h, -1)
        return p[f"layers.{layer}.attention.distance.table"][row]

    def bias(self, p, layer, name):
        """u or v, (heads, 1, key size), or 0."""
        place = {"none": "none", "layer": f"layers.{layer}.attention", "model": "distance"}[self.distance["biases"]]
        found = p.get(f"{place}.{name}_bias")
        return 0.0 if found is None else found.reshape(self.heads, 1, self.key_size)

    def allowed(self, layer, distance, seen):
        """(batch, heads, queries, keys). `seen`: how many of a row's last keys are there, (batch)."""
        windows = per_head(self.distance.get("window", 0), self.layers)
        steps = per_head(self.distance.get("dilation", 1), self.layers)
        dilated = self.distance.get("dilated_heads", 0)
        keys = distance.shape[1]
        there = torch.arange(keys) >= keys - seen[:, None]
        heads = []
        for head in range(self.heads):
            step = steps[layer] if head < dilated else 1
            reached = (distance >= self.first * step) & (distance % step == 0)
            if windows[layer] > 0:
                reached = reached & (distance // step < windows[layer])
            heads.append(reached[None] & there[:, None, :])
        return torch.stack(heads, 1)

    def span_weights(self, p, layer, distance):
        """m(dist) of every head, (heads, queries, keys)."""
        ramp, longest = self.span["ramp"], self.span["longest"]
        z = p[f"layers.{layer}.attention.span"][:, None, None]
        return ((ramp + z * longest - distance) / ramp).clamp(0, 1)

    def projected(self, p, x, layer):
        """Queries, keys and values of rows x, each (batch, heads, rows, size)."""
        h, dk, dv = self.heads, self.key_size, self.value_size
        parts = self.linear(p, f"layers.{layer}.attention.query_key_value", x).split([h * dk, h * dk, h * dv], -1)
        return [part.unflatten(-1, (h, -1)).transpose(1, 2) for part in parts]

    def remembering(self, p, x, layer, memory):
        """The branch's output and the probabilities, (batch, heads, queries, keys), of [compressed | memory | segment]."""
        batch, n, _ = x.shape
        rows = torch.cat([memory.compressed[layer], memory.rows[layer], x], 1)
        keys = rows.shape[1]
        q, k, v = self.projected(p, rows, layer)
        q, k = self.transform(q)[:, :, keys - n :], self.transform(k)  # rotated, if at all, by their row
        distance = torch.arange(keys - n, keys)[:, None] - torch.arange(keys)[None, :]
        scores = (q + self.bias(p, layer, "content")) @ k.transpose(-1, -2)
        if self.distance["table"] != "none":
            table = self.table(p, layer, keys - 1, x.dtype)[distance.clamp(min=0)]  # (queries, keys, heads, key size)
            scores = scores + torch.einsum("bhid,ijhd->bhij", q + self.bias(p, layer, "position"), table)
        scores = scores / math.sqrt(self.key_size)
        allowed = self.allowed(layer, distance, memory.seen + memory.compressed_seen + n)
        if self.span:
            weights = self.span_weights(p, layer, distance)
            allowed = allowed & (weights > 0)
        # A row that may attend to nothing yields 0: its scores are replaced so that softmax stays finite.
        empty = ~allowed.any(-1, keepdim=True)
        scores = scores.masked_fill(~allowed, -math.inf).masked_fill(empty, 0.0)
        probabilities = torch.softmax(scores, -1).masked_fill(~allowed, 0.0)
        if self.span:
            weighted = probabilities * weights
            probabilities = weighted / weighted.sum(-1, keepdim=True).masked_fill(empty, 1.0)
        out = (probabilities @ v).transpose(1, 2).reshape(batch, n, self.heads * self.value_size)
        return self.linear(p, f"layers.{layer}.attention.output", out), probabilities

    def compress(self, p, layer, evicted, received):
        """f_c(evicted), (batch, S, width) to (batch, S / rate, width). received (batch, S): attention in this segment."""
        batch, n, _ = evicted.shape
        count = n // self.rate
        if self.kind == "most_used":
            order = torch.sort(received, dim=-1, descending=True, stable=True)
            if count < n:
                chosen, next_best = order.values[:, count - 1], order.values[:, count]
                self.closest_choice = min([self.closest_choice, *(1 - next_best / chosen)[chosen > 0].tolist()])
            kept = order.indices[:, :count].sort(-1).values
            return torch.stack([evicted[row, kept[row]] for row in range(batch)])
        if self.kind == "dilated":
            sources = [[r + i * count for i in range(self.rate)] for r in range(count)]
        else:
            sources = [[r * self.rate + i for i in range(self.rate)] for r in range(count)]
        made = []
        for source in sources:
            rows = evicted[:, source]  # (batch, rate, width)
            if self.kind == "mean":
                made.append(rows.mean(1))
            elif self.kind == "max":
                made.append(rows.amax(1))
            else:
                made.append(rows.flatten(1) @ p[f"layers.{layer}.attention.compress.weight"].T)
        return torch.stack(made, 1)

    def content_attention(self, p, layer, queries, rows):
        """A(q, m) of Rae et al. 2020, Alg. 2: no mask, biases or positions, and none of the parameters is trained. Queries
        and keys have their norms."""
        fixed = {name: tensor.detach() for name, tensor in p.items()}
        q = self.normalised(self.projected(fixed, queries.detach(), layer)[0])
        _, k, v = self.projected(fixed, rows, layer)
        k = self.normalised(k)
        weights = torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(self.key_size), -1)
        return (weights @ v).transpose(1, 2).flatten(2)

    def remember(self, p, layer, x, memory, probabilities):
        """Memory and compressed memory of a layer after the segment x (batch, S, width); the loss of reconstruction."""
        rows, compressed = memory.rows[layer], memory.compressed[layer]
        n, full = x.shape[1], memory.seen == self.length
        after = torch.cat([rows, x.detach()], 1)[:, n:]
        if self.compressed == 0:
            return after, compressed, 0.0
        evicted = rows[:, :n]
        received = probabilities[..., self.compressed : self.compressed + n].sum((1, 2)).detach()
        new = self.compress(p, layer, evicted, received)
        error = self.content_attention(p, layer, x, evicted) - self.content_attention(p, layer, x, new)
        loss = (error**2 * full[:, None, None]).mean()
        kept = torch.cat([compressed, new.detach() * full[:, None, None]], 1)[:, new.shape[1] :]
        return after, kept, loss

    def segment(self, p, memory, previous, targets, starts):
        """Nats (batch, S), the other losses by name, and the memory of the next segment."""
        memory = self.begin(memory, starts)
        n, kept, reconstruction = targets.shape[1], [], 0.0

        def attend(x, layer):
            nonlocal reconstruction
            out, probabilities = self.remembering(p, x, layer, memory)
            rows, compressed, loss = self.remember(p, layer, x, memory, probabilities)
            kept.append((rows, compressed))
            reconstruction = reconstruction + self.reconstruction * loss
            return out

        hidden = self.blocks(p, self.embedded(p, previous, starts), attend, lambda what, y, layer=0: y)
        others = {"reconstruction": reconstruction} if self.compressed > 0 else {}
        if self.span:
            spans = [p[f"layers.{k}.attention.span"].mean() for k in range(self.layers)]
            others["span"] = self.span.get("loss", 0.0) * self.span["longest"] * sum(spans)
        grown = torch.where(memory.seen == self.length, n // self.rate, 0)
        after = Memory([rows for rows, _ in kept], [compressed for _, compressed in kept],
                       (memory.seen + n).clamp(max=self.length),
                       (memory.compressed_seen + grown).clamp(max=self.compressed))
        return self.nats(p, hidden, targets), others, after
