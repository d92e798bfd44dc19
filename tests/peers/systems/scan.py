"""Times decoders whose layers scan, as strong PyTorch: SSD (Dao and Gu 2024), gated linear attention (Yang et al. 2024), the
gated delta rule (Yang et al. 2025) and the Performer (Choromanski et al. 2021), and a hybrid of three layers of delta for one
of dense attention.

    scan --model ssd|gla|gated_delta|performer|hybrid [--attention fla|chunks|all] [options below]

The models of recipes/survey/text-8min-*.yaml, pre-norm, trained by Muon, whose block is compiled.
  fla     the kernels of flash-linear-attention (the package fla), which refuses gradients that its Triton computes wrongly
  chunks  products within chunks of 64 (attention/chunks.py), in the compiled block
Random features are the same at every step.
"""
import importlib.util
import pathlib
import sys

import torch
import torch.nn.functional as F
from torch import nn

from attention import chunks
from frame.model import exact, join_heads, linear, split_heads
from systems.sparse import Sparse

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "golden"))
DELTA = dict(form="delta", decay="head", convolution=4)
MODELS = {"ssd": [dict(form="gated", decay="head", convolution=4)], "gla": [dict(form="gated", decay="channel")],
          "gated_delta": [DELTA], "performer": [dict(features="softmax", count=256)],
          "hybrid": [DELTA, DELTA, DELTA, dict(kind="attention")]}


def fla_scan(q, k, v, decay, beta, normalise):
    q, k, v = (t.transpose(1, 2).contiguous() for t in (q, k, v))
    if beta is not None:
        from fla.ops.gated_delta_rule import chunk_gated_delta_rule

        rows = (t.transpose(1, 2).contiguous() for t in (decay[..., 0], beta))
        o = chunk_gated_delta_rule(q, k, v, *rows, scale=1.0)[0]
    elif decay is None:
        from fla.ops.linear_attn import chunk_linear_attn

        o = chunk_linear_attn(q, k, v, scale=1.0, normalize=normalise)[0]
    elif decay.shape[-1] == 1:
        from fla.ops.simple_gla import chunk_simple_gla

        o = chunk_simple_gla(q, k, v, g=decay[..., 0].transpose(1, 2).contiguous(), scale=1.0)[0]
    else:
        from fla.ops.gla import chunk_gla

        o = chunk_gla(q, k, v, decay.transpose(1, 2).contiguous(), scale=1.0)[0]
    return o.transpose(1, 2)


class Scan(nn.Module):
    def __init__(self, o, layer):
        super().__init__()
        self.o, self.entry = o, o.entries[layer % len(o.entries)]
        keys = o.size * o.heads
        self.qkv, self.out = linear(o.width, 3 * keys, True), linear(o.width, o.width, True)
        if o.rotary and ("features" in self.entry or self.dense()):
            angles = torch.arange(o.segment)[:, None] * o.rotary ** (-torch.arange(0, o.size, 2) / o.size)
            self.register_buffer("turns", torch.stack([angles.cos(), angles.sin()]).to(o.dtype), persistent=False)
        if "features" in self.entry:
            from scan import projection

            rows = projection(layer, self.entry["count"], o.size)
            rows = rows.unflatten(1, (-1, 2)).mT.flatten(1)  # pairs that rotate are halves here
            self.register_buffer("rows", rows.to(self.out.weight.device, o.dtype), persistent=False)
        if self.dense() or "features" in self.entry:
            return
        if self.entry.get("convolution"):
            self.convolution = nn.Parameter(torch.zeros(3 * keys, self.entry["convolution"]))
        if self.entry["decay"] == "head":
            self.decay, self.decay_bias = linear(o.width, o.heads), nn.Parameter(torch.zeros(o.heads))
            self.decay_rate = nn.Parameter(torch.zeros(o.heads))
        else:
            self.decay_low, self.decay = linear(o.width, 16), linear(16, keys)
            self.decay_bias = nn.Parameter(torch.zeros(keys))
        if self.entry["form"] == "delta":
            self.beta = linear(o.width, o.heads)
        self.gate, self.norm = linear(o.width, o.width), nn.Parameter(torch.ones(o.size))

    def dense(self):
        return self.entry.get("kind") == "attention"

    def mask(self, n):
        return None

    def turned(self, x):
        cos, sin = self.turns
        a, b = F.rms_norm(x, (x.shape[-1],), eps=1e-6).chunk(2, -1)
        return torch.cat([a * cos - b * sin, a * sin + b * cos], -1).to(x.dtype)

    def convolved(self, x):
        width, n = self.convolution.shape[1], x.shape[1]
        before = F.pad(x, (0, 0, width - 1, 0))
        return F.silu(sum(self.convolution[:, j] * before[:, j : j + n] for j in range(width))).to(x.dtype)

    def features(self, x, stabilise):
        """exp(w x - |x|^2 / 2), less a maximum: of the row for queries, of all for keys."""
        x = x * x.shape[-1] ** -0.25
        exponents = exact(x @ self.rows.T.to(x.dtype)) - (exact(x) ** 2).sum(-1, keepdim=True) / 2
        return (exponents - exponents.detach().amax(stabilise, keepdim=True)).exp().to(x.dtype)

    def decays(self, x):
        if self.entry["decay"] == "head":
            step = F.softplus(exact(self.decay(x)) + self.decay_bias)
            return (-self.decay_rate.exp() * step).transpose(1, 2)[..., None]
        return split_heads(F.logsigmoid(exact(self.decay(self.decay_low(x))) + self.decay_bias) / 16, self.o.heads)

    def scanned(self, x, q, k, v):
        run, o = self.o.attention == "fla", self.o
        if "features" in self.entry:
            q, k = self.features(self.turned(q), (-1,)), self.features(self.turned(k), (-1, -2))
            return fla_scan(q, k, v, None, None, True) if run else chunks.scan(q, k, v, None, True)
        decay, beta = self.decays(x), None
        if self.entry["form"] == "delta":
            unit = lambda t: (t * torch.rsqrt((exact(t) ** 2).sum(-1, keepdim=True) + o.size * 1e-6)).to(t.dtype)  # noqa: E731
            q, k, beta = unit(q) * o.size**-0.5, unit(k), torch.sigmoid(exact(self.beta(x))).transpose(1, 2)
        else:
            q = q * o.size**-0.5
        if run:
            return fla_scan(q, k, v, decay, beta, False)
        return chunks.scan(q, k, v, decay) if beta is None else chunks.delta(q, k, v, decay, beta)

    def forward(self, x, memory, shared, mask):
        qkv = self.qkv(x)
        qkv = self.convolved(qkv) if hasattr(self, "convolution") else qkv
        q, k, v = (split_heads(t, self.o.heads) for t in qkv.chunk(3, -1))
        if self.dense():
            return self.out(join_heads(F.scaled_dot_product_attention(self.turned(q), self.turned(k), v, is_causal=True))), ()
        y = self.scanned(x, q, k, v)
        if hasattr(self, "gate"):
            y = F.rms_norm(exact(y), y.shape[-1:], self.norm, 1e-6).to(y.dtype)
            return self.out(join_heads(y) * F.silu(self.gate(x))), ()
        return self.out(join_heads(y)), ()


