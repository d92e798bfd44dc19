"""Which positions attend to which, by the keys of `model.attention` in a recipe."""
import dataclasses
import json
from typing import Sequence, Union


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
        fix("summary", tuple(self.summary) if isinstance(self.summary, (list, tuple)) else (self.summary,))
        if not all(_is_name(name) for name in (self.integration, *self.parts)):
            raise ValueError(f"integration is {self.integration!r} and parts {list(self.parts)!r}, but must be names")
        for name in ("stride", "window", "layer"):
            _check_number(name, getattr(self, name), getattr(self, name))
        for width in self.summary:
            _check_number("summary", list(self.summary), width)
        for name in ("distinct_heads", "summary_inclusive"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name} is {getattr(self, name)!r}, but must be True or False")
        names = [field.name for field in dataclasses.fields(self) if field.init]
        fix("text", json.dumps({name: getattr(self, name) for name in names}))


def _is_name(value):
    return isinstance(value, str) and "\0" not in value  # where a string ends in C


def _check_number(name, value, number):
    if not isinstance(number, int) or isinstance(number, bool) or abs(number) >= 2**63:
        raise ValueError(f"{name} is {value!r}, but must be a whole number below 2^63")
