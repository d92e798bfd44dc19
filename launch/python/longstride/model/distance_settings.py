"""The settings of attention with distances and of what a model remembers: `model.distance` and `model.memory` of a
recipe (docs/guide/recipes.md)."""
import math

from .keys import Keys

TABLES = ("none", "sinusoid", "learned")
BIASES = ("none", "layer", "model")
COMPRESSIONS = ("mean", "max", "convolution", "dilated", "most_used")
LONGEST = 1 << 30  # positions


class Span:
    """How far every head looks, learned (Sukhbaatar et al. 2019). `loss` is what training adds per position."""

    def __init__(self, values, where):
        keys = Keys(values, where)
        self.longest = keys.whole("longest", most=LONGEST)
        self.ramp = keys.whole("ramp", 32, most=LONGEST)
        self.initial = keys.number("initial", 0.0, 0, 1.0000001)
        self.loss = keys.number("loss", 0.0, 0, 1e30)
        keys.done()

    def to_dict(self):
        return {"longest": self.longest, "ramp": self.ramp, "initial": self.initial, "loss": self.loss}


class Distance:
    """Attention with a term of the distance, instead of a pattern."""

    def __init__(self, values, layers, heads, where="model.distance"):
        keys = Keys(values, where)
        self.table = keys.choice("table", TABLES)
        self.shared_table = keys.flag("shared_table")
        self.distances = keys.whole("distances", 0, least=0, most=LONGEST)
        self.biases = keys.choice("biases", BIASES, "layer")
        self.window = self.of_layers(keys, "window", layers)
        self.dilation = self.of_layers(keys, "dilation", layers)
        self.dilated_heads = keys.whole("dilated_heads", 0, least=0, most=heads)
        self.self = keys.flag("self", True)
        self.dropout = keys.number("dropout", 0.0, 0, 1)
        self.table_dropout = keys.number("table_dropout", 0.0, 0, 1)
        span = keys.take("span", {})
        self.span = Span(span, f"{where}.span") if span else None
        keys.done()
        self.check(keys)

    @staticmethod
    def of_layers(keys, key, layers):
        """A list of one number for all layers, or one for each; empty: none. A window of 0 has all keys."""
        values = keys.take(key, [])
        values = list(values) if isinstance(values, (list, tuple)) else [values]
        least = 0 if key == "window" else 1
        whole = all(isinstance(n, int) and not isinstance(n, bool) and least <= n <= LONGEST for n in values)
        if not whole or len(values) not in (0, 1, layers):
            raise keys.wrong(key, values, f"a positive whole number for all layers, or one for each of {layers}")
        return values

    def check(self, keys):
        if self.table == "learned" and self.distances == 0:
            raise keys.wrong("distances", 0, "the number of rows of a learned table")
        if self.table == "none" and self.distances > 0:
            raise keys.wrong("distances", self.distances, "0 with table: none")
        if self.shared_table and self.table != "learned":
            raise keys.wrong("shared_table", True, "false, except with table: learned")
        if not self.self and 1 in self.window:
            raise keys.wrong("window", self.window, "2 or more with self: false")

    @property
    def first(self):
        """The smallest distance at which a position attends."""
        return 0 if self.self else 1

    def window_of(self, layer):
        """Keys of a query, itself included; 0: all."""
        return self.window[layer if len(self.window) > 1 else 0] if self.window else 0

    def dilation_of(self, layer, head):
        if head >= self.dilated_heads or not self.dilation:
            return 1
        return self.dilation[layer if len(self.dilation) > 1 else 0]

    def to_dict(self):
        made = {key: getattr(self, key) for key in (
            "table", "shared_table", "distances", "biases", "window", "dilation", "dilated_heads", "self", "dropout",
            "table_dropout")}
        return {**made, "span": self.span.to_dict()} if self.span else made


class Memory:
    """What every layer remembers of earlier windows: its inputs, and rows that were made of those that left."""

    def __init__(self, values, context, where="model.memory"):
        keys = Keys(values, where)
        self.length = keys.whole("length", most=LONGEST)
        self.start = keys.choice("start", ("empty", "zeros"), "empty")
        self.compressed = keys.whole("compressed", 0, least=0, most=LONGEST)
        self.rate = keys.whole("rate", 0, least=0, most=LONGEST)
        self.compress = keys.choice("compress", COMPRESSIONS, "convolution")
        self.reconstruction = keys.number("reconstruction", 1.0, 0, 1e30)
        keys.done()
        self.check(keys, context)

    def check(self, keys, context):
        if self.compressed == 0:
            return
        if self.length % context != 0:
            raise keys.wrong("length", self.length, f"a multiple of the context, {context}, before a compressed memory")
        if self.rate == 0 or context % self.rate != 0:
            raise keys.wrong("rate", self.rate, f"a divisor of the context, {context}")
        if self.compressed < context // self.rate:
            raise keys.wrong("compressed", self.compressed, f"at least {context // self.rate}, the rows that a window "
                             "becomes")

    @property
    def rows(self):
        return self.compressed + self.length

    def reach(self, context, layers):
        """How many bytes before a window can change its losses; infinite where any row may stay for ever.

        A layer above remembers what whole windows have made. The first position reads the byte before it.
        """
        if self.compressed > 0 and self.compress == "most_used":
            return math.inf
        positions = self.length + self.rate * self.compressed
        return (layers - 1) * -(-positions // context) * context + positions + 1

    @property
    def learns_to_compress(self):
        return self.compressed > 0 and self.compress in ("convolution", "dilated")

    def to_dict(self):
        return {key: getattr(self, key) for key in ("length", "start", "compressed", "rate", "compress",
                                                    "reconstruction")}
