"""Encoders with added global rows and labels of pairs (Ainslie et al. 2020; Shaw et al. 2018) written again in PyTorch: one
attention over all rows, whose mask and labels are drawn pair by pair (docs/develop/numerics.md)."""
import math

import numpy
import torch

import masks
from cases import BERT, attention, encoder
from encoder import EncoderReference
from random_blocks import drawn_blocks

PAD = 257


class GlobalReference(EncoderReference):
    """`group_ends`: of every row, where its groups end; `lengths`: its own positions, of which the others are padding."""

    def __init__(self, config):
        super().__init__(config["model"], config["data"], config["objective"])
        self.globals = {"added": 0, "first": 0, "of": "row", "sees": "all", "projections": "shared",
                        **config["model"].get("global", {})}
        self.ends, self.lengths = config["group_ends"], config.get("lengths")
        self.clip, self.sink = self.attention.get("labels", 0), self.attention.get("sink") == "learned"

    def shapes(self):
        d, h, g = self.width, self.heads, self.globals
        shapes = super().shapes()
        if g["added"] > 0:
            shapes["embedding.global.token.weight"] = (1, d)
            if g["of"] == "row":
                shapes["embedding.global.position.0.weight"] = (g["added"], d)
        relations = 0 if g["added"] == 0 else 2 if g["of"] == "groups" else 1
        for name in (f"layers.{k}.attention" for k in range(self.layers)):
            if self.sink:
                shapes[name + ".sink"] = (h,)
            for part in ("labels", "global_labels"):
                if self.clip > 0 and (part == "labels" or g["added"] > 0):
                    shapes[f"{name}.{part}"] = (2 * self.clip + 1 + relations, h, self.key_size)
            if g["projections"] == "own":
                keys, values = h * self.key_size, h * self.value_size
                shapes |= {name + ".global_query.weight": (keys, d), name + ".global_query.bias": (keys,),
                           name + ".global_key_value.weight": (keys + values, d),
                           name + ".global_key_value.bias": (keys + values,)}
        return shapes

    def pattern(self, layer, n):
        """allowed[head, i, j] between positions."""
        if "random_blocks" not in self.attention["parts"]:
            return self.allowed(layer, n).numpy()
        block, i = self.attention["block"], numpy.arange(n)
        blocks, of = -(-n // block), i // block
        seen = numpy.zeros((self.heads, n, n), dtype=bool)
        for head in range(self.heads):
            lists = drawn_blocks(0, layer, head, blocks, self.attention["random"], first=0, last=0)
            for b in range(blocks):
                for c in {*lists[b], b - 1, b, b + 1}:
                    seen[head] |= (of == b)[:, None] & (of == c)[None, :]
        return seen

    def pairs(self, layer, row, n):
        """allowed[head, i, j] and label[i, j] of all rows of a sequence: added ones, then positions."""
        g, k = self.globals, self.clip
        added, length = g["added"], self.lengths[row] if self.lengths else n
        count = added
        if g["of"] == "groups":
            count = min(added, sum(end < length for end in self.ends[row]) + 1)
        first, group = added - count, numpy.full(n, -1)
        for i in range(length):
            number = sum(end <= i for end in self.ends[row])
            group[i] = first + min(number, count - 1)
        allowed = numpy.zeros((self.heads, added + n, added + n), dtype=bool)
        label = numpy.zeros((added + n, added + n), dtype=int)
        padding = numpy.arange(n) >= length
        between = self.pattern(layer, n) & (padding[:, None] == padding[None, :])
        for i in range(added + n):
            for j in range(added + n):
                near = (i < added) == (j < added)
                position, own = max(i, j) - added, min(i, j)
                if near:
                    label[i, j] = max(-k, min(k, j - i)) + k
                else:
                    label[i, j] = 2 * k + 1 + (g["of"] == "groups" and group[position] != own)
                if i >= added and j >= added:
                    allowed[:, i, j] = between[:, i - added, j - added]
                elif j < added:
                    allowed[:, i, j] = j >= first
                else:
                    own_or_all = g["sees"] == "all" or group[position] == own
                    allowed[:, i, j] = position < length and own_or_all
        for i in range(g["first"]):
            allowed[:, i, :] = allowed[:, :, i] = True
        return allowed, label

    def attend(self, p, x, layer):
        batch, rows, _ = x.shape
        h, dk, dv, g = self.heads, self.key_size, self.value_size, self.globals
        added = g["added"] or g["first"]
        name = f"layers.{layer}.attention"
        of_heads = lambda y, size: y.reshape(batch, rows, h, size).transpose(1, 2)
        q, k, v = (of_heads(y, size) for y, size in
                   zip(self.linear(p, name + ".query_key_value", x).split([h * dk, h * dk, h * dv], -1), (dk, dk, dv)))
        gq, gk, gv = q, k, v
        if g["projections"] == "own":
            gq = of_heads(self.linear(p, name + ".global_query", x), dk)
            gk, gv = (of_heads(y, size) for y, size in
                      zip(self.linear(p, name + ".global_key_value", x).split([h * dk, h * dv], -1), (dk, dv)))
        q, k, gq, gk = (self.transform(y) for y in (q, k, gq, gk))
        out = []
        for b in range(batch):
            allowed, label = (torch.from_numpy(a) for a in self.pairs(layer, b, rows - g["added"]))
            score = torch.cat([gq[b, :, :added] @ gk[b].transpose(-1, -2), q[b, :, added:] @ k[b].transpose(-1, -2)], 1)
            if self.clip > 0:
                tables = [p[name + ".global_labels"] if g["added"] > 0 else p[name + ".labels"], p[name + ".labels"]]
                for i in range(rows):
                    vectors = tables[int(i >= added)][label[i]]  # (rows, heads, dk)
                    own = gq if i < added else q
                    score = score.index_put((torch.arange(h)[:, None], torch.tensor(i), torch.arange(rows)[None, :]),
                                            torch.einsum("hd,jhd->hj", own[b, :, i], vectors), accumulate=True)
            score = (score / math.sqrt(dk)).masked_fill(~allowed, -math.inf)
            if self.sink:
                score = torch.cat([score, p[name + ".sink"][:, None, None].expand(h, rows, 1)], -1)
            # A row that sees nothing yields 0: its scores are replaced so that softmax stays finite.
            empty = ~torch.isfinite(score).any(-1, keepdim=True)
            weights = torch.softmax(score.masked_fill(empty, 0.0), -1)[..., :rows].masked_fill(~allowed, 0.0)
            out.append(torch.cat([weights[:, :added] @ gv[b], weights[:, added:] @ v[b]], 1))
        o = torch.stack(out).transpose(1, 2).reshape(batch, rows, h * dv)
        return self.linear(p, name + ".output", o)

    def hidden(self, p, tokens, keep=None):
        i, g = torch.arange(tokens.shape[1]), self.globals
        hidden = self.scale * p["embedding.token.weight"][tokens]
        for t, (_, index) in enumerate(self.positions):
            hidden = hidden + p[f"embedding.position.{t}.weight"][index(i)]
        if g["added"] > 0:
            rows = p["embedding.global.token.weight"].expand(g["added"], -1)
            rows = rows + p["embedding.global.position.0.weight"] if g["of"] == "row" else rows
            hidden = torch.cat([rows.expand(len(tokens), -1, -1), hidden], 1)
        if "embedding.norm.weight" in p:
            hidden = self.norm(p, "embedding.norm", hidden)
        out = self.blocks_but_output(p, hidden, keep or (lambda what, y, layer=0: y))
        return out[:, g["added"]:]

    def losses(self, p, tokens, keep=None):
        rows = []
        for r, row in enumerate(tokens.numpy()):
            length = self.lengths[r] if self.lengths else len(row)
            shown, weights = masks.draw(self.objective, row[:length], 0, r)
            rows.append((numpy.concatenate([shown, numpy.full(len(row) - length, PAD)]),
                         numpy.concatenate([weights, numpy.zeros(len(row) - length)])))
        shown, weights = (torch.from_numpy(numpy.stack(part)) for part in zip(*rows))
        x = self.norm(p, "masked.norm", self.activate(self.linear(p, "masked.dense", self.hidden(p, shown))))
        logits = x @ p["embedding.token.weight"].T + p.get("masked.bias", 0)
        nats = -torch.log_softmax(logits, -1).gather(-1, tokens.long()[..., None])[..., 0]
        return nats * weights.to(x.dtype)


def etc(pattern, of_global, group_ends=((), ()), lengths=None, n=23, **model):
    made = encoder(pattern, {"share": 0.4}, n=n, **({"global": of_global} if of_global else {}), **{**BERT, **model})
    return {**made, "group_ends": [list(ends) for ends in group_ends], **({"lengths": lengths} if lengths else {})}


def window(w, **more):
    return attention("interleaved", ["local"], stride=0, window=w, **more)


# Fewer groups than rows, and more; one of a single position.
ENDS = ((6, 7), (2, 5, 9, 10, 15, 19, 21))
GLOBAL = {
    "etc": etc(window(9, labels=3), {"added": 5, "of": "groups"}, ENDS, positions="none"),
    # Padding, and projections and a sink of the pieces' one softmax.
    "etc_own_group": etc(window(7, labels=2, sink="learned"),
                         {"added": 4, "of": "groups", "sees": "own_group", "projections": "own"}, ENDS, [23, 14]),
    "etc_without_labels": etc(window(5), {"added": 3, "of": "groups", "sees": "own_group"}, ENDS, norm="pre",
                              query_key_norm=True, positions="none"),
    "added_to_every_row": etc(attention("interleaved", ["fixed_block"], stride=6, labels=1), {"added": 2},
                              lengths=[9, 23]),
    "bigbird_etc": etc(attention("merged", ["block_window", "random_blocks"], stride=0, block=64, random=2),
                       {"added": 3}, n=400, layers=1, heads=2),
    "labels_alone": etc(attention("multihead", ["local", "dense"], stride=0, window=9, labels=4), None),
    "labels_of_first_rows": etc(window(7, labels=2), {"first": 2, "projections": "own"}),
}
