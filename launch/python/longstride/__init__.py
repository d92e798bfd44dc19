"""Longstride from Python.

Every name is loaded when it is first used, so that what needs PyTorch, the compiled library or nothing at all does not
need the rest. Where PyTorch is loaded already, the operators are registered at once, for programs that torch.export has
saved.
"""
import importlib
import sys

# name -> the module that has it
_where = {
    "BlockLists": ".bounds",
    "Labels": ".labels",
    "Pattern": ".pattern",
    "UserError": ".model.keys",
    "attention": ".attention_op",
    "bounds_of": ".bounds",
    "distance_attention": ".distance_op",
    "evaluate": ".evaluation",
    "from_transformers": ".exchange",
    "lists_of": ".bounds",
    "load": ".runs",
    "read_split": ".evaluation",
    "register_in_transformers": ".in_transformers",
    "scan": ".scan_op",
    "to_transformers": ".exchange",
}

__all__ = sorted(_where)


def __getattr__(name):
    if name not in _where:
        raise AttributeError(f"module 'longstride' has no attribute {name!r}")
    value = getattr(importlib.import_module(_where[name], __name__), name)
    globals()[name] = value
    return value


def __dir__():
    return sorted(set(globals()) | set(_where))


def _register():
    """Registers the operators with PyTorch."""
    try:
        for name in ("attention", "distance_attention", "scan"):
            importlib.import_module(_where[name], __name__)
    except Exception:  # a library or PyTorch lacks something, which the first use of a name says
        pass


if "torch" in sys.modules:
    _register()
