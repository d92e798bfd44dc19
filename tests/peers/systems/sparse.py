"""The Sparse Transformer (Child et al. 2019), and the house's model of text, as strong PyTorch.

    sparse --model NAME [--attention FORM|all] [options below]

NAME: a key of MODELS, the models of the recipes (of text_8min: recipes/beyond), or small_fixed, small_strided and small_dense.
  flash, triton  FlexAttention with block masks that list full and partial blocks, on kernels of FlashAttention 4 (the
          package flash-attn-4) or of Triton; the fixed pattern reads its summary rows gathered in front of all rows, so that
          no block is mostly masked. Columns are dense causal attention whose heads are a view of the rows, by cuDNN
  longstride  no peer but the same model with longstride.attention (docs/guide/from_pytorch_and_c.md)
  blocked, masked  on a CPU: an expert's forms, and an n x n mask (attention/blocked.py)
On a GPU the first of two is flash for the fixed pattern and for windows of 512 and more, where it is installed and measured to
be faster. bf16 autocast with the residual stream in bf16; the block is compiled, AdamW or Muon batched, and the whole step is
one CUDA graph. `train` takes rate, decay and initial values of the recipes, with a twentieth of the time as warmup.
"""
import functools
import importlib.util
import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask

from attention import flex
from frame.model import join_heads, linear, split_heads
from frame.optimizers import Muon
from frame.system import System

FIXED = dict(parts=["fixed_block", "fixed_summary"], integration="merged", stride=128, summary=32)
DENSE = dict(parts=["dense"], integration="interleaved", stride=128)


def strided(stride, *parts):
    return dict(parts=list(parts or ("local", "column")), integration="interleaved", stride=stride)


AUTHORS = ("column", "local", "local", "local")
TEXT = dict(context=12288, width=512, heads=8, layers=30, batch=8)
PICTURES = dict(context=3072, width=256, heads=2, layers=128, batch=32, feed_forward=2, keys=0.5)
MODELS = {
    "enwik8_fixed": dict(TEXT, pattern=FIXED),
    "enwik8_dense": dict(TEXT, pattern=DENSE),
    "enwik8_strided": dict(TEXT, pattern=strided(128)),
    "cifar_strided": dict(PICTURES, pattern=strided(96, *AUTHORS)),
    "cifar_dense": dict(PICTURES, pattern=dict(DENSE, stride=96)),
    "cifar_fixed": dict(PICTURES, pattern=FIXED),
    "imagenet64": dict(context=12288, width=512, heads=16, layers=48, batch=8, pattern=strided(128, *AUTHORS)),
    "audio65k": dict(context=65536, width=512, heads=16, layers=48, batch=1, pattern=strided(256)),
    "audio262k": dict(context=262144, width=512, heads=8, layers=8, batch=1, feed_forward=3.75, pattern=strided(512)),
    "audio1m": dict(context=1048576, width=256, heads=4, layers=4, batch=1, feed_forward=2.5, pattern=strided(1024)),
    "cifar_strided_rows": dict(PICTURES, pattern=strided(96)),
    "imagenet64_rows": dict(context=12288, width=512, heads=16, layers=48, batch=8, pattern=strided(128)),
    "text_8min": dict(TEXT, layers=12, pattern=dict(FIXED, distinct_heads=True), rotary=10000),
    "small_fixed": dict(context=2048, width=128, heads=4, layers=4, batch=4, pattern=FIXED),
    "small_strided": dict(context=2048, width=128, heads=4, layers=4, batch=4, pattern=strided(64)),
    "small_dense": dict(context=2048, width=128, heads=4, layers=4, batch=4, pattern=dict(DENSE, stride=64)),
}
ORDER = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


@functools.lru_cache(maxsize=None)
def window_mask(n, stride, device):
    return flex.band(n, n, 0, stride, device)


