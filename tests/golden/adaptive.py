"""Adaptive softmax (Grave et al. 2017) and adaptive input (Baevski and Auli 2019) as Transformer-XL has them (Dai et al.
2019): a table for every band of ids, with a projection to the width if later bands have narrower vectors. Tied ends share
tables, and all projections but the first band's.
"""
import torch

IDS = 256


class Adaptive:
    def __init__(self, model):
        given = model["adaptive"]
        self.cutoffs, self.divide = given["cutoffs"], given.get("divide", 1)
        self.width, self.tied = model["width"], model.get("tied_output", False)
        self.clusters = len(self.cutoffs)
        self.bands = list(zip([0, *self.cutoffs], [*self.cutoffs, IDS]))

    def tables(self, name, clusters):
        """The table of all ids, or those of bands with their projections."""
        if self.divide == 1:
            return {f"{name}.weight": (clusters + IDS, self.width)}
        shapes = {}
        for b, (first, end) in enumerate(self.bands):
            narrow = self.width // self.divide**b
            shapes[f"{name}.{b}.weight"] = (end - first + (clusters if b == 0 else 0), narrow)
            shapes[f"{name}.{b}.projection.weight"] = (self.width, narrow)
        return shapes

    def input_shapes(self):
        return self.tables("embedding.token", self.clusters if self.tied else 0)

    def output_shapes(self, biased):
        biases = {f"output.{b}.bias": (end - first + (self.clusters if b == 0 else 0),)
                  for b, (first, end) in enumerate(self.bands) if biased}
        if not self.tied:
            return {**self.tables("output", self.clusters), **biases}
        return biases if self.divide == 1 else {"output.projection.weight": (self.width, self.width), **biases}

    def vectors(self, p, ids, start, begins):
        """What positions read: the vectors of ids, or where `begins` the start vector, which is of the first band."""
        if self.divide == 1:
            table = p["embedding.token.weight"]
            return torch.where(begins[..., None], start, table[len(table) - IDS:][ids])
        flat, found = ids.flatten(), []
        for id_, begin in zip(flat.tolist(), begins.expand(ids.shape).flatten().tolist()):
            b = 0 if begin else sum(id_ >= cutoff for cutoff in self.cutoffs)
            table = p[f"embedding.token.{b}.weight"]
            first, end = self.bands[b]
            vector = start if begin else table[len(table) - (end - first) + id_ - first]
            found.append(p[f"embedding.token.{b}.projection.weight"] @ vector)
        return torch.stack(found).reshape(*ids.shape, self.width)

    def logits(self, p, hidden, b):
        """The clusters and the first band's ids, or the ids of another band."""
        first, end = self.bands[b]
        rows = slice(0, self.clusters + end) if b == 0 else slice(self.clusters + first, self.clusters + end)
        name = "embedding.token" if self.tied else "output"
        if self.divide == 1:
            weight = p[f"{name}.weight"][rows]
        else:
            weight = p[f"{name}.{b}.weight"]
            own = self.tied and b == 0
            hidden = hidden @ p["output.projection.weight" if own else f"{name}.{b}.projection.weight"]
        logits = hidden @ weight.T
        return logits + p[f"output.{b}.bias"] if f"output.{b}.bias" in p else logits

    def log_probabilities(self, p, hidden):
        """Of all ids, (..., 256)."""
        head = torch.log_softmax(self.logits(p, hidden, 0), -1)
        found = [head[..., self.clusters:]]
        for b in range(1, len(self.bands)):
            found.append(head[..., b - 1, None] + torch.log_softmax(self.logits(p, hidden, b), -1))
        return torch.cat(found, -1)


def check_against_pytorch():
    """torch.nn.AdaptiveLogSoftmaxWithLoss has no projection of the first band, and no bias of the others."""
    width, cutoffs, divide = 24, [100, 180, 240], 2
    theirs = torch.nn.AdaptiveLogSoftmaxWithLoss(width, IDS, cutoffs, divide, head_bias=True).double()
    first, count = cutoffs[0], len(cutoffs)
    turned = lambda rows: torch.cat([rows[first:], rows[:first]])  # their clusters are last
    p = {"output.0.bias": turned(theirs.head.bias), "output.0.weight": turned(theirs.head.weight),
         "output.0.projection.weight": torch.eye(width).double()}
    for b in range(count):
        p[f"output.{b + 1}.projection.weight"] = theirs.tail[b][0].weight.T
        p[f"output.{b + 1}.weight"] = theirs.tail[b][1].weight
        p[f"output.{b + 1}.bias"] = torch.zeros(len(theirs.tail[b][1].weight)).double()
    ours = Adaptive({"adaptive": {"cutoffs": cutoffs, "divide": divide}, "width": width})
    assert {name: tuple(rows.shape) for name, rows in p.items()} == ours.output_shapes(True)
    hidden = torch.randn(500, width, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    assert (ours.log_probabilities(p, hidden) - theirs.log_prob(hidden)).abs().max() < 1e-12
