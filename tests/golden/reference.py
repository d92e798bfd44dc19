"""The decoder written again in PyTorch, from the definitions in docs/develop/numerics.md. By default it is the Sparse
Transformer (Child et al. 2019).

An independent reference: it shares no code with the C++, builds every attention mask by brute force and leaves the
gradients to autograd. Slow, plain, and in float64 when asked.
"""
import math

import numpy
import torch

from adaptive import Adaptive


def per_head(value, heads):
    """One number for all heads, alone or as a list of one; or a list with one per head."""
    values = list(value) if isinstance(value, (list, tuple)) else [value]
    return values * heads if len(values) == 1 else values


def part_mask(part, attention, head, heads, n):
    """allowed[i, j] of one part, as the paper defines it."""
    i = numpy.arange(n)[:, None]
    j = numpy.arange(n)[None, :]
    causal = j <= i
    if part == "dense":
        return causal
    stride = attention.get("stride", 0)
    if part == "local":
        window = attention.get("window", 0) or stride + 1
        return causal & (i - j < window)
    if part == "column":
        return causal & ((i - j) % stride == 0)
    if part == "fixed_block":
        return causal & (i // stride == j // stride)
    if part == "fixed_summary":
        c = per_head(attention["summary"], heads)[head]
        s = head % (stride // c) if attention.get("distinct_heads", False) else 0
        low, high = stride - (s + 1) * c, stride - s * c - 1
        summary = (low <= j % stride) & (j % stride <= high)
        if attention.get("summary_inclusive", False):
            summary = summary | (j % stride == 0)
        return causal & summary
    raise ValueError(f"unknown part {part!r}")


def mask(attention, layer, head, heads, n):
    """allowed[i, j] of one head of one layer (Eq. 6 to 8)."""
    parts = attention["parts"]
    integration = attention["integration"]
    if integration == "interleaved":
        return part_mask(parts[layer % len(parts)], attention, head, heads, n)
    if integration == "multihead":
        return part_mask(parts[head * len(parts) // heads], attention, head, heads, n)
    if integration == "merged":
        union = numpy.zeros((n, n), dtype=bool)
        for part in parts:
            union |= part_mask(part, attention, head, heads, n)
        return union
    raise ValueError(f"unknown integration {integration!r}")


class Reference:
    """`model` is a recipe's `model:` as a dictionary; `data` gives context and, for images, rows, columns, channels."""

    def __init__(self, model, data):
        self.model = model
        self.context = data["context"]
        self.layers, self.width, self.heads = model["layers"], model["width"], model["heads"]
        self.key_size = round(model.get("key_ratio", 1.0) * self.width / self.heads)
        self.value_size = self.width // self.heads
        self.key_heads = model["attention"].get("key_heads", 0) or self.heads if "attention" in model else self.heads
        self.inner = round(model.get("feed_forward_ratio", 4.0) * self.width)
        self.attention = model.get("attention")
        self.rotary_base = model.get("rotary_base", 0)
        self.query_key_norm = model.get("query_key_norm", False)
        self.post_norm = model.get("norm", "pre") == "post"
        self.activation = model.get("activation", "sigmoid_gelu")
        self.tied = model.get("tied_output", False)
        self.adaptive = Adaptive(model) if "adaptive" in model else None
        self.scale = math.sqrt(self.width) if model.get("embedding_scale", False) else 1.0
        if model.get("positions", "attention") == "none":
            self.positions = []
        elif model.get("positions", "attention") == "attention":
            stride = self.attention["stride"]
            self.positions = [(-(-self.context // stride), lambda i: i // stride), (stride, lambda i: i % stride)]
        else:
            rows, columns, channels = data["rows"], data["columns"], data["channels"]
            self.positions = [
                (rows, lambda i: i // (columns * channels)),
                (columns, lambda i: (i // channels) % columns),
                (channels, lambda i: i % channels),
            ]
        self.masks = {}

    def shapes(self):
        """Names and shapes of every parameter, in the order of the computation."""
        d, h = self.width, self.heads
        tokens = self.adaptive.input_shapes() if self.adaptive else {"embedding.token.weight": (256, d)}
        shapes = {"embedding.start": (d,), **tokens}
        for t, (rows, _) in enumerate(self.positions):
            shapes[f"embedding.position.{t}.weight"] = (rows, d)

        def linear(name, out, inputs, biased):
            shapes[name + ".weight"] = (out, inputs)
            if self.model.get(biased, True):
                shapes[name + ".bias"] = (out,)

        def norm(name):
            shapes[name + ".weight"] = (d,)
            shapes[name + ".bias"] = (d,)

        for k in range(self.layers):
            norm(f"layers.{k}.attention_norm")
            linear(f"layers.{k}.attention.query_key_value", sum(self.columns()), d, "attention_bias")
            linear(f"layers.{k}.attention.output", d, h * self.value_size, "attention_bias")
            norm(f"layers.{k}.feed_forward_norm")
            linear(f"layers.{k}.feed_forward.inner", self.inner * (2 if self.activation == "geglu" else 1), d,
                   "feed_forward_bias")
            linear(f"layers.{k}.feed_forward.outer", d, self.inner, "feed_forward_bias")
        if not self.post_norm:
            norm("final_norm")
        biased = self.model.get("output_bias", False)
        if self.adaptive:
            return shapes | self.adaptive.output_shapes(biased)
        if not self.tied:
            shapes["output.weight"] = (256, d)
        if biased:
            shapes["output.bias"] = (256,)
        return shapes

    def columns(self):
        """Of queries, keys and values."""
        shared = self.key_heads
        return [self.heads * self.key_size, shared * self.key_size, shared * self.value_size]

    def stacked(self, name):
        """The rows of each of the matrices stacked in a weight."""
        if name.endswith("inner.weight") and self.activation == "geglu":
            return [self.inner, self.inner]
        if name.endswith("query_key_value.weight"):
            return self.columns()
        return [self.shapes()[name][0]]

    def allowed(self, layer, n):
        """(heads, n, n), cached: layers with equal parts share it."""
        parts = self.attention["parts"]
        key = (layer % len(parts) if self.attention["integration"] == "interleaved" else 0, n)
        if key not in self.masks:
            masks = [mask(self.attention, layer, head, self.heads, n) for head in range(self.heads)]
            self.masks[key] = torch.from_numpy(numpy.stack(masks))
        return self.masks[key]

    def normalised(self, x):
        return x / torch.sqrt((x**2).mean(-1, keepdim=True) + 1e-6) if self.query_key_norm else x

    def transform(self, x):
        """Queries or keys, (batch, heads, n, size), as attention takes them: normalised and rotated, if at all."""
        x = self.normalised(x)
        if self.rotary_base > 0:
            n, size = x.shape[-2:]
            rates = self.rotary_base ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
            angles = torch.arange(n, dtype=torch.float64)[:, None] * rates
            # The pair (2m, 2m + 1) as a complex number, times exp(i angle).
            turned = torch.view_as_complex(x.reshape(*x.shape[:-1], size // 2, 2).contiguous())
            turned = turned * torch.polar(torch.ones_like(angles), angles).to(turned.dtype)
            x = torch.view_as_real(turned).reshape(x.shape)
        return x

    def linear(self, p, name, x):
        y = x @ p[name + ".weight"].T
        return y + p[name + ".bias"] if name + ".bias" in p else y

    def attend(self, p, x, layer):
        """W_p attention(x) + b_p, (batch, n, width)."""
        batch, n, _ = x.shape
        h, dk, dv = self.heads, self.key_size, self.value_size
        name = f"layers.{layer}.attention"
        qkv = self.linear(p, name + ".query_key_value", x)
        q, k, v = qkv.split(self.columns(), -1)
        q = self.transform(q.reshape(batch, n, h, dk).transpose(1, 2))
        k = self.transform(k.reshape(batch, n, self.key_heads, dk).transpose(1, 2))
        v = v.reshape(batch, n, self.key_heads, dv).transpose(1, 2)
        # Query head i reads key head i // (heads / key heads).
        k, v = (x[:, [i // (h // self.key_heads) for i in range(h)]] for x in (k, v))
        allowed = self.allowed(layer, n)
        scores = (q @ k.transpose(-1, -2)) / math.sqrt(dk)
        scores = scores.masked_fill(~allowed, -math.inf)
        # A row that may attend to nothing yields 0: its scores are replaced so that softmax stays finite.
        empty = ~allowed.any(-1)
        scores = scores.masked_fill(empty[..., None], 0.0)
        weights = torch.softmax(scores, -1).masked_fill(~allowed, 0.0)
        o = (weights @ v).transpose(1, 2).reshape(batch, n, h * dv)
        return self.linear(p, name + ".output", o)

    def norm(self, p, name, x):
        mean = x.mean(-1, keepdim=True)
        variance = ((x - mean) ** 2).mean(-1, keepdim=True)
        return (x - mean) / torch.sqrt(variance + 1e-5) * p[name + ".weight"] + p[name + ".bias"]

    def feed_forward(self, p, x, layer, keep):
        name = f"layers.{layer}.feed_forward"
        active = keep("inner", self.activate(self.linear(p, name + ".inner", x)), layer)
        return self.linear(p, name + ".outer", active)

    def activate(self, z):
        def gelu(x):
            return x * (1 + torch.erf(x / math.sqrt(2))) / 2

        if self.activation == "sigmoid_gelu":
            return z * torch.sigmoid(1.702 * z)
        if self.activation == "relu":
            return z * (z > 0)
        if self.activation == "gelu":
            return gelu(z)
        if self.activation == "geglu":
            return gelu(z[..., : self.inner]) * z[..., self.inner :]
        raise ValueError(f"unknown activation {self.activation!r}")

    def embedded(self, p, previous, starts):
        """Of the token before each position, (batch, n); rows that start read the start vector at position 0."""
        n = previous.shape[1]
        i = torch.arange(n)
        at_start = starts.bool()[:, None] & (i == 0)
        if self.adaptive:
            read = self.adaptive.vectors(p, previous, p["embedding.start"], at_start)
        else:
            read = torch.where(at_start[..., None], p["embedding.start"], p["embedding.token.weight"][previous])
        hidden = self.scale * read
        for t, (_, index) in enumerate(self.positions):
            hidden = hidden + p[f"embedding.position.{t}.weight"][index(i)]
        return hidden

    def blocks(self, p, hidden, attend, keep):
        """attend(x, layer): the attention branch. `keep` drops what every end of the blocks gives."""
        hidden = keep("embedding", hidden)
        for k in range(self.layers):
            attention_norm, feed_forward_norm = f"layers.{k}.attention_norm", f"layers.{k}.feed_forward_norm"
            if self.post_norm:
                hidden = self.norm(p, attention_norm, hidden + keep("attention", attend(hidden, k), k))
                given = keep("feed_forward", self.feed_forward(p, hidden, k, keep), k)
                hidden = self.norm(p, feed_forward_norm, hidden + given)
                continue
            a = keep("attention", attend(self.norm(p, attention_norm, hidden), k), k)
            normed = self.norm(p, feed_forward_norm, hidden + a)
            b = keep("feed_forward", self.feed_forward(p, normed, k, keep), k)
            hidden = hidden + a + b
        return keep("output", hidden if self.post_norm else self.norm(p, "final_norm", hidden))

    def nats(self, p, hidden, targets):
        if self.adaptive:
            return -self.adaptive.log_probabilities(p, hidden).gather(-1, targets[..., None])[..., 0]
        logits = hidden @ p["embedding.token.weight" if self.tied else "output.weight"].T
        if "output.bias" in p:
            logits = logits + p["output.bias"]
        return -torch.log_softmax(logits, -1).gather(-1, targets[..., None])[..., 0]

    key = (0, 0)  # seed, and number of the first row: of what is drawn for rows

    def losses(self, p, tokens, keep=None):
        """-log p(x_i | x_<i) in nats of every position, (batch, n). `keep(what, y, layer)` applies dropout."""
        keep = keep or (lambda what, y, layer=0: y)
        tokens = tokens.long()
        hidden = self.embedded(p, tokens.roll(1, dims=1), torch.ones(tokens.shape[0]))
        return self.nats(p, self.blocks(p, hidden, lambda x, k: self.attend(p, x, k), keep), tokens)
