"""Times and trains Adaptive-Span (Sukhbaatar et al. 2019) as strong PyTorch.

    adaptive_span [--layers 12] [--width 512] [--heads 8] [--inner 2048] [--segment 512] [--span 2048] [--ramp 32]
                           [--mean-span 300] [--trim 0|1] [--batch 192] [--attention matrix|flex|triton|all] [options below]

The model of recipes/survey/text-8min-adaptive.yaml: post-norm, ReLU, a learned span per head and layer, one table of
distances for all heads and layers, Adagrad with two limits on gradients. A position does not attend to itself.
  matrix  the authors' own way: (M, M + L) scores of keys become (M, L) scores of distances by a view, and back
  flex    FlexAttention reads scores of distances, and skips the blocks that are out of a head's reach
  triton  hand-written kernels (attention/relative.py), which have the weights as one more column of queries and table
A weight multiplies a probability by adding its logarithm to the score. With --trim 1, as in the authors' code, memory and
distances are cut to the longest span of the layer, here to the next of a few lengths, because every length is compiled and
captured: spans are read back after every step of a training. Timing sets all spans to --mean-span.
"""
import torch
import torch.nn.functional as F
from torch import nn

from attention import flex
from frame.model import exact, join_heads, linear, product, split_heads
from frame.optimizers import Adagrad
from frame.stepping import Step, pushed, zeros
from frame.system import System

LENGTHS = [64, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192]
AHEAD = 32  # positions by which spans may grow before a length is changed again
LEAST_WEIGHT = 1 / 1024  # below it, a weight is 0


def by_distance(scores):
    """(..., n, n + L) of scores by key as (..., n, L) by descending distance, from L to 1."""
    *rest, n, keys = scores.shape
    return F.pad(scores.flatten(-2), (0, n)).view(*rest, n, keys + 1)[..., : keys - n]


def by_key(weights):
    """The reverse, with 0 elsewhere."""
    *rest, n, length = weights.shape
    return F.pad(weights, (0, n + 1)).flatten(-2)[..., : n * (n + length)].view(*rest, n, n + length)


class SpanAttention(nn.Module):
    def __init__(self, o, layer):
        super().__init__()
        self.o, self.length = o, o.length
        self.q, self.kv, self.out = linear(o.width, o.width), linear(o.width, 2 * o.width), linear(o.width, o.width)
        self.span = nn.Parameter(torch.full((o.heads,), o.mean_span / o.span))

    def mask(self, n):
        if self.o.attention != "flex":
            return None
        reach = (self.span.detach() * self.o.span + self.o.ramp * (1 - LEAST_WEIGHT)).clamp(max=self.length)
        return flex.band(n, n + self.length, 1, reach, self.span.device)

    def log_weights(self):
        """(heads, L), by descending distance."""
        distances = torch.arange(self.length, 0, -1, device=self.span.device)
        weights = ((self.o.ramp + self.span[:, None] * self.o.span - distances) / self.o.ramp).clamp(max=1)
        return weights.clamp(min=LEAST_WEIGHT).log().masked_fill(weights < LEAST_WEIGHT, -torch.inf)

    def forward(self, x, memory, shared, mask):
        length, heads = self.length, self.o.heads
        q = split_heads(self.q(x), heads)
        k, v = (split_heads(t, heads) for t in self.kv(torch.cat([*memory, x], 1)).chunk(2, -1))
        table, scale = shared[0][:length].flip(0).to(q.dtype), q.shape[-1] ** -0.5
        weights = self.log_weights()[:, None]
        if self.o.attention == "flex":
            bias = (scale * (q @ table.T) + weights).to(q.dtype)

            def add(score, b, h, i, j):
                return score + bias[b, h, i, torch.clamp(j - i, 0, length - 1)]

            return self.out(join_heads(flex.attention(q, k, v, add, mask, scale))), ()
        if self.o.attention == "triton":
            from attention import relative

            one = torch.cat([q * scale, torch.ones_like(q[..., :1]), torch.zeros_like(q[..., :7])], -1)
            last = F.pad(self.log_weights().clamp(min=-3e4)[..., None], (0, 7)).to(q.dtype)
            rows = torch.cat([table.expand(heads, -1, -1), last], -1)
            return self.out(join_heads(relative.attention(q, k, v, one, rows, 0, scale))), ()
        scores = by_distance(product(self.o, q, k.transpose(-1, -2))) + product(self.o, q, table.T)
        probabilities = (scale * exact(scores) + weights).softmax(-1)
        if self.o.scores == "bf16":
            probabilities = probabilities.to(v.dtype)  # before they are moved, which then takes half the bytes
        return self.out(join_heads(product(self.o, by_key(probabilities), v).to(v.dtype))), ()


