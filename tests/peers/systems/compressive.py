"""Times and trains the Compressive Transformer (Rae et al. 2020) as strong PyTorch.

    compressive [--layers 12] [--width 512] [--heads 8] [--inner 2048] [--segment 512] [--memory 512]
                         [--compressed 512] [--rate 4] [--batch 192] [--attention matrix|sdpa|flex|triton|all] [options below]

The model of recipes/survey/text-8min-compressive.yaml: Transformer-XL, as transformer_xl has it, with a compressed
memory. Each step the oldest segment of the memory becomes segment / rate rows, by a convolution. The loss of attention
reconstruction compares what attention without positions makes of that segment and of those rows, by two calls of
scaled_dot_product_attention, and trains only the convolution.
"""
import torch
import torch.nn.functional as F

from attention import distance
from frame.model import exact, linear, split_heads
from frame.stepping import zeros
from frame.system import System


class CompressiveAttention(distance.DistanceAttention):
    def __init__(self, o, layer):
        super().__init__(o, layer)
        self.compress = linear(o.rate * o.width, o.width)

    def content(self, queries, rows):
        """The result of attention to rows, without positions, a mask, or gradients of its own weights."""
        k, v = (split_heads(t, self.o.heads) for t in F.linear(rows, self.kv.weight.detach()).chunk(2, -1))
        return F.scaled_dot_product_attention(queries, k, v)

    def forward(self, x, memory, shared, mask):
        y, _ = super().forward(x, memory, shared, mask)
        evicted = memory[1][:, : x.shape[1]]
        new = self.compress(evicted.reshape(x.shape[0], -1, self.o.rate * self.o.width))
        queries = split_heads(F.linear(x.detach(), self.q.weight.detach()), self.o.heads)
        with torch.no_grad():
            wanted = self.content(queries, evicted)
        error = exact(self.content(queries, new)) - exact(wanted)
        return y, (error.square().mean(), new.detach())


class Compressive(System):
    name, forms, parameters = "compressive", distance.FORMS, 53665536
    options = {**System.options, "compressed": 512, "rate": 4}
    recipe = dict(lr=3e-4, floor=1e-6, schedule="cosine", warmup=200, clip=0.1, decay=0.0, dropout=0.0, deviation=0.02)
    tiny = dict(layers=3, width=16, heads=2, inner=64, segment=8, memory=16, compressed=4, rate=4, batch=3)

    def attention(self, o, layer):
        return CompressiveAttention(o, layer)

    def complete(self, o):
        o.farthest = o.segment + o.memory + o.compressed - 1
        if o.memory < 1 or o.memory % o.segment or o.segment % o.rate or o.compressed % (o.segment // o.rate):
            raise SystemExit("compressive: --memory must be a multiple of --segment, --segment of --rate, and "
                             "--compressed of --segment / --rate")

    def memory(self, o, attention, batch):
        return [zeros(o, batch, o.compressed), zeros(o, batch, o.memory)]

    def as_recipe(self, o):
        return {"distance": {"table": "sinusoid", "biases": "model"}, "memory": {
            "length": o.memory, "compressed": o.compressed, "rate": o.rate, "compress": "convolution",
            "reconstruction": 1.0, "start": "zeros"}}


SYSTEM = Compressive()
