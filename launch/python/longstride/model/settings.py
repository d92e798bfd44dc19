"""The settings of a decoder: a recipe's `model:`, with what the data add to it.

This folder needs PyTorch alone: `save_pretrained` copies it beside the weights.
"""
import json
import math
import re

PARTS = ("dense", "local", "column", "fixed_block", "fixed_summary")
KINDS = ("decoder", "sparse_transformer")  # two names of one kind
ACTIVATIONS = ("sigmoid_gelu", "relu", "gelu", "geglu")
INTEGRATIONS = ("interleaved", "merged", "multihead")
WINDOWS, RESTS = ("local", "fixed_block"), ("column", "fixed_summary")  # what `merged` joins, one of each
# YAML 1.1, which PyYAML reads, takes 1e-05 for text; a recipe means the number.
NUMBER = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]+)?")
KEYS = {
    "kind", "context", "picture", "layers", "width", "heads", "key_ratio", "feed_forward_ratio", "dropout",
    "embedding_dropout", "inner_dropout", "output_dropout", "positions", "rotary_base", "query_key_norm", "init",
    "init_deviation", "norm", "activation", "attention_bias", "feed_forward_bias", "tied_output", "output_bias",
    "embedding_scale", "attention",
}
LACKING = {"distance": "attention with distances", "memory": "a memory of earlier windows"}


class UserError(ValueError):
    """What the caller can put right, in one sentence."""


