"""The decoder of the peers: embedding, blocks around an attention that a system chooses, output and loss.

`o` are the options. An attention is a module made of (o, layer); attention(x, memory, shared, mask) gives (y, extra):
`memory` are the layer's remembered rows, `shared` what Model.shared gives to all layers, `mask` what attention.mask(n)
gives, and `extra` is () or (a loss, rows to remember). Row 256 of the embedding is the start of a stream.
"""
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

START = 256


def exact(t):
    """In the type of losses and softmax: float32, or float64 in checks."""
    return t if t.dtype == torch.float64 else t.float()


def product(o, a, b):
    """a b, where one of the three is a matrix of scores or probabilities. With --scores fp32 the forms with matrices keep
    that one and its gradient in float32; TF32 has more digits than bf16, so factors of bf16 lose nothing."""
    if o.scores == "bf16" or o.attention in ("flex", "sdpa", "triton"):
        return a @ b
    with torch.autocast(a.device.type, enabled=False):
        return exact(a) @ exact(b)


def linear(inputs, outputs, bias=False):
    return nn.Linear(inputs, outputs, bias=bias)


def split_heads(t, heads):
    return t.view(*t.shape[:-1], heads, -1).transpose(-3, -2)


def join_heads(t):
    return t.transpose(-3, -2).flatten(-2)


def waves(farthest, width, dtype, device=None):
    """Sinusoids of the distances from `farthest` to 0."""
    distances = torch.arange(farthest, -1, -1, dtype=torch.float64, device=device)
    rates = 10000.0 ** (-torch.arange(0, width, 2, dtype=torch.float64, device=device) / width)
    angles = distances[:, None] * rates
    return torch.cat([angles.sin(), angles.cos()], -1).to(dtype)


ACTIVATIONS = {"relu": F.relu, "gelu": F.gelu, "sigmoid_gelu": lambda z: z * torch.sigmoid(1.702 * z)}


class Block(nn.Module):
    def __init__(self, o, attention):
        super().__init__()
        self.o, self.attention = o, attention
        self.n1, self.n2 = nn.LayerNorm(o.width), nn.LayerNorm(o.width)
        self.f1, self.f2 = linear(o.width, o.inner, True), linear(o.inner, o.width, True)

    def drop(self, x):
        return F.dropout(x, self.o.dropout, self.training) if self.o.dropout > 0 else x

    def feed_forward(self, x):
        active = ACTIVATIONS[self.o.activation](self.f1(x))
        return self.drop(self.f2(active if self.o.drops == "branches" else self.drop(active)))

    def forward(self, x, memory, shared, mask):
        if self.o.norm == "post":
            y, extra = self.attention(x, memory, shared, mask)
            x = self.n1(x + self.drop(y)).to(x.dtype)
            return self.n2(x + self.feed_forward(x)).to(x.dtype), extra
        y, extra = self.attention(self.n1(x).to(x.dtype), memory, shared, mask)
        x = x + self.drop(y)
        return x + self.feed_forward(self.n2(x)), extra


class Model(nn.Module):
    def __init__(self, o, attention):
        super().__init__()
        self.o = o
        self.emb = nn.Embedding(START + 1, o.width)
        self.blocks = nn.ModuleList(Block(o, attention(o, layer)) for layer in range(o.layers))
        self.nf = nn.LayerNorm(o.width) if o.norm == "pre" else None
        self.output = None if o.tied else linear(o.width, 256)
        self.bias = nn.Parameter(torch.zeros(256)) if o.output_bias else None
        if o.table == "sinusoid":
            self.u, self.v = (nn.Parameter(torch.zeros(o.heads, o.width // o.heads)) for _ in range(2))
            self.register_buffer("distances", waves(o.farthest, o.width, o.dtype), persistent=False)
        elif o.table == "learned":
            self.table = nn.Parameter(torch.zeros(o.span, o.width // o.heads))
        elif o.table == "positions":
            self.positions = nn.ModuleList(nn.Embedding(rows, o.width) for rows, _ in o.positions)
            self.register_buffer("rows", torch.stack([index for _, index in o.positions]), persistent=False)

    def drop(self, x):
        return F.dropout(x, self.o.dropout, self.training) if self.o.dropout > 0 and self.o.drops == "all" else x

    def shared(self):
        if self.o.table == "sinusoid":
            return self.u, self.v, self.drop(self.distances)
        return (self.table,) if self.o.table == "learned" else ()

    def logits(self, x):
        weight = self.emb.weight[:256] if self.output is None else self.output.weight
        if not self.o.exact_logits:
            return exact(F.linear(x, weight))
        narrow = (lambda t: t.bfloat16().float()) if self.o.mixed else lambda t: t
        with torch.autocast(x.device.type, enabled=False):  # it would round the logits to bf16
            return F.linear(narrow(x), narrow(weight))

    def forward(self, tokens, targets, memories, reduction="mean"):
        """The loss, and every layer's (input, without its gradient; extra). Targets of -100 are not scored."""
        x, kept, shared = self.emb(tokens), [], self.shared()
        if self.o.table == "positions":
            for table, rows in zip(self.positions, self.rows):
                x = x + table(rows)
        x = self.drop(x * self.o.width**0.5 if self.o.scaled else x).to(self.o.dtype)
        for block, memory in zip(self.blocks, memories):
            given, arguments = x.detach(), (x, memory, shared, block.attention.mask(tokens.shape[1]))
            x, extra = checkpoint(block, *arguments, use_reentrant=False) if self.o.ckpt else block(*arguments)
            kept.append((given, extra))
        logits = self.logits(self.drop(x if self.nf is None else self.nf(x)))
        logits = logits if self.bias is None else logits + self.bias
        return F.cross_entropy(logits.view(-1, 256), targets.flatten(), reduction=reduction), kept


def count(model):
    return sum(p.numel() for p in model.parameters())
