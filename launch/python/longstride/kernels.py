"""Which attention a module uses: Longstride's kernels, or the reference of model/patterns.py."""
from .model import patterns
from .model.settings import UserError, shown


def use_attention(model, attention):
    if attention not in ("auto", "reference", "kernels"):
        raise UserError(f"attention is {shown(attention)}, but must be auto, reference or kernels")
    if attention == "kernels":
        raise UserError("attention is \"kernels\", which this version of the package lacks; leave attention out")
    for layer in model.layers:
        layer.attention.attend = patterns.attend
