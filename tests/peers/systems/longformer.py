"""Times and trains Longformer's language model (Beltagy et al. 2020) as strong PyTorch.

    longformer [--layers 12] [--width 512] [--heads 8] [--inner 2048] [--context 12288] [--batch 8]
                        [--window 64,128,...] [--dilation 1,1,...] [--dilated-heads 2] [--attention chunks|flex|triton|all] [options]

The model of recipes/survey/text-8min-longformer.yaml: pre-norm, GELU, tied output with a bias, sinusoids of distances with
biases u and v, a window per layer, and a dilation of the first heads of upper layers. Heads with a dilation of d attend
within d sequences of every d-th position, so that their keys are dense as well.
  chunks  matrices of a chunk of queries and its keys, as Hugging Face's Longformer has them, one-sided, with the term of
          distances shifted by a view
  flex    FlexAttention reads the term by distance; its block mask is the band
  triton  hand-written kernels (attention/relative.py)
`train` takes the recipe's phases; --context, --batch and --window are then those of the last.
"""
import functools

import torch
import torch.nn.functional as F
from torch import nn

from attention import flex
from frame.model import exact, join_heads, linear, product, split_heads
from frame.system import System

WINDOWS = [64, 128, 192, 256, 320, 384, 448, 512, 640, 768, 896, 1024]


