"""The decoder of a run as a torch.nn.Module. Parameters have the names and shapes of `model.safetensors`.

docs/develop/numerics.md says what is computed; equation numbers are those of Child et al. 2019.
"""
import math

import torch
from torch import nn

from .attention import Attention
from .distance import DistanceAttention, Shared
from .keys import UserError, shown
from .sampling import Cache, Request, generate
from .settings import Settings
from .stream import Stream

_is_compiling = getattr(getattr(torch, "compiler", None), "is_compiling", lambda: False)  # which PyTorch 1.13 lacks


def checked_tokens(tokens, below=256):
    """tokens as indices, (batch, positions)."""
    whole = torch.is_tensor(tokens) and not tokens.is_floating_point() and not tokens.is_complex()
    if not whole or tokens.dtype == torch.bool or tokens.dim() != 2 or tokens.numel() == 0:
        what = f"{tokens.dtype} {tuple(tokens.shape)}" if torch.is_tensor(tokens) else type(tokens).__name__
        raise UserError(f"tokens are {what}, but must be a tensor of whole numbers, (batch, positions), not empty")
    # Looking at values takes a GPU's time and would split the graph of torch.compile and torch.export.
    looked_at = tokens.device.type == "cpu" and tokens.dtype != torch.uint8 and not _is_compiling()
    tokens = tokens.long()  # before min and max, which PyTorch lacks for uint16
    if looked_at and not 0 <= int(tokens.min()) <= int(tokens.max()) < below:
        raise UserError(f"tokens go from {int(tokens.min())} to {int(tokens.max())}, but must be "
                        f"{'bytes' if below == 256 else 'ids'}, 0 to {below - 1}")
    return tokens


class Embedding(nn.Module):
    """start or token[previous byte], which may be scaled, + the rows of the position tables (15)."""

    def __init__(self, settings):
        super().__init__()
        width = settings.width
        self.scale = math.sqrt(width) if settings.embedding_scale else 1.0
        self.start = nn.Parameter(torch.empty(width))
        self.token = nn.Embedding(settings.vocabulary, width)
        self.position = nn.ModuleList([nn.Embedding(size, width) for size, _, _ in settings.tables()])
        self.index = [(divisor, modulus) for _, divisor, modulus in settings.tables()]

    def forward(self, previous, first):
        x = self.scale * nn.functional.embedding(previous, torch.cat([self.token.weight, self.start[None]]))
        slots = torch.arange(first, first + previous.shape[1], device=previous.device)
        for table, (divisor, modulus) in zip(self.position, self.index):
            x = x + table(torch.div(slots, divisor, rounding_mode="floor") % modulus)
        return x


class FeedForward(nn.Module):
    """W_2 f(W_1 x + b_1) + b_2 (13)."""

    def __init__(self, settings):
        super().__init__()
        self.activation, bias = settings.activation, settings.feed_forward_bias
        outputs = 2 if self.activation == "geglu" else 1
        self.inner = nn.Linear(settings.width, outputs * settings.inner_width, bias=bias)
        self.outer = nn.Linear(settings.inner_width, settings.width, bias=bias)
        self.dropout = nn.Dropout(settings.inner_dropout)

    def activate(self, z):
        if self.activation == "relu":
            return torch.relu(z)
        if self.activation == "gelu":
            return nn.functional.gelu(z)
        if self.activation == "geglu":
            a, b = z.chunk(2, -1)
            return nn.functional.gelu(a) * b
        return z * torch.sigmoid(1.702 * z)

    def forward(self, x):
        return self.outer(self.dropout(self.activate(self.inner(x))))


class Layer(nn.Module):
    """H + a + b, a = dropout(attention(norm(H))), b = dropout(ff(norm(H + a))) (12 to 14).

    With norm: post, H <- norm(H + dropout(attention(H))), then H <- norm(H + dropout(ff(H))).
    """

    def __init__(self, settings, layer):
        super().__init__()
        self.attention_norm = nn.LayerNorm(settings.width, eps=1e-5)
        self.attention = (DistanceAttention if settings.distance else Attention)(settings, layer)
        self.feed_forward_norm = nn.LayerNorm(settings.width, eps=1e-5)
        self.feed_forward = FeedForward(settings)
        self.dropout = nn.Dropout(settings.dropout)
        self.post_norm = settings.norm == "post"

    def forward(self, h, first, cache, *shown):
        if self.post_norm:
            h = self.attention_norm(h + self.dropout(self.attention(h, first, cache, *shown)))
            return self.feed_forward_norm(h + self.dropout(self.feed_forward(h)))
        h = h + self.dropout(self.attention(self.attention_norm(h), first, cache, *shown))
        return h + self.dropout(self.feed_forward(self.feed_forward_norm(h)))


class Output(nn.Module):
    """Logits W_out h + b (11). A tied output has no weight of its own: W_out is the token table."""

    def __init__(self, settings):
        super().__init__()
        self.weight = None if settings.tied_output else nn.Parameter(torch.empty(settings.vocabulary,
                                                                                           settings.width))
        self.bias = nn.Parameter(torch.empty(settings.vocabulary)) if settings.output_bias else None

    def forward(self, h, table):
        return nn.functional.linear(h, table if self.weight is None else self.weight, self.bias)