@functools.lru_cache(maxsize=None)
def fixed_mask(n, stride, width, device):
    """Pairs of queries and [summary rows of all strides | all rows]."""
    summaries = n // stride * width

    def allowed(b, h, q, k):
        own = k - summaries
        return ((k < summaries) & (k // width < q // stride)) | ((k >= summaries) & (own // stride == q // stride) & (own <= q))

    return create_block_mask(allowed, 1, 1, n, n + summaries, device=device)  # compiling it would take minutes


def with_summaries(t, stride, width, distinct):
    """The last `width` rows of every stride in front of all rows; distinct: heads take the sub-blocks in turn."""
    batch, heads, n, size = t.shape
    if distinct:
        of_strides = t.view(batch, heads, n // stride, stride // width, width, size)
        head = torch.arange(heads, device=t.device)
        taken = of_strides[:, head, :, stride // width - 1 - head % (stride // width)].permute(1, 0, 2, 3, 4)
    else:
        taken = t.view(batch, heads, n // stride, stride, size)[:, :, :, stride - width :]
    return torch.cat([taken.reshape(batch, heads, n // stride * width, size), t], 2)


def causal_columns(q, k, v, heads, stride):
    """Causal attention in every residue class of rows (batch, n, width); the rows of a class are a view."""
    batch, n, _ = q.shape
    of_classes = lambda t: t.view(batch, n // stride, stride * heads, -1).transpose(1, 2)  # noqa: E731
    with sdpa_kernel(ORDER, set_priority=True):
        o = F.scaled_dot_product_attention(of_classes(q), of_classes(k), of_classes(v), is_causal=True)
    return o.transpose(1, 2).reshape(batch, n, -1)


class SparseAttention(nn.Module):
    def __init__(self, o, layer):
        super().__init__()
        self.o, pattern = o, o.pattern
        merged = pattern["integration"] == "merged"
        self.parts = pattern["parts"] if merged else [pattern["parts"][layer % len(pattern["parts"])]]
        self.sizes = [o.keys, o.keys, o.width]
        self.columns = self.parts == ["column"] and o.attention in ("flash", "triton")
        if self.columns:  # three products, whose rows are whole, so that columns are views
            self.q, self.k, self.v = (linear(o.width, size, True) for size in self.sizes)
        else:
            self.qkv = linear(o.width, sum(self.sizes), True)
        self.out = linear(o.width, o.width, True)
        if o.attention in ("blocked", "masked"):
            from attention import blocked

            form = blocked.Masked if o.attention == "masked" else blocked.blocked(pattern, layer)
            with torch.device("cpu"):
                self.attend = form(pattern, layer, o.heads, o.segment)
            self.attend.to(o.device)
        if o.attention == "longstride":
            import longstride

            chosen = {**pattern, "parts": self.parts}
            self.attend = functools.partial(longstride.attention, pattern=longstride.Pattern(**chosen))
        if o.rotary:
            angles = torch.arange(o.segment)[:, None] * o.rotary ** (-torch.arange(0, o.size, 2) / o.size)
            self.register_buffer("turns", torch.stack([angles.cos(), angles.sin()]).to(o.dtype), persistent=False)

    def mask(self, n):
        if self.o.attention not in ("flash", "triton") or self.columns or self.parts == ["dense"]:
            return None
        stride, device = self.o.pattern["stride"], self.out.weight.device
        if self.parts == ["local"]:
            return window_mask(n, stride, device)
        return fixed_mask(n, stride, self.o.pattern["summary"], device)

    def turned(self, x):
        """Normalised and rotated, whose pairs are a row's halves here."""
        cos, sin = self.turns
        a, b = F.rms_norm(x, (x.shape[-1],), eps=1e-6).chunk(2, -1)
        return torch.cat([a * cos - b * sin, a * sin + b * cos], -1).to(x.dtype)

    def forward(self, x, memory, shared, mask):
        o, pattern = self.o, self.o.pattern
        if self.columns:
            return self.out(causal_columns(self.q(x), self.k(x), self.v(x), o.heads, pattern["stride"])), ()
        q, k, v = (split_heads(t, o.heads) for t in self.qkv(x).split(self.sizes, -1))
        if o.rotary:
            q, k = self.turned(q), self.turned(k)
        if o.attention not in ("flash", "triton"):
            y = self.attend(q, k, v)
        elif mask is None:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            if self.parts != ["local"]:
                k, v = (with_summaries(t, pattern["stride"], pattern["summary"], o.distinct) for t in (k, v))
            y = flex.attention(q, k, v, None, mask, q.shape[-1] ** -0.5, o.attention.upper())
        return self.out(join_heads(y)), ()


class Sparse(System):
    name, forms, parameters = "sparse", ["flash", "triton", "longstride", "blocked", "masked"], None
    options = dict(model="enwik8_fixed", batch=0, layers=0)
    recipe = dict(lr=3.5e-4, schedule="cosine", floor=0.0, warmup=0.05, clip=1.0, decay=0.01, dropout=0.0)
    form = {**System.form, "norm": "pre", "activation": "sigmoid_gelu", "tied": False, "scaled": False, "output_bias": False,
            "drops": "branches"}
    tiny = [dict(model=name, context=48, width=16, heads=4, layers=2, batch=2, pattern={**MODELS[name]["pattern"], **size})
            for name, size in (("enwik8_fixed", dict(stride=8, summary=2)), ("cifar_strided", dict(stride=12)),
                               ("enwik8_dense", {}), ("text_8min", dict(stride=8, summary=2)))]

    def attention(self, o, layer):
        return SparseAttention(o, layer)

    def complete(self, o):
        if o.model not in MODELS:
            raise SystemExit(f"sparse: there is no model '{o.model}'; there are {', '.join(MODELS)}")
        for name, value in {"feed_forward": 4, "keys": 1, "rotary": 0, **MODELS[o.model]}.items():
            if not getattr(o, name, 0):
                setattr(o, name, value)
        o.keys = round(o.keys * o.width) if o.keys <= 1 else o.keys
        o.size, o.inner, o.distinct = o.keys // o.heads, round(o.feed_forward * o.width), o.pattern.get("distinct_heads", False)
        o.segment, o.memory, o.table = o.context, 0, "none" if o.rotary else "positions"
        if not o.rotary:
            i, stride = torch.arange(o.context), o.pattern["stride"]
            o.positions = getattr(o, "positions", None) or [(-(-o.context // stride), i // stride), (stride, i % stride)]
        if o.rotary and o.beta2 == 0.999:
            o.beta2, o.decay, o.lr = 0.95, 0.1, 4e-3  # of recipes/beyond/text-8min.yaml
        o.attention = o.attention if o.attention not in (None, "all") else self.forms_of(o)[0]

    def forms_of(self, o):
        if not o.device.startswith("cuda"):
            from attention import blocked

            able = all(blocked.blocked(o.pattern, layer) for layer in range(o.layers))
            return ["blocked", "masked"] if able else ["masked"]
        installed = importlib.util.find_spec("flash_attn") and importlib.util.find_spec("flash_attn.cute")
        suits = o.pattern["integration"] == "merged" or "local" in o.pattern["parts"] and o.pattern["stride"] >= 512
        return (["flash"] if suits else []) * bool(installed) + ["triton"]

    def forms_to_check(self, o):
        """On a CPU the GPU's forms apply their masks to whole matrices."""
        return ["triton", *self.forms_of(o)]

    def memory(self, o, attention, batch):
        return []

    def optimizer(self, o, model, rate):
        return Muon(model, rate, o.clip, o.decay, o.beta2) if o.rotary else super().optimizer(o, model, rate)

    def initialise(self, model):
        """Standard deviations sqrt(0.125 / fan in), branch outputs divided by sqrt(2 layers), zero logits."""
        with torch.no_grad():
            for name, p in model.named_parameters():
                if p.ndim == 1:
                    p.fill_(1.0 if name.endswith(("n1.weight", "n2.weight", "nf.weight")) else 0.0)
                elif name.startswith("output"):
                    p.zero_()
                else:
                    branch = name.endswith(("out.weight", "f2.weight"))
                    tables = 2 if name.startswith("positions") else 1
                    p.normal_(0, math.sqrt(0.125 / (tables * p.shape[1])) / (math.sqrt(2 * model.o.layers) if branch else 1))

    def report(self, model):
        return {"of": model.o.model}

    def places(self, o, names):
        """The reference rotates pairs of neighbours."""
        found = super().places(o, names)
        if not o.rotary:
            return found
        pair = torch.arange(o.size).view(2, -1).T.flatten()
        whole = (torch.arange(o.heads)[:, None] * o.size + pair).flatten()
        rows = torch.cat([whole, o.keys + whole, torch.arange(2 * o.keys, 2 * o.keys + o.width)])
        return [(name, place, rows if ".qkv." in place else which) for name, place, which in found]

    def reference(self, o):
        from reference import Reference

        model = {"layers": o.layers, "width": o.width, "heads": o.heads, "key_ratio": o.keys / o.width,
                 "feed_forward_ratio": o.inner / o.width, "attention": o.pattern, "rotary_base": o.rotary,
                 "query_key_norm": bool(o.rotary), "positions": "none" if o.rotary else "attention"}
        return Reference(model, {"context": o.context})


SYSTEM = Sparse()
