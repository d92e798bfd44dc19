"""The settings of a decoder or an encoder: a recipe's `model:`, with what the data add to it.

This folder needs PyTorch alone: `save_pretrained` copies it next to the weights.
"""
import math

from .distance_settings import Distance, Memory
from .keys import Keys, UserError, shown

PARTS = ("dense", "local", "column", "fixed_block", "fixed_summary", "first", "block_window", "dilated",
         "random_blocks", "shifted_block")
KINDS = ("decoder", "sparse_transformer", "encoder")  # the first two are names of one kind
ACTIVATIONS = ("sigmoid_gelu", "relu", "gelu", "geglu")
INTEGRATIONS = ("interleaved", "merged", "multihead")
ENCODERS = {"embedding_norm": False, "types": "none", "global_first": 0, "global_last": 0, "global_own": False}
ADDED = {"added": 0, "of": "row", "sees": "all", "contrast": 0}  # keys of rows that are added
# Keys of parts that the operator does not compute, and decoders do not have.
UNREAD = ("blocks", "shifts", "random", "draw", "seed", "labels")
STRIDED = ("local", "column", "fixed_block", "fixed_summary")
# Parts that `merged` joins, one of each.
WINDOWS, RESTS = ("local", "fixed_block"), ("column", "fixed_summary", "first")
KEYS = {
    "kind", "context", "vocabulary", "picture", "layers", "width", "heads", "key_ratio", "feed_forward_ratio", "dropout",
    "embedding_dropout", "inner_dropout", "output_dropout", "positions", "rotary_base", "query_key_norm", "init",
    "init_deviation", "init_deviations", "norm", "activation", "attention_bias", "feed_forward_bias", "tied_output",
    "output_bias", "embedding_scale", "embedding_norm", "types", "global", "attention", "distance", "memory", "mixers",
    "adaptive",
}


class Pattern:
    """Which keys every query may attend to: `model.attention` of a recipe (docs/develop/numerics.md)."""

    def __init__(self, values, heads, where="model.attention", direction="past"):
        keys = Keys(values, where)
        self.integration = keys.choice("integration", INTEGRATIONS)
        self.parts = keys.take("parts")
        self.stride = keys.whole("stride", 0, least=0)
        self.window = keys.whole("window", 0, least=0)
        summary = keys.take("summary", [])
        self.summary = list(summary) if isinstance(summary, (list, tuple)) else [summary]
        self.distinct_heads = keys.flag("distinct_heads")
        self.summary_inclusive = keys.flag("summary_inclusive")
        self.first = keys.whole("first", 0, least=0)
        self.block = keys.whole("block", 0, least=0)
        dilation = keys.take("dilation", [])
        self.dilation = list(dilation) if isinstance(dilation, (list, tuple)) else [dilation]
        self.direction = keys.choice("direction", (direction,), direction)
        self.blocks = keys.whole("blocks", 0, least=0, most=4096)
        shifts = keys.take("shifts", {})
        self.random = keys.whole("random", 0, least=0)
        self.draw = keys.choice("draw", ("balanced", "published"), "balanced")
        self.seed = keys.whole("seed", 0, least=0)
        if (labels := keys.take("labels", 0)) != 0:
            raise keys.wrong("labels", labels, "0, as labels run in the longstride command alone")
        self.global_first = self.global_last = 0  # of positions, or with random_blocks of blocks
        self.sink = keys.choice("sink", ("none", "learned"), "none")
        self.key_heads = keys.whole("key_heads", 0, least=0)
        keys.done()
        self.heads = heads
        self.read_shifts(keys, shifts)
        self.check(keys)

    def read_shifts(self, keys, shifts):
        """How many heads have each shift, of which there are as many as blocks."""
        self.shifts = [0] * self.blocks if shifts else []
        for shift, count in (shifts.items() if isinstance(shifts, dict) else [(None, shifts)]):
            whole = str(shift).isdigit() and int(shift) < self.blocks and isinstance(count, int) and 0 <= count
            if not whole:
                raise keys.wrong("shifts", shifts, f"a map from shifts below {self.blocks} to numbers of heads")
            self.shifts[int(shift)] = count

    def shift_of(self, head):
        beyond = 0
        for shift, count in enumerate(self.shifts[:-1]):
            beyond += count
            if head < beyond:
                return shift
        return max(0, len(self.shifts) - 1)

    def check(self, keys):
        if self.key_heads and self.heads % self.key_heads != 0:
            raise keys.wrong("key_heads", self.key_heads, f"0 or a divisor of the {self.heads} heads")
        known = isinstance(self.parts, (list, tuple)) and self.parts and all(part in PARTS for part in self.parts)
        if not known:
            raise keys.wrong("parts", self.parts, "a list of " + ", ".join(PARTS))
        self.parts = list(self.parts)
        strided = any(part in STRIDED and (part != "local" or self.window == 0) for part in self.parts)
        if strided and self.stride == 0:
            raise keys.wrong("stride", 0, f"a positive number of positions for {', '.join(self.parts)}")
        if self.integration == "multihead" and len(self.parts) > self.heads:
            raise keys.wrong("parts", self.parts, f"at most one per head with multihead, {self.heads}")
        if self.integration == "merged" and len(self.parts) > 1:
            windows = [part for part in self.parts if part in WINDOWS]
            rests = [part for part in self.parts if part in RESTS]
            merged = len(self.parts) == 2 and len(windows) == 1 and len(rests) == 1
            if not merged and set(self.parts) not in ({"block_window", "first"}, {"block_window", "random_blocks"}):
                raise keys.wrong("parts", self.parts, "one part, or one of local and fixed_block with one of column, "
                                 "fixed_summary and first, or block_window with first or random_blocks, with merged")
        if "first" in self.parts and self.first == 0:
            raise keys.wrong("first", 0, "a positive number of keys for first")
        if {"block_window", "random_blocks"} & set(self.parts) and self.block == 0:
            raise keys.wrong("block", 0, "a positive number of positions for block_window and random_blocks")
        if "random_blocks" in self.parts and (self.random == 0 or self.integration != "merged"):
            raise keys.wrong("random", self.random, "a positive number of blocks for random_blocks, with merged")
        if "shifted_block" in self.parts and (self.blocks == 0 or sum(self.shifts) != self.heads):
            raise keys.wrong("shifts", self.shifts, f"shifts for all {self.heads} heads, with a number of blocks")
        if "dilated" in self.parts:
            if self.window == 0:
                raise keys.wrong("window", 0, "a positive number of keys for dilated")
            self.check_numbers(keys, "dilation", self.dilation, "distance", "1", math.inf)
        if "fixed_summary" not in self.parts:
            return
        self.check_numbers(keys, "summary", self.summary, "width", f"1 to the stride {self.stride}", self.stride)

    def check_numbers(self, keys, name, numbers, what, allowed, most):
        whole = all(isinstance(x, int) and not isinstance(x, bool) and 1 <= x <= most for x in numbers)
        if not whole or len(numbers) not in (1, self.heads):
            raise keys.wrong(name, numbers, f"one {what}, or one for each of {self.heads} heads, from {allowed}")

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

    def dilation_of(self, head):
        return self.dilation[head if len(self.dilation) > 1 else 0]

    def to_dict(self):
        made = {"integration": self.integration, "parts": self.parts, "stride": self.stride, "window": self.window,
                "distinct_heads": self.distinct_heads, "summary_inclusive": self.summary_inclusive,
                "first": self.first, "block": self.block, "dilation": self.dilation, "direction": self.direction,
                "blocks": self.blocks, "shifts": {str(i): n for i, n in enumerate(self.shifts)}, "random": self.random,
                "draw": self.draw, "seed": self.seed, "labels": 0, "sink": self.sink, "key_heads": self.key_heads}
        return {**made, "summary": self.summary} if self.summary else made


