"""The encoder written again in PyTorch: own tokens, attention in both directions, and a head for what rows ask
(docs/develop/numerics.md)."""
import numpy
import torch

import masks
from reference import Reference, per_head

IDS = 260
CLASSIFY = 258


def part_mask(part, attention, head, heads, n):
    """allowed[i, j] of one part in both directions."""
    i, j = numpy.arange(n)[:, None], numpy.arange(n)[None, :]
    if part == "dense":
        return numpy.ones((n, n), dtype=bool)
    stride = attention.get("stride", 0)
    if part == "local":
        return abs(i - j) <= ((attention.get("window", 0) or stride + 1) - 1) // 2
    if part == "fixed_block":
        return i // stride == j // stride
    if part == "fixed_summary":
        c = per_head(attention["summary"], heads)[head]
        return (i >= 0) & (j % stride >= stride - c)
    if part == "column":
        return (i - j) % stride == 0
    raise ValueError(f"unknown part {part!r}")


class EncoderReference(Reference):
    """`objective` as in a recipe. `key` is what a row's masks are drawn with."""

    def __init__(self, model, data, objective):
        model = {"positions": "learned", "tied_output": True, "output_bias": True, **model}
        super().__init__({**model, "positions": "none"}, data)
        self.model, self.objective, self.key = model, objective, (0, 0)
        if model["positions"] == "learned":
            self.positions = [(self.context, lambda i: i)]
        elif model["positions"] == "attention":
            stride = self.attention["stride"]
            self.positions = [(-(-self.context // stride), lambda i: i // stride), (stride, lambda i: i % stride)]

    def shapes(self):
        d, every = self.width, super().shapes()
        shapes = {"embedding.token.weight": (IDS, d)}
        shapes |= {name: shape for name, shape in every.items() if name.startswith("embedding.position")}
        if self.model.get("embedding_norm", False):
            shapes |= {"embedding.norm.weight": (d,), "embedding.norm.bias": (d,)}
        shapes |= {name: shape for name, shape in every.items() if not name.startswith(("embedding.", "output."))}
        if self.objective["kind"] == "classes":
            classes = {"classes.weight": (self.objective["classes"], d)}
            return shapes | classes | ({"classes.bias": (self.objective["classes"],)} if self.model["output_bias"] else {})
        shapes |= {"masked.dense.weight": (d, d), "masked.dense.bias": (d,),
                   "masked.norm.weight": (d,), "masked.norm.bias": (d,)}
        if not self.tied:
            shapes["masked.weight"] = (IDS, d)
        return shapes | ({"masked.bias": (IDS,)} if self.model["output_bias"] else {})

    def allowed(self, layer, n):
        attention = self.attention
        parts, integration = attention["parts"], attention["integration"]

        def of_head(head):
            if integration == "interleaved":
                chosen = [parts[layer % len(parts)]]
            elif integration == "multihead":
                chosen = [parts[head * len(parts) // self.heads]]
            else:
                chosen = parts
            return numpy.logical_or.reduce([part_mask(part, attention, head, self.heads, n) for part in chosen])

        return torch.from_numpy(numpy.stack([of_head(head) for head in range(self.heads)]))

    def hidden(self, p, tokens, keep=None):
        """The output of the blocks, (batch, n, width)."""
        i = torch.arange(tokens.shape[1])
        hidden = self.scale * p["embedding.token.weight"][tokens]
        for t, (_, index) in enumerate(self.positions):
            hidden = hidden + p[f"embedding.position.{t}.weight"][index(i)]
        if "embedding.norm.weight" in p:
            hidden = self.norm(p, "embedding.norm", hidden)
        keep = keep or (lambda what, y, layer=0: y)
        return self.blocks_but_output(p, hidden, keep)

    def blocks_but_output(self, p, hidden, keep):
        """Dropout before the head is the head's."""
        within = lambda what, y, layer=0: y if what == "output" else keep(what, y, layer)
        return self.blocks(p, hidden, lambda x, k: self.attend(p, x, k), within)

    def losses(self, p, tokens, keep=None):
        """Nats of what rows ask, times their weights: (batch, n), 0 where nothing is asked."""
        seed, first = self.key
        drawn = [masks.draw(self.objective, row, seed, first + r) for r, row in enumerate(tokens.numpy())]
        shown, weights = (torch.from_numpy(numpy.stack(part)) for part in zip(*drawn))
        keep = keep or (lambda what, y, layer=0: y)
        hidden = self.hidden(p, shown, keep)
        x = self.linear(p, "masked.dense", hidden)
        x = (torch.nn.functional.gelu(x) if self.activation == "geglu" else self.activate(x))
        x = keep("output", self.norm(p, "masked.norm", x))
        logits = x @ p["embedding.token.weight" if self.tied else "masked.weight"].T + p.get("masked.bias", 0)
        nats = -torch.log_softmax(logits, -1).gather(-1, tokens.long()[..., None])[..., 0]
        return nats * weights.to(x.dtype)
