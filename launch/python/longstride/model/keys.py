"""Reads maps of keys, as recipes and config.json have them, and refuses what is wrong in one sentence.

This folder needs PyTorch alone: `save_pretrained` copies it next to the weights.
"""
import json
import operator
import re

# YAML 1.1, which PyYAML reads, takes 1e-05 for text; a recipe means the number.
NUMBER = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]+)?")


class UserError(ValueError):
    """What the caller can put right, in one sentence."""


def as_whole(number):
    """An int from an int or what counts as one, such as NumPy's; None from anything else."""
    try:
        return None if isinstance(number, bool) else operator.index(number)
    except TypeError:
        return None


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
