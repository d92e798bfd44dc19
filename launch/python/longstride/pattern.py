"""Which positions attend to which, by the keys of `model.attention` in a recipe."""
import dataclasses
import json
from typing import Sequence, Union

from .model.keys import as_whole


@dataclasses.dataclass(frozen=True)
class Pattern:
    """A pattern of attention. What the names mean is in docs/guide/recipes.md; `layer` chooses the part of an
    interleaved pattern."""

    parts: Sequence[str] = ("dense",)
    integration: str = "interleaved"
    stride: int = 0
    window: int = 0
    summary: Union[int, Sequence[int]] = ()
    distinct_heads: bool = False
    summary_inclusive: bool = False
    layer: int = 0
    direction: str = "past"
    first: int = 0
    block: int = 0
    blocks: int = 0
    shifts: Sequence[int] = ()
    dilation: Union[int, Sequence[int]] = ()
    # The pattern as an operator of PyTorch takes it.
    text: str = dataclasses.field(init=False, repr=False, compare=False)

    def __post_init__(self):
        def fix(name, value):
            object.__setattr__(self, name, value)

        if isinstance(self.parts, str):
            raise ValueError(f"parts is {self.parts!r}, but must be a list of names: [{self.parts!r}]")
        if not isinstance(self.parts, (list, tuple)):
            raise ValueError(f"parts is {self.parts!r}, but must be a list of names")
        fix("parts", tuple(self.parts))
        if not all(_is_name(name) for name in (self.integration, *self.parts)):
            raise ValueError(f"integration is {self.integration!r} and parts {list(self.parts)!r}, but must be names")
        if not _is_name(self.direction):
            raise ValueError(f"direction is {self.direction!r}, but must be past or both")
        for name in ("stride", "window", "layer", "first", "block", "blocks"):
            fix(name, _whole(name, getattr(self, name), getattr(self, name)))
        for name in ("summary", "shifts", "dilation"):
            given = getattr(self, name)
            given = list(given) if isinstance(given, (list, tuple)) else [given]
            fix(name, tuple(_whole(name, given, number) for number in given))
        for name in ("distinct_heads", "summary_inclusive"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name} is {getattr(self, name)!r}, but must be True or False")
        names = [field.name for field in dataclasses.fields(self) if field.init]
        fix("text", json.dumps({name: getattr(self, name) for name in names}))


def _is_name(value):
    """A string that C can have: 0 would end it, and surrogates have no bytes."""
    return isinstance(value, str) and not any(x == "\0" or "\ud800" <= x <= "\udfff" for x in value)


def whole(number):
    """As `as_whole`, of 64 bits."""
    found = as_whole(number)
    return None if found is None or abs(found) >= 2**63 else found


def _whole(name, value, number):
    found = whole(number)
    if found is None:
        raise ValueError(f"{name} is {value!r}, but must be a whole number below 2^63")
    return found
