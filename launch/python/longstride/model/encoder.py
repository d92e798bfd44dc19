"""The encoder of a run as a torch.nn.Module. Parameters have the names and shapes of `model.safetensors`.

docs/develop/numerics.md says what is computed.
"""
import math

import torch
from torch import nn

from .decoder import Layer, checked_tokens
from .keys import UserError
from .settings import Settings

IDS = 260  # bytes, and the next four
MASK, PAD, CLASSIFY, SEPARATE = range(256, IDS)


class OwnEmbedding(nn.Module):
    """token[own id], which may be scaled, + the rows of the position tables, and a norm behind them."""

    def __init__(self, settings):
        super().__init__()
        self.scale = math.sqrt(settings.width) if settings.embedding_scale else 1.0
        self.token = nn.Embedding(IDS, settings.width)
        self.position = nn.ModuleList([nn.Embedding(size, settings.width) for size, _, _ in settings.tables()])
        self.index = [(divisor, modulus) for _, divisor, modulus in settings.tables()]
        self.types = nn.Embedding(2, settings.width) if settings.types == "groups" else None
        self.norm = nn.LayerNorm(settings.width, eps=1e-5) if settings.embedding_norm else None

    def forward(self, tokens, types=None):
        x = self.scale * self.token(tokens)
        slots = torch.arange(tokens.shape[1], device=tokens.device)
        for table, (divisor, modulus) in zip(self.position, self.index):
            x = x + table(torch.div(slots, divisor, rounding_mode="floor") % modulus)
        if self.types is not None:
            x = x + self.types(torch.zeros_like(tokens) if types is None else types)
        return x if self.norm is None else self.norm(x)


class MaskedHead(nn.Module):
    """norm(f(W h + b)) W_out^T + c, W_out the token table if it is tied."""

    def __init__(self, settings, activate):
        super().__init__()
        self.dense = nn.Linear(settings.width, settings.width)
        self.norm = nn.LayerNorm(settings.width, eps=1e-5)
        self.weight = None if settings.tied_output else nn.Parameter(torch.empty(IDS, settings.width))
        self.bias = nn.Parameter(torch.empty(IDS)) if settings.output_bias else None
        self.activate = nn.functional.gelu if settings.activation == "geglu" else activate

    def forward(self, h, table):
        x = self.norm(self.activate(self.dense(h)))
        return nn.functional.linear(x, table if self.weight is None else self.weight, self.bias)


class Encoder(nn.Module):
    """`module(tokens)` gives hidden rows (batch, positions, width) of ids, in the order of bytes, mask, pad, classify and
    separate; `scores` what the head makes of them. Positions of pad are seen by no other. `types`, of a model that has
    them, are 0 and 1 in turn for the groups of a row; all 0 unless given."""

    def __init__(self, settings):
        super().__init__()
        s = self.settings = settings if isinstance(settings, Settings) else Settings(settings)
        self.embedding = OwnEmbedding(s)
        self.layers = nn.ModuleList([Layer(s, k) for k in range(s.layers)])
        if s.norm == "pre":
            self.final_norm = nn.LayerNorm(s.width, eps=1e-5)
        if s.objective["kind"] == "masked":
            self.masked = MaskedHead(s, self.layers[0].feed_forward.activate)
        else:
            kind = s.objective["kind"]
            answers = 2 if kind == "spans" else s.objective["classes" if kind == "sentences" else kind]
            self.add_module(kind, nn.Linear(s.width, answers, bias=s.output_bias))
        self.embedding_dropout = nn.Dropout(s.embedding_dropout)
        self.output_dropout = nn.Dropout(s.output_dropout)

    def forward(self, tokens, types=None):
        tokens = checked_tokens(tokens, IDS)
        if types is not None:
            if self.embedding.types is None:
                raise UserError("types are given, but this model has none (model.types); leave them out")
            types = checked_tokens(types, 2)
        if tokens.shape[1] > self.settings.context:
            raise UserError(f"the model was given {tokens.shape[1]} positions, but must be given at most its context, "
                            f"{self.settings.context}")
        h = self.embedding_dropout(self.embedding(tokens, types))
        shown = tokens != PAD
        for layer in self.layers:
            h = layer(h, 0, None, shown)
        return self.final_norm(h) if self.settings.norm == "pre" else h

    def scores(self, tokens, types=None):
        """Logits of all ids at every position, (batch, positions, 260); of the row's classes or labels, (batch, answers);
        of where a span begins and ends, (batch, 2, positions), -inf at pad; or of classes of sentences at every position,
        of which the last of a sentence counts, (batch, positions, classes). Tokens begin with CLASSIFY for spans, and for
        classes and labels unless the objective reads the mean, which is that of all positions but pad."""
        h, objective = self.forward(tokens, types), self.settings.objective
        kind, padding = objective["kind"], tokens.to(h.device) == PAD
        if kind == "masked":
            return self.masked(h, self.embedding.token.weight)
        head = getattr(self, kind)
        if kind == "sentences":
            return head(self.output_dropout(h))
        if kind == "spans":
            return head(self.output_dropout(h)).transpose(1, 2).masked_fill(padding[:, None], -math.inf)
        if objective["read"] == "mean":
            row = h.masked_fill(padding[..., None], 0).sum(1) / (~padding).sum(1, keepdim=True)
        else:
            row = h[:, 0]
        return head(self.output_dropout(row))
