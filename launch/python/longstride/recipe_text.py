"""Reads the recipe of a run: YAML as Longstride reads it, which is less than PyYAML does."""
import re

from .model.keys import UserError

MOST_CHARACTERS, MOST_VALUES, DEEPEST = 1 << 20, 10000, 16
# Scalars that are no text, by type: how they are written, and their first characters.
TYPES = {"null": (r"~|null|", ["~", "n", ""]), "bool": (r"true|false", list("tf")),
         "int": (r"[-+]?(0|[1-9][0-9]*)", list("-+0123456789")),
         "float": (r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?", list("-+.0123456789"))}


def loader_of(yaml, where):
    """Refuses what makes a small text large (aliases), and takes what looks like a date for text."""
    class Loader(yaml.SafeLoader):
        yaml_implicit_resolvers = {}
        values = depth = 0

        def compose_node(self, parent, index):
            event = self.peek_event()
            if getattr(event, "anchor", None) is not None:  # an alias has one, too
                raise UserError(f"{where}: the recipe has an anchor or alias; recipes have none")
            if getattr(event, "tag", None) not in (None, "!"):
                raise UserError(f"{where}: the recipe has a tag; recipes have none")
            self.values += 1
            self.depth += 1
            if self.values > MOST_VALUES or self.depth > DEEPEST:
                raise UserError(f"{where}: the recipe has more than {MOST_VALUES} values or {DEEPEST} levels; this is "
                                "not a recipe")
            node = super().compose_node(parent, index)
            self.depth -= 1
            return node

        def construct_mapping(self, node, deep=False):
            keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
            if len(set(keys)) != len(node.value):
                raise UserError(f"{where}: the recipe has a key twice, or one that is no word")
            return super().construct_mapping(node, deep)

    for name, (pattern, first) in TYPES.items():
        Loader.add_implicit_resolver(f"tag:yaml.org,2002:{name}", re.compile(f"(?:{pattern})$"), first)
    return Loader


def parse(recipe, where):
    """What a recipe's text holds; `where` is for messages."""
    try:
        import yaml
    except ImportError:
        raise UserError("reading a run needs PyYAML, which this Python lacks: install it, as in pip install pyyaml"
                        ) from None
    if len(recipe) > MOST_CHARACTERS:
        raise UserError(f"{where}: the recipe has more than {MOST_CHARACTERS} characters; this is not a recipe")
    try:
        return yaml.load(recipe, loader_of(yaml, where))
    except UserError:
        raise
    except (yaml.YAMLError, RecursionError, ValueError, OverflowError):
        raise UserError(f"{where}: the recipe is not YAML") from None