class Keys:
    """Takes the keys of a map one by one; `done` refuses any that is left, since ignoring it would change the model."""

    def __init__(self, values, where):
        if not isinstance(values, dict):
            raise UserError(f"{where} is {shown(values)}, but must be a map of keys")
        self.left, self.where = dict(values), where

    def take(self, key, default=None):
        if key not in self.left and default is None:
            raise UserError(f"{self.where} has no key '{key}', which the model needs")
        value = self.left.pop(key, default)
        return default if value is None else value

    def whole(self, key, default=None, least=1, most=1 << 40):
        value = self.take(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise self.wrong(key, value, f"a whole number from {least} to {most}")
        return value

    def number(self, key, default, least, below):
        value = self.take(key, default)
        if isinstance(value, str) and NUMBER.fullmatch(value):
            value = float(value)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value < below:
            raise self.wrong(key, value, f"a number of at least {least:g} and below {below:g}")
        return float(value)

    def flag(self, key, default=False):
        value = self.take(key, default)
        if not isinstance(value, bool):
            raise self.wrong(key, value, "true or false")
        return value

    def choice(self, key, names, default=None):
        value = self.take(key, default)
        if value not in names:
            raise self.wrong(key, value, "one of " + ", ".join(names))
        return value

    def wrong(self, key, value, allowed):
        return UserError(f"{self.where}: '{key}' is {shown(value)}, but must be {allowed}")

    def done(self):
        for key in self.left:
            raise UserError(f"{self.where} has a key {shown(key)} that this version of the longstride package does not "
                            "know; use the package of the version that wrote it")


def shown(value):
    """On one short line, whatever it is."""
    text = json.dumps(value, default=repr)
    return text if len(text) <= 80 else text[:77] + "..."


class Pattern:
    """Which keys every query may attend to: `model.attention` of a recipe (docs/develop/numerics.md)."""

    def __init__(self, values, heads, where="model.attention"):
        keys = Keys(values, where)
        self.integration = keys.choice("integration", INTEGRATIONS)
        self.parts = keys.take("parts")
        self.stride = keys.whole("stride", 0, least=0)
        self.window = keys.whole("window", 0, least=0)
        summary = keys.take("summary", [])
        self.summary = list(summary) if isinstance(summary, (list, tuple)) else [summary]
        self.distinct_heads = keys.flag("distinct_heads")
        self.summary_inclusive = keys.flag("summary_inclusive")
        keys.done()
        self.heads = heads
        self.check(keys)

    def check(self, keys):
        known = isinstance(self.parts, (list, tuple)) and self.parts and all(part in PARTS for part in self.parts)
        if not known:
            raise keys.wrong("parts", self.parts, "a list of " + ", ".join(PARTS))
        self.parts = list(self.parts)
        strided = any(part != "dense" and (part != "local" or self.window == 0) for part in self.parts)
        if strided and self.stride == 0:
            raise keys.wrong("stride", 0, f"a positive number of positions for {', '.join(self.parts)}")
        if self.integration == "multihead" and len(self.parts) > self.heads:
            raise keys.wrong("parts", self.parts, f"at most one per head with multihead, {self.heads}")
        if self.integration == "merged" and len(self.parts) > 1:
            windows = [part for part in self.parts if part in WINDOWS]
            rests = [part for part in self.parts if part in RESTS]
            if len(self.parts) != 2 or len(windows) != 1 or len(rests) != 1:
                raise keys.wrong("parts", self.parts, "one part, or one of local and fixed_block with one of column "
                                 "and fixed_summary, with merged")
        if "fixed_summary" not in self.parts:
            return
        whole = all(isinstance(c, int) and not isinstance(c, bool) and 1 <= c <= self.stride for c in self.summary)
        if not whole or len(self.summary) not in (1, self.heads):
            raise keys.wrong("summary", self.summary, f"one width, or one for each of {self.heads} heads, from 1 to "
                             f"the stride {self.stride}")

    def parts_of(self, layer, head):
        """The parts that a head of a layer uses (Eq. 6 to 8)."""
        if self.integration == "interleaved":
            return (self.parts[layer % len(self.parts)],)
        if self.integration == "multihead":
            return (self.parts[head * len(self.parts) // self.heads],)
        return tuple(self.parts)

    def window_of(self):
        return self.window or self.stride + 1

    def sub_block_of(self, head):
        """First residue and width of the positions through which a head summarises."""
        width = self.summary[head if len(self.summary) > 1 else 0]
        index = head % (self.stride // width) if self.distinct_heads else 0
        return self.stride - (index + 1) * width, width

    def to_dict(self):
        made = {"integration": self.integration, "parts": self.parts, "stride": self.stride, "window": self.window,
                "distinct_heads": self.distinct_heads, "summary_inclusive": self.summary_inclusive}
        return {**made, "summary": self.summary} if self.summary else made


class Settings:
    """A recipe's `model:`, and of its data the context and a picture's (rows, columns, channels)."""

    def __init__(self, values, where="model"):
        keys = Keys(values, where)
        for key, what in LACKING.items():
            if key in keys.left:
                raise UserError(f"{where} has '{key}', but this package computes no model with {what}; evaluate and "
                                "sample it by the command longstride")
        self.kind = keys.choice("kind", KINDS)
        self.context = keys.whole("context", most=1 << 24)
        picture = keys.take("picture", ())
        self.layers = keys.whole("layers", most=4096)
        self.width = keys.whole("width", most=65536)
        self.heads = keys.whole("heads", most=4096)
        self.key_ratio = keys.number("key_ratio", 1.0, 0, 64.0000001)
        self.feed_forward_ratio = keys.number("feed_forward_ratio", 4.0, 0, 64.0000001)
        self.dropout = keys.number("dropout", 0.0, 0, 1)
        self.embedding_dropout = keys.number("embedding_dropout", 0.0, 0, 1)
        self.inner_dropout = keys.number("inner_dropout", 0.0, 0, 1)
        self.output_dropout = keys.number("output_dropout", 0.0, 0, 1)
        self.positions = keys.choice("positions", ("attention", "data", "none"), "attention")
        self.rotary_base = keys.number("rotary_base", 0.0, 0, 1e12)
        self.query_key_norm = keys.flag("query_key_norm")
        self.init = keys.choice("init", ("variance", "deviation"), "variance")
        self.init_deviation = keys.number("init_deviation", 0.0, 0, 1e12)
        self.norm = keys.choice("norm", ("pre", "post"), "pre")
        self.activation = keys.choice("activation", ACTIVATIONS, "sigmoid_gelu")
        self.attention_bias = keys.flag("attention_bias", True)
        self.feed_forward_bias = keys.flag("feed_forward_bias", True)
        self.tied_output = keys.flag("tied_output")
        self.output_bias = keys.flag("output_bias")
        self.embedding_scale = keys.flag("embedding_scale")
        self.pattern = Pattern(keys.take("attention"), self.heads, f"{where}.attention")
        keys.done()
        self.picture = tuple(picture) if isinstance(picture, (list, tuple)) else (picture,)
        self.check(keys)

    def check(self, keys):
        if self.picture and (len(self.picture) != 3 or not all(isinstance(n, int) and n > 0 for n in self.picture)
                             or math.prod(self.picture) != self.context):
            raise keys.wrong("picture", self.picture, f"rows, columns and channels of {self.context} bytes")
        if self.width % self.heads != 0:
            raise keys.wrong("heads", self.heads, f"a divisor of the width {self.width}")
        if self.key_size < 1 or self.inner_width < 1:
            raise keys.wrong("key_ratio", self.key_ratio, "large enough for keys of one element, and so must "
                             f"'feed_forward_ratio', {self.feed_forward_ratio:g}")
        if 0 < self.rotary_base <= 1 or (self.rotary_base > 0 and self.key_size % 2 != 0):
            raise keys.wrong("rotary_base", self.rotary_base, "0, or above 1 with keys of an even number of elements, "
                             f"not {self.key_size}")
        if self.positions == "data" and not self.picture:
            raise keys.wrong("positions", "data", "attention or none, except for pictures")
        if self.positions == "attention" and self.pattern.stride < 1:
            raise keys.wrong("positions", "attention", "none for an attention without a stride")

    @property
    def key_size(self):
        return math.floor(self.key_ratio * self.width / self.heads + 0.5)

    @property
    def value_size(self):
        return self.width // self.heads

    @property
    def inner_width(self):
        return math.floor(self.feed_forward_ratio * self.width + 0.5)

    def tables(self):
        """Size, divisor and modulus of every position table: slot i reads row (i // divisor) % modulus."""
        if self.positions == "none":
            return []
        if self.positions == "attention":
            rows = -(-self.context // self.pattern.stride)
            return [(rows, self.pattern.stride, rows), (self.pattern.stride, 1, self.pattern.stride)]
        rows, columns, channels = self.picture
        return [(rows, columns * channels, rows), (columns, channels, columns), (channels, 1, channels)]

    def to_dict(self):
        """What makes equal settings, in JSON's types."""
        made = {"kind": self.kind, "context": self.context, "picture": list(self.picture)}
        for key in sorted(KEYS - set(made) - {"attention"}):
            made[key] = getattr(self, key)
        return {**made, "attention": self.pattern.to_dict()}