class Decoder(nn.Module):
    """`module(tokens)` gives logits: row i predicts the byte at position i from those before it."""

    def __init__(self, settings):
        super().__init__()
        self.settings = settings if isinstance(settings, Settings) else Settings(settings)
        self.start = self.settings.vocabulary  # in place of a token: the vector of the first slot
        self.embedding = Embedding(self.settings)
        if self.settings.distance:
            self.distance = Shared(self.settings)
        self.layers = nn.ModuleList([Layer(self.settings, k) for k in range(self.settings.layers)])
        if self.settings.norm == "pre":
            self.final_norm = nn.LayerNorm(self.settings.width, eps=1e-5)
        self.output = Output(self.settings)
        self.embedding_dropout = nn.Dropout(self.settings.embedding_dropout)
        self.output_dropout = nn.Dropout(self.settings.output_dropout)
        self.initialise()

    @torch.no_grad()
    def initialise(self):
        """The distributions of a run's initial values, drawn from PyTorch's generator."""
        s = self.settings
        tables = max(1, len(self.embedding.position))

        def deviation(fan_in):
            if s.init_deviation > 0:
                return s.init_deviation
            return math.sqrt(0.125 / fan_in) if s.init == "variance" else 0.125 / fan_in

        for name, p in self.named_parameters():
            if name.endswith("norm.weight"):
                p.fill_(1)
            elif name.endswith(("bias", ".sink")):
                p.zero_()
            elif name.endswith(".span"):
                p.fill_(s.distance.span.initial)
            elif name.endswith("distance.table"):
                p.normal_(0, s.init_deviations["distance_table"] or deviation(s.width))
            elif name == "output.weight":
                p.normal_(0, s.init_deviation)
            elif name in ("embedding.start", "embedding.token.weight"):
                p.normal_(0, s.init_deviations["embedding"] or deviation(s.width))
            elif name.startswith("embedding.position."):
                p.normal_(0, deviation(s.width * tables))
            else:
                last = name.endswith(("attention.output.weight", "feed_forward.outer.weight"))
                shrink = math.sqrt(2 * s.layers) if last and s.init_deviation == 0 else 1
                p.normal_(0, deviation(p.shape[-1]) / shrink)

    def slots(self, previous, first=0, cache=None):
        """Logits of slots first, first + 1, ..., of which each holds the byte or token before its position, or `start`.

        `cache` is what earlier calls have read: a Cache of keys and values, or with distances a Stream.
        """
        if self.settings.distance:
            stream = cache or Stream(self, previous.shape[0])
            return torch.cat([self.piece(*piece) for piece in stream.pieces(previous)], 1)
        if previous.shape[1] < 1 or first + previous.shape[1] > self.settings.context:
            raise UserError(f"the model was given {first + previous.shape[1]} positions, but must be given from 1 to "
                            f"its context, {self.settings.context}")
        return self.piece(previous, cache, first)

    def piece(self, previous, cache, first=None):
        """Logits of slots within one window. `cache` is a Segment if `first` is None."""
        first = cache.first if first is None else first
        h = self.embedding_dropout(self.embedding(previous, first))
        for layer in self.layers:
            h = layer(h, first, cache)
        h = self.final_norm(h) if self.settings.norm == "pre" else h
        return self.output(self.output_dropout(h), self.embedding.token.weight)

    def checked(self, tokens):
        return checked_tokens(tokens, self.settings.vocabulary)

    def previous(self, tokens, before=None):
        """What the slots hold: `before` or `start`, then every token but the last."""
        first = tokens.new_full((tokens.shape[0], 1), self.start) if before is None else before[:, None]
        return torch.cat([first, tokens[:, :-1]], 1)

    def forward(self, tokens):
        return self.slots(self.previous(self.checked(tokens)))

    def losses(self, tokens, stream=None, before=None):
        """-log p(byte | the bytes before it) in nats, (batch, positions): what `longstride eval` averages.

        With what a Stream has read, `before` (batch) holds the token before each row, or `start`.
        """
        tokens = self.checked(tokens)
        logits = self.slots(self.previous(tokens, before), 0, stream)
        logits = logits if logits.dtype == torch.float64 else logits.float()
        return -torch.log_softmax(logits, -1).gather(-1, tokens[..., None])[..., 0]

    def loss(self, tokens):
        """What training minimises: the mean of `losses`, and what learned spans and compressors add to it."""
        if not self.settings.distance:
            return self.losses(tokens).mean()
        tokens = self.checked(tokens)
        stream = Stream(self, tokens.shape[0])
        mean = self.losses(tokens, stream).mean()
        return mean + stream.auxiliary_loss()

    def bits_per_byte(self, tokens):
        """`loss` in bits, summed in double and without dropout, as a number."""
        training = self.training
        try:
            with torch.no_grad():
                return float(self.eval().losses(tokens).double().mean()) / math.log(2)
        finally:
            self.train(training)

    def cache(self, batch, length):
        """What `slots` keeps between the calls that read so many rows position by position."""
        if self.settings.distance:
            return Stream(self, batch)
        return Cache(self.settings, batch, length, next(self.parameters()))

    def generate(self, prompt=b"", length=None, count=1, temperature=1.0, top_k=0, top_p=1.0, seed=1):
        """`count` sequences of `length` bytes (default: the context) that begin with the prompt, as a list of bytes. A
        model that remembers writes beyond its context. Of tokens, prompts and sequences are lists of ids.

        `prompt` is bytes, or a list of `count` of equal lengths. The other arguments are the options of
        `longstride sample`, and so are the draws: the same bytes unless rounding decides between two.
        """
        return generate(self, Request(prompt, length, count, temperature, top_k, top_p, seed))

    def extra_repr(self):
        which = self.settings.pattern or self.settings.distance
        return f"context={shown(self.settings.context)}, attention={shown(which.to_dict())}"
