"""Decoders whose layers scan, written again in PyTorch from the papers: the Performer (Choromanski et al. 2021), SSD (Dao
and Gu 2024), gated linear attention (Yang et al. 2024) and the gated delta rule (Yang et al. 2025); and their cases.

Like reference.py it shares no code with the C++. Forms without the delta rule are sums over pairs of positions, with no
state and no stabiliser; the delta rule multiplies its state by a matrix at every position.
"""
import math

import numpy
import torch

from philox import philox
from reference import Reference

PROJECTION = 7  # philox.py's purposes


def direction(layer, run, size, kind, redraw):
    """The matrix whose rows are the directions of a run."""
    def drawn(count):
        return philox(0, 2**40 + run * count + numpy.arange(count), redraw, PROJECTION << 24 | layer)

    matrix = numpy.eye(size)
    if kind == "hadamard":
        hadamard = numpy.ones((1, 1))
        while len(hadamard) < size:
            hadamard = numpy.block([[hadamard, hadamard], [hadamard, -hadamard]])
        for signs in drawn(3 * size)[:, 0].reshape(3, size):
            matrix = matrix @ hadamard @ numpy.diag(numpy.where(signs >= 2**31, -1, 1)) / math.sqrt(size)
    else:
        for angle, first, second, _ in drawn(size * math.ceil(math.log(size))).tolist():
            angle, a, b = 2 * math.pi * (angle + 0.5) / 2**32, first * size >> 32, second * (size - 1) >> 32
            b += b >= a
            rotation = numpy.eye(size)
            rotation[a, a] = rotation[b, b] = math.cos(angle)
            rotation[a, b], rotation[b, a] = math.sin(angle), -math.sin(angle)
            matrix = matrix @ rotation
    return matrix