def chunk_for(n, window, size):
    """The chunk of queries whose matrices, and whose copies of keys and values, are smallest."""
    def cost(chunk):
        keys = chunk + -(-(window - 1) // chunk) * chunk
        return keys * (1 + 2 * size / chunk)

    return min((c for c in range(1, min(n, 512) + 1) if n % c == 0), key=cost)


def chunks(o, q, k, v, by_distance, scale, chunk=0):
    """Attention to the last w positions, by_distance (..., n, w) from distance w - 1 to 0."""
    batch, heads, n, size = q.shape
    window = by_distance.shape[-1]
    chunk = chunk or chunk_for(n, window, size)
    before = -(-(window - 1) // chunk)  # chunks of keys
    number, keys = n // chunk, (before + 1) * chunk

    def neighbours(t):
        of_chunks = F.pad(t, (0, 0, before * chunk, 0)).view(batch, heads, number + before, chunk, size)
        return torch.cat([of_chunks[:, :, first : first + number] for first in range(before + 1)], 3)

    scores = product(o, q.view(batch, heads, number, chunk, size), neighbours(k).transpose(-1, -2))
    # Row a of a chunk reads column b = a + before * chunk - distance: one column further than the row above.
    rows = F.pad(by_distance.view(batch, heads, number, chunk, window), (before * chunk - window + 1, chunk))
    bias = rows.flatten(-2)[..., : chunk * keys].view(batch, heads, number, chunk, keys)
    a, b = torch.arange(chunk, device=q.device)[:, None], torch.arange(keys, device=q.device)
    distance, first = a + before * chunk - b, torch.arange(number, device=q.device)[:, None, None] * chunk
    seen = (distance >= 0) & (distance < window) & (first - before * chunk + b >= 0)
    probabilities = exact(scale * (scores + bias)).masked_fill(~seen, -torch.inf).softmax(-1)
    return product(o, probabilities, neighbours(v)).to(v.dtype).view(batch, heads, n, size)


def banded(q, k, v, by_distance, scale, mask):
    window = by_distance.shape[-1]

    def add(score, b, h, i, j):
        return score + scale * by_distance[b, h, i, torch.clamp(j - i + (window - 1), 0, window - 1)]

    return flex.attention(q, k, v, add, mask, scale)


@functools.lru_cache(maxsize=None)
def band_mask(n, window, device):
    return flex.band(n, n, 0, window - 1, device)


def strands(t, step):
    """Every step-th position becomes a head of its own: (batch, h, n, size) to (batch, h * step, n / step, size)."""
    batch, heads, n, size = t.shape
    return t.view(batch, heads, n // step, step, size).transpose(2, 3).reshape(batch, heads * step, n // step, size)


def joined(t, step):
    batch, heads, n, size = t.shape
    return t.view(batch, heads // step, step, n, size).transpose(2, 3).reshape(batch, heads // step, n * step, size)


class WindowAttention(nn.Module):
    def __init__(self, o, layer):
        super().__init__()
        self.o, self.window, self.step = o, o.window[layer], o.dilation[layer]
        self.groups = [(slice(0, o.heads), 1)]  # heads, and the step between their keys
        if self.step > 1 and o.dilated_heads > 0:
            self.groups = [(slice(0, o.dilated_heads), self.step), (slice(o.dilated_heads, o.heads), 1)]
        self.q, self.kv = linear(o.width, o.width), linear(o.width, 2 * o.width)
        self.r, self.out = linear(o.width, o.width), linear(o.width, o.width)

    def mask(self, n):
        if self.o.attention != "flex":
            return None
        return [band_mask(n // step, self.window, self.q.weight.device) for _, step in self.groups]

    def forward(self, x, memory, shared, masks):
        (u, v, distances), heads = shared, self.o.heads
        q = split_heads(self.q(x), heads)
        k, value = (split_heads(t, heads) for t in self.kv(x).chunk(2, -1))
        farthest = (self.window - 1) * max(step for _, step in self.groups)
        r = split_heads(self.r(distances[distances.shape[0] - 1 - farthest :]), heads)
        content, position = q + u[:, None].to(q.dtype), q + v[:, None].to(q.dtype)
        outputs = []
        for number, (group, step) in enumerate(self.groups):
            rows = r[group, r.shape[1] - 1 - (self.window - 1) * step :: step]
            if self.o.attention == "triton":
                from attention import relative

                scale, table = q.shape[-1] ** -0.5, rows.repeat_interleave(step, 0)
                given = [strands(t[:, group], step) for t in (content, k, value, position * scale)]
                outputs.append(joined(relative.attention(*given, table, self.window - 1, scale), step))
                continue
            by_distance = strands(product(self.o, position[:, group], rows.transpose(-1, -2)), step)
            arguments = [*(strands(t[:, group], step) for t in (content, k, value)), by_distance, q.shape[-1] ** -0.5]
            y = chunks(self.o, *arguments) if masks is None else banded(*arguments, masks[number])
            outputs.append(joined(y, step))
        return self.out(join_heads(torch.cat(outputs, 1) if len(outputs) > 1 else outputs[0])), ()


class Longformer(System):
    name, forms, parameters = "longformer", ["chunks", "flex", "triton"], 41083648
    options = dict(layers=12, width=512, heads=8, inner=2048, context=12288, batch=8, window=WINDOWS,
                   dilation=[1, 1, 1, 1, 1, 1, 2, 2, 3, 3, 4, 4], dilated_heads=2)
    recipe = dict(lr=6.25e-5, floor=0.0, schedule="constant", warmup=500, clip=0.25, decay=0.01, dropout=0.2,
                  deviation=0.02)
    form = {**System.form, "norm": "pre", "activation": "gelu"}
    # Parts of the steps; contexts and windows are those of the last phase, divided.
    phases = [(4125, 16), (500, 8), (475, 4), (350, 2), (50, 1)]
    tiny = dict(layers=3, width=16, heads=4, inner=64, context=24, segment=24, batch=2, window=[3, 7, 4],
                dilation=[1, 2, 3], dilated_heads=2)

    def attention(self, o, layer):
        return WindowAttention(o, layer)

    def complete(self, o):
        o.segment, o.memory = o.context, 0
        for name in ("window", "dilation"):
            given = getattr(o, name)
            setattr(o, name, given * o.layers if len(given) == 1 else given)
        if {len(o.window), len(o.dilation)} != {o.layers}:
            raise SystemExit("longformer: --window and --dilation need one number, or one per layer")
        if any(o.context % step for step in o.dilation):
            raise SystemExit("longformer: every dilation must divide --context")
        o.farthest = max((w - 1) * step for w, step in zip(o.window, o.dilation))

    def memory(self, o, attention, batch):
        return []

    def stages(self, o):
        whole = sum(steps for steps, _ in self.phases)
        return [(steps / whole, {"segment": o.context // by, "batch": o.batch * by, "lr": o.lr * by,
                                 "window": [w // by for w in o.window]}) for steps, by in self.phases]

    def change(self, model, o):
        for block, window in zip(model.blocks, o.window):
            block.attention.window = window

    def as_recipe(self, o):
        return {"distance": {"table": "sinusoid", "biases": "model", "window": o.window, "dilation": o.dilation,
                             "dilated_heads": o.dilated_heads}}


SYSTEM = Longformer()
