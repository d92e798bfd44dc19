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
        self.norm = nn.LayerNorm(settings.width, eps=1e-5) if settings.embedding_norm else None

    def forward(self, tokens):
        x = self.scale * self.token(tokens)
        slots = torch.arange(tokens.shape[1], device=tokens.device)
        for table, (divisor, modulus) in zip(self.position, self.index):
            x = x + table(torch.div(slots, divisor, rounding_mode="floor") % modulus)
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
    separate; `scores` what the head makes of them."""

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
            self.add_module(s.objective["kind"], nn.Linear(s.width, s.objective[s.objective["kind"]], bias=s.output_bias))
        self.embedding_dropout = nn.Dropout(s.embedding_dropout)
        self.output_dropout = nn.Dropout(s.output_dropout)

    def forward(self, tokens):
        tokens = checked_tokens(tokens, IDS)
        if tokens.shape[1] > self.settings.context:
            raise UserError(f"the model was given {tokens.shape[1]} positions, but must be given at most its context, "
                            f"{self.settings.context}")
        h = self.embedding_dropout(self.embedding(tokens))
        for layer in self.layers:
            h = layer(h, 0, None)
        return self.final_norm(h) if self.settings.norm == "pre" else h

    def scores(self, tokens):
        """Logits of all ids at every position, (batch, positions, 260); or of the row's classes or labels, (batch,
        answers): tokens then begin with CLASSIFY, unless the objective reads the mean."""
        h, objective = self.forward(tokens), self.settings.objective
        if objective["kind"] == "masked":
            return self.masked(h, self.embedding.token.weight)
        row = h.mean(1) if objective["read"] == "mean" else h[:, 0]
        return getattr(self, objective["kind"])(self.output_dropout(row))