def projection(layer, rows, size, kind="gram_schmidt", redraw=0):
    """Normal rows of seed 0; each run of `size` of them made orthogonal, with the lengths that they had. kind: or none."""
    words = philox(0, numpy.arange(rows * size), redraw, PROJECTION << 24 | layer)
    uniform = (words + 0.5) / 2.0**32
    drawn = numpy.sqrt(-2 * numpy.log(uniform[:, 0])) * numpy.cos(2 * math.pi * uniform[:, 1])
    w = drawn.reshape(rows, size)
    for first in range(0, 0 if kind == "none" else rows, size):
        run = w[first : first + size]
        lengths = numpy.linalg.norm(run, axis=1)
        if kind == "gram_schmidt":
            q, r = numpy.linalg.qr(run.T)  # columns with the signs of Gram-Schmidt's
            directions = (q * numpy.sign(numpy.diag(r))).T
        else:
            directions = direction(layer, first // size, size, kind, redraw)[: len(run)]
        w[first : first + size] = directions * lengths[:, None]
    return torch.from_numpy(w)


class ScanReference(Reference):
    """`model` has `mixers`, a cycle of maps of which each has `kind`: scan or attention."""

    def entry(self, layer):
        entries = [entry for entry in self.model["mixers"] for _ in range(entry.get("layers", 1))]
        return entries[layer % len(entries)]

    def form(self, layer):
        """The entry with the defaults that depend on others."""
        entry = self.entry(layer)
        features = entry.get("features", "none") != "none"
        sizes = {"key_heads": self.heads, "key_size": self.key_size, "value_size": self.value_size}
        return {**sizes, "form": "sum", "decay": "none", "time_step": False, "skip": False, "convolution_bias": False, "beta": 1, "features": "none", "count": 256, "orthogonal": "gram_schmidt",
                "normalise": features, "convolution": 0, "gate": not features, "norm": "none" if features else "rms", **entry}

    def shapes(self):
        shapes, d, h = {}, self.width, self.heads
        for name, shape in super().shapes().items():
            shapes[name] = self.shape_of_scan(name, shape)
            layer = int(name.split(".")[1]) if name.startswith("layers.") else -1
            last = "bias" if self.model.get("attention_bias", True) else "weight"
            if not name.endswith("query_key_value." + last) or self.entry(layer)["kind"] != "scan":
                continue
            form, own = self.form(layer), name.removesuffix(f".query_key_value.{last}")
            keys, values = h * form["key_size"], h * form["value_size"]
            channels = self.channels(form)
            if form["convolution"]:
                shapes[own + ".convolution.weight"] = (channels, form["convolution"])
            if form["convolution_bias"]:
                shapes[own + ".convolution.bias"] = (channels,)
            if form["decay"] == "head":
                shapes |= {own + ".decay.weight": (h, d), own + ".decay_bias": (h,), own + ".decay_rate": (h,)}
            if form["decay"] == "channel":
                shapes |= {own + ".decay_low.weight": (16, d), own + ".decay.weight": (keys, 16),
                           own + ".decay_bias": (keys,)}
            if form["form"] == "delta":
                shapes[own + ".beta.weight"] = (h, d)
            if form["skip"]:
                shapes[own + ".skip"] = (h,)
            if form["gate"]:
                shapes[own + ".gate.weight"] = (values, d)
            if form["norm"] == "rms":
                shapes[own + ".norm.weight"] = (form["value_size"],)
            if form["norm"] == "gated_rms":
                shapes[own + ".norm.weight"] = (values,)
        return shapes

    def channels(self, form):
        return 2 * form["key_heads"] * form["key_size"] + self.heads * form["value_size"]

    def shape_of_scan(self, name, shape):
        """With the sizes of the layer's own entry."""
        layer, _, own = name.removeprefix("layers.").partition(".attention.")
        if not own or self.entry(int(layer))["kind"] != "scan":
            return shape
        form = self.form(int(layer))
        if own.startswith("query_key_value."):
            return (self.channels(form), *shape[1:])
        return (shape[0], self.heads * form["value_size"]) if own == "output.weight" else shape

    def attend(self, p, x, layer):
        if self.entry(layer)["kind"] == "attention":
            self.attention = self.entry(layer)
            return super().attend(p, x, layer)
        form, name = self.form(layer), f"layers.{layer}.attention"
        batch, n, _ = x.shape
        h, shared, dk, dv = self.heads, form["key_heads"], form["key_size"], form["value_size"]
        qkv = self.linear(p, name + ".query_key_value", x)
        if form["convolution"]:
            qkv = self.convolve(p[name + ".convolution.weight"], qkv, p.get(name + ".convolution.bias", 0))
        heads = lambda y, count: y.reshape(batch, n, count, -1).transpose(1, 2)
        q, k, v = qkv.split([shared * dk, shared * dk, h * dv], -1)
        q, k = (heads(y, shared).repeat_interleave(h // shared, 1) for y in (q, k))
        v = read = heads(v, h)
        decay = self.decay(p, name, x, form)
        if form["features"] != "none":
            q, k = (self.features(self.transform(y), form, layer) for y in (q, k))
        elif form["form"] == "delta":
            unit = lambda y: y / torch.sqrt((y**2).sum(-1, keepdim=True) + dk * 1e-6)
            q, k = unit(q) / math.sqrt(dk), unit(k)
        elif form["time_step"]:
            v = v * self.step(p, name, x).transpose(1, 2)[..., None]
        else:
            q = q / math.sqrt(dk)
        if form["form"] == "delta":
            beta = form["beta"] * torch.sigmoid(x @ p[name + ".beta.weight"].T).transpose(1, 2)
            o = self.delta(q, k, v, decay, beta)
        else:
            o = self.pairs(q, k, v, decay, form["normalise"])
        if form["skip"]:
            o = o + p[name + ".skip"][:, None, None] * read
        root = lambda y: torch.sqrt((y**2).mean(-1, keepdim=True) + 1e-6)
        if form["norm"] == "rms":
            o = o / root(o) * p[name + ".norm.weight"]
        o = o.transpose(1, 2).reshape(batch, n, h * dv)
        if form["gate"]:
            gate = x @ p[name + ".gate.weight"].T
            o = o * gate * torch.sigmoid(gate)
        if form["norm"] == "gated_rms":
            groups = o.reshape(batch, n, shared, -1)
            o = (groups / root(groups)).reshape(o.shape) * p[name + ".norm.weight"]
        return self.linear(p, name + ".output", o)

    def convolve(self, weight, x, bias):
        """y_t = silu(bias + sum of weight[width - 1 - j] x_(t - j))."""
        width, n = weight.shape[1], x.shape[1]
        before = torch.cat([x.new_zeros(x.shape[0], width - 1, x.shape[2]), x], 1)
        y = bias + sum(weight[:, j] * before[:, j : j + n] for j in range(width))
        return y * torch.sigmoid(y)

    def step(self, p, name, x):
        return torch.nn.functional.softplus(x @ p[name + ".decay.weight"].T + p[name + ".decay_bias"])

    def decay(self, p, name, x, form):
        """Logarithms, (batch, heads, n, 1 or key size); none: None."""
        if form["decay"] == "none":
            return None
        if form["decay"] == "head":
            return (-torch.exp(p[name + ".decay_rate"]) * self.step(p, name, x)).transpose(1, 2)[..., None]
        low = x @ p[name + ".decay_low.weight"].T
        z = low @ p[name + ".decay.weight"].T + p[name + ".decay_bias"]
        return (torch.nn.functional.logsigmoid(z) / 16).reshape(*z.shape[:2], self.heads, -1).transpose(1, 2)

    def features(self, x, form, layer):
        d, kind = x.shape[-1], form["features"]
        rows = form["count"] // (2 if kind == "trigonometric" else 1)
        x = x * d**-0.25
        products, half = x @ projection(layer, rows, d, form["orthogonal"]).to(x.dtype).T, (x**2).sum(-1, keepdim=True) / 2
        if kind == "relu":
            return products.clamp(min=0) + 0.001
        if kind == "softmax":
            return torch.exp(products - half)
        return torch.cat([torch.cos(products), torch.sin(products)], -1) * torch.exp(half)

    def pairs(self, q, k, v, decay, normalise):
        n = q.shape[2]
        past = torch.ones(n, n, dtype=torch.bool).tril()
        if decay is None:
            weights = q @ k.transpose(-1, -2)
        else:  # the decays behind the key up to the query
            sums = decay.cumsum(2)
            between = torch.exp((sums[:, :, :, None] - sums[:, :, None]).masked_fill(~past[..., None], -math.inf))
            weights = torch.einsum("bhic,bhjc,bhijc->bhij", q, k, between.expand(-1, -1, -1, -1, q.shape[-1]))
        weights = weights.masked_fill(~past, 0)
        return weights @ v / (weights.sum(-1, keepdim=True) if normalise else 1)

    def delta(self, q, k, v, decay, beta):
        """S_t = (I - b k k^T) a S_(t-1) + b k v^T."""
        batch, h, n, dk = q.shape
        state, out, one = q.new_zeros(batch, h, dk, v.shape[-1]), [], torch.eye(dk, dtype=q.dtype)
        for t in range(n):
            key, b = k[:, :, t, :, None], beta[:, :, t, None, None]
            if decay is not None:
                state = torch.exp(decay[:, :, t, :, None]) * state
            state = (one - b * key @ key.transpose(-1, -2)) @ state + b * key @ v[:, :, t, None]
            out.append((q[:, :, t, None] @ state)[:, :, 0])
        return torch.stack(out, 2)


def scans(mixers, n=24, layers=2, width=16, heads=2, **model):
    model = {"kind": "decoder", "layers": layers, "width": width, "heads": heads, "positions": "none", **model}
    entries = [{"kind": "scan", **mixers}] if isinstance(mixers, dict) else mixers
    return {"batch": 2, "positions": n, "data": {"context": n}, "model": {**model, "mixers": entries}}


GATED = {"form": "gated", "decay": "head"}
# A layer of Mamba-2, and one of Qwen3-Next.
MAMBA2 = {**GATED, "convolution": 4, "convolution_bias": True, "time_step": True, "skip": True, "norm": "gated_rms",
          "key_heads": 2, "key_size": 5, "value_size": 8}
QWEN3_NEXT = {"form": "delta", "decay": "head", "convolution": 4, "key_heads": 2, "key_size": 8, "value_size": 10}
DELTA = {"form": "delta", "decay": "head", "convolution": 4}

# Without a norm where a head begins with an output near 0, of which it would magnify the rounding.
SCANS = {
    "scan_performer": scans({"features": "softmax", "count": 20}, rotary_base=100.0, query_key_norm=True),
    "scan_performer_trigonometric": scans({"features": "trigonometric", "count": 192}, query_key_norm=True),
    "scan_performer_relu": scans({"features": "relu", "count": 12, "gate": True, "norm": "rms"}, n=37),
    "scan_performer_hadamard": scans({"features": "softmax", "count": 20, "orthogonal": "hadamard"}, query_key_norm=True),
    "scan_performer_givens": scans({"features": "softmax", "count": 20, "orthogonal": "givens"}, width=24),
    "scan_performer_decay": scans({**GATED, "features": "softmax", "count": 20}, query_key_norm=True),
    "scan_sum": scans({"gate": False, "norm": "none"}, key_ratio=0.5),
    "scan_ssd": scans({**GATED, "convolution": 4, "norm": "none"}, n=28, width=32),
    "scan_gla": scans({"form": "gated", "decay": "channel"}, attention_bias=False),
    # Longer than a chunk of the kernel.
    "scan_ssd_long": scans(GATED, n=150, layers=1),
    "scan_mamba2": scans(MAMBA2, n=30, layers=1, width=24, heads=4, attention_bias=False),
    "scan_mamba2_one_group": scans({**MAMBA2, "key_heads": 1}, n=150, width=16, heads=4, layers=1),
    "scan_qwen3_next": scans(QWEN3_NEXT, n=24, layers=1, width=20, heads=4, attention_bias=False),
    "scan_delta": scans(DELTA, n=28, width=32),
    "scan_delta_long": scans({**DELTA, "beta": 2, "convolution": 0}, n=150, layers=1),
    "scan_delta_channel": scans({**DELTA, "decay": "channel", "convolution": 2, "gate": False}, width=24, heads=3),
    "scan_delta_alone": scans({**DELTA, "decay": "none", "norm": "none"}),
    "scan_hybrid": scans(
        [{"kind": "scan", **DELTA, "layers": 3, "norm": "none"},
         {"kind": "attention", "integration": "merged", "parts": ["dense"], "stride": 8}],
        layers=4, rotary_base=100.0, query_key_norm=True),
}