class Scans(Sparse):
    name, forms, parameters = "scan", ["fla", "chunks"], None
    options = dict(model="ssd", batch=0, layers=12)
    tiny = [dict(model=name, context=48, width=16, heads=4, layers=4 if name == "hybrid" else 2, batch=2) for name in MODELS]

    def attention(self, o, layer):
        return Scan(o, layer)

    def complete(self, o):
        if o.model not in MODELS:
            raise SystemExit(f"scan: there is no model '{o.model}'; there are {', '.join(MODELS)}")
        for name, value in dict(context=12288, width=512, heads=8, batch=8).items():
            if not getattr(o, name, 0):
                setattr(o, name, value)
        o.entries, o.rotary = MODELS[o.model], 10000 if o.model in ("performer", "hybrid") else 0
        o.keys, o.size, o.inner = o.width, o.width // o.heads, 4 * o.width
        o.segment, o.memory, o.table = o.context, 0, "none"
        if o.beta2 == 0.999:
            o.beta2, o.decay, o.lr = 0.95, 0.1, 4e-3  # of the recipes
        o.attention = o.attention if o.attention not in (None, "all") else self.forms_of(o)[0]

    def forms_of(self, o):
        return ["fla"] * bool(o.device.startswith("cuda") and importlib.util.find_spec("fla")) + ["chunks"]

    def forms_to_check(self, o):
        return ["chunks"]

    def initialise(self, model):
        super().initialise(model)
        with torch.no_grad():
            for block in model.blocks:
                if hasattr(block.attention, "norm"):
                    block.attention.norm.fill_(1)

    def places(self, o, names):
        """Where some layers rotate, rows of q and k are in another order in all of them, and so are their convolutions'."""
        own = [name for name in names if ".attention." in name and name.split(".")[3] not in ("qkv", "out")]
        found = super().places(o, [name for name in names if name not in own])
        rows = next(which for _, place, which in found if ".qkv." in place)
        for name in own:
            _, layer, _, *rest = name.split(".")
            kind = [*rest, "weight"] if rest in (["convolution"], ["norm"]) else rest
            found.append((f"layers.{layer}.attention.{'.'.join(kind)}", name, rows if rest == ["convolution"] else slice(None)))
        return found

    def reference(self, o):
        from scan import ScanReference

        entries = [{"kind": "attention", "parts": ["dense"], "integration": "merged", "stride": 8} if "kind" in entry else
                   {"kind": "scan", **entry} for entry in o.entries]
        model = {"layers": o.layers, "width": o.width, "heads": o.heads, "rotary_base": o.rotary,
                 "query_key_norm": bool(o.rotary), "positions": "none", "mixers": entries}
        return ScanReference(model, {"context": o.context})


SYSTEM = Scans()