class AdaptiveSpan(System):
    name, forms, parameters = "adaptive_span", ["matrix", "flex", "triton"], 38198112
    options = dict(layers=12, width=512, heads=8, inner=2048, segment=512, span=2048, ramp=32, mean_span=300, trim=1,
                   batch=192)
    recipe = dict(lr=0.008, schedule="constant", floor=0.0, warmup=1000, clip=0.03, tensor_clip=0.03, loss=5e-7,
                  dropout=0.0, deviation=0.0255)
    form = {**System.form, "tied": False, "scaled": False, "table": "learned"}
    tiny = dict(layers=3, width=16, heads=4, inner=64, segment=8, span=16, ramp=4, trim=0, mean_span=0, batch=3, loss=0.02)

    def attention(self, o, layer):
        return SpanAttention(o, layer)

    def complete(self, o):
        o.memory, o.mean_span = o.span, 0 if o.train else o.mean_span
        if not 0 <= o.mean_span <= o.span:
            raise SystemExit("adaptive_span: --mean-span must be from 0 to --span")
        o.length = self.length_for(o, o.mean_span)

    def length_for(self, o, span):
        """Distances that are computed for a span of so many positions."""
        return min([n for n in LENGTHS if n >= span + o.ramp and o.trim] + [o.span])

    def memory(self, o, attention, batch):
        return [zeros(o, batch, attention.length)]

    def optimizer(self, o, model, rate):
        spans = [block.attention.span for block in model.blocks]
        return Adagrad(model, rate, o.clip, o.tensor_clip, after=lambda: [z.detach().clamp_(0, 1) for z in spans])

    def others(self, model):
        o = model.o
        return o.loss * o.span * sum(block.attention.span.mean() for block in model.blocks)

    def wanted(self, model, ahead):
        """The layers' lengths for spans that are longer by `ahead` positions."""
        longest = torch.stack([block.attention.span.detach().max() for block in model.blocks]) * model.o.span
        return [self.length_for(model.o, span + ahead) for span in longest.tolist()]

    def must_change(self, step):
        """Where a span is too long, or all of a layer are much shorter: not at every step of a span about a length."""
        now = [block.attention.length for block in step.model.blocks]
        least, most = self.wanted(step.model, 0), self.wanted(step.model, 2 * AHEAD)
        return any(length < low or length > high for length, low, high in zip(now, least, most))

    def changed(self, step):
        """The same rows, cut or with zeros before them."""
        for block, length in zip(step.model.blocks, self.wanted(step.model, AHEAD)):
            block.attention.length = length
        made = Step(self, step.o, step.model, step.optimizer)
        for memory, old in zip(made.memories, step.memories):
            memory[0].copy_(pushed(memory[0], old[0]))
        step.run = step.memories = None  # frees the old graph before the next is captured
        return made

    def report(self, model):
        spans = torch.stack([block.attention.span.detach() for block in model.blocks]) * model.o.span
        return {"mean_span": round(spans.mean().item(), 1), "longest_span": round(spans.max().item(), 1),
                "lengths": [block.attention.length for block in model.blocks]}

    def as_recipe(self, o):
        span = {"longest": o.span, "ramp": o.ramp, "loss": o.loss}
        return {"distance": {"table": "learned", "shared_table": True, "distances": o.span, "biases": "none", "self": False,
                             "window": o.span + 1, "span": span}, "memory": {"length": o.span, "start": "zeros"}}

    def tiny_span(self, o):
        """Spans of 0.3 to 9.9 positions, with ramps that end before L, and none so near to an end that rounding decides."""
        whole = torch.randint(0, 10, (o.heads,), dtype=torch.float64)
        return (whole + 0.3 + 0.6 * torch.rand(o.heads, dtype=torch.float64)) / o.span


SYSTEM = AdaptiveSpan()