class Settings:
    """A recipe's `model:`, and of its data the context, the vocabulary and a picture's (rows, columns, channels)."""

    def __init__(self, values, where="model"):
        keys = Keys(values, where)
        self.kind = keys.choice("kind", KINDS)
        self.context = keys.whole("context", most=1 << 24)
        self.vocabulary = keys.whole("vocabulary", 256, least=2, most=65535)
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
        encoder = self.kind == "encoder"
        self.positions = keys.choice("positions", ("attention", "data", "learned", "none"),
                                     "learned" if encoder else "attention")
        self.rotary_base = keys.number("rotary_base", 0.0, 0, 1e12)
        self.query_key_norm = keys.flag("query_key_norm")
        self.init = keys.choice("init", ("variance", "deviation"), "variance")
        self.init_deviation = keys.number("init_deviation", 0.0, 0, 1e12)
        deviations = Keys(keys.take("init_deviations", {}), f"{where}.init_deviations")
        self.init_deviations = {key: deviations.number(key, 0.0, 0, 1e12) for key in ("embedding", "distance_table")}
        deviations.done()
        self.norm = keys.choice("norm", ("pre", "post"), "pre")
        self.activation = keys.choice("activation", ACTIVATIONS, "sigmoid_gelu")
        self.attention_bias = keys.flag("attention_bias", True)
        self.feed_forward_bias = keys.flag("feed_forward_bias", True)
        self.tied_output = keys.flag("tied_output", encoder)
        self.output_bias = keys.flag("output_bias", encoder)
        self.embedding_scale = keys.flag("embedding_scale")
        self.embedding_norm = keys.flag("embedding_norm")
        self.types = keys.choice("types", ("none", "groups"), "none")
        self.read_global(keys, where)
        self.objective = keys.take("objective", {}) if encoder else {}
        self.read_attention(keys, where)
        keys.done()
        self.picture = tuple(picture) if isinstance(picture, (list, tuple)) else (picture,)
        self.check(keys)

    def read_global(self, keys, where):
        """Rows that see all and that all see; with random_blocks, blocks of them at both ends."""
        given = Keys(keys.take("global", {}), f"{where}.global")
        self.global_first = given.whole("first", 0, least=0)
        self.global_last = given.whole("last", 0, least=0)
        self.global_own = given.choice("projections", ("shared", "own"), "shared") == "own"
        for key, without in ADDED.items():
            if (value := given.take(key, without)) != without:
                raise given.wrong(key, value, f"{without}, as added rows run in the longstride command alone")
        given.done()

    def read_attention(self, keys, where):
        """A pattern, or distances and what is remembered; the others are None."""
        self.pattern = self.distance = self.memory = None
        if "mixers" in keys.left:
            raise UserError(f"{where}.mixers: lists of mixers, and so scans, run in the longstride command alone; this "
                            "package loads models with attention or distance")
        if "adaptive" in keys.left:
            raise UserError(f"{where}.adaptive: adaptive softmax and input run in the longstride command alone; this "
                            "package loads models with one table of tokens")
        if "distance" not in keys.left:
            direction = "both" if self.kind == "encoder" else "past"
            self.pattern = Pattern(keys.take("attention"), self.heads, f"{where}.attention", direction)
            self.pattern.global_first, self.pattern.global_last = self.global_first, self.global_last
            return
        self.distance = Distance(keys.take("distance"), self.layers, self.heads, f"{where}.distance")
        if "memory" in keys.left:
            self.memory = Memory(keys.take("memory"), self.context, f"{where}.memory")

    def check(self, keys):
        if self.picture and (len(self.picture) != 3 or not all(isinstance(n, int) and n > 0 for n in self.picture)
                             or math.prod(self.picture) != self.context):
            raise keys.wrong("picture", self.picture, f"rows, columns and channels of {self.context} bytes")
        for key, without in ENCODERS.items():
            if self.kind != "encoder" and (value := getattr(self, key)) != without:
                raise keys.wrong(key, value, f"{shown(without)} for a decoder")
        random = self.pattern is not None and "random_blocks" in self.pattern.parts
        if self.global_own and (self.global_first == 0 or random or self.rotary_base > 0 or self.query_key_norm):
            raise keys.wrong("global", {"projections": "own"}, "shared without first rows, with random_blocks, and where "
                             "queries and keys are rotated or normalised")
        if self.global_last and not random:
            raise keys.wrong("global", {"last": self.global_last}, "without last, which random_blocks needs")
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
        if self.positions == "attention" and (self.pattern is None or self.pattern.stride < 1):
            raise keys.wrong("positions", "attention", "none for an attention without a stride")
        if self.init_deviations["distance_table"] > 0 and not (self.distance and self.distance.table == "learned"):
            raise keys.wrong("init_deviations", self.init_deviations, "without distance_table, except with a learned "
                             "table of distances")
        if self.distance and self.distance.table == "sinusoid" and self.width % 2 != 0:
            raise keys.wrong("width", self.width, "even for sines and cosines of distances")

    @property
    def key_size(self):
        return math.floor(self.key_ratio * self.width / self.heads + 0.5)

    @property
    def value_size(self):
        return self.width // self.heads

    @property
    def key_heads(self):
        """Heads of keys and values."""
        return self.pattern.key_heads or self.heads if self.pattern else self.heads

    @property
    def inner_width(self):
        return math.floor(self.feed_forward_ratio * self.width + 0.5)

    def tables(self):
        """Size, divisor and modulus of every position table: slot i reads row (i // divisor) % modulus."""
        if self.positions == "none":
            return []
        if self.positions == "learned":
            return [(self.context, 1, self.context)]
        if self.positions == "attention":
            rows = -(-self.context // self.pattern.stride)
            return [(rows, self.pattern.stride, rows), (self.pattern.stride, 1, self.pattern.stride)]
        rows, columns, channels = self.picture
        return [(rows, columns * channels, rows), (columns, channels, columns), (channels, 1, channels)]

    def to_dict(self):
        """What makes equal settings, in JSON's types."""
        made = {"kind": self.kind, "context": self.context, "picture": list(self.picture)}
        parts = {"attention": self.pattern, "distance": self.distance, "memory": self.memory}
        encoder = self.kind == "encoder"
        others = {"mixers", "adaptive", "global", *(() if encoder else ENCODERS)}  # which the kind's recipe lacks
        for key in sorted(KEYS - set(made) - set(parts) - others):
            made[key] = getattr(self, key)
        if encoder:
            made["global"] = {"first": self.global_first, "last": self.global_last,
                              "projections": "own" if self.global_own else "shared", **ADDED}
        return {**made, **{key: part.to_dict() for key, part in parts.items() if part is not None}}
