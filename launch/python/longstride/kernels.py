"""Which attention a module uses: Longstride's kernels, or the reference of model/patterns.py."""
import torch

from .model import patterns
from .model.keys import UserError, shown

MOST_ON_GPU = 128  # elements of a head


class Kernels:
    """Attention by longstride.attention. `strict` refuses what it does not compute, which is else left to PyTorch."""

    def __init__(self, strict):
        if not hasattr(torch.library, "register_fake"):
            raise ImportError(f"PyTorch {torch.__version__} is older than 2.4")
        from . import library
        from .attention_op import attention
        self.attention, self.has_cuda, self.strict, self.layers = attention, library.has_cuda(), strict, {}

    def problem(self, like, head):
        """Why the kernels do not compute heads of this size in this type on this device; nothing if they do."""
        if like.device.type not in ("cpu", "cuda"):
            return f"has none for {like.device.type}"
        if like.device.type == "cpu":
            return None
        if not self.has_cuda:
            return "has none for GPUs in this build: build it where the CUDA toolkit is installed"
        if like.dtype == torch.float64:
            return "computes torch.float64 on the CPU alone; load with another dtype"
        if head > MOST_ON_GPU:
            return f"takes heads of at most {MOST_ON_GPU} elements on a GPU, and this model's have more"
        return None

    def attend(self, q, k, v, pattern, layer, first=0):
        # A step of generation has fewer queries than keys; it reads every key once, whichever way it is computed.
        if q.shape[2] != k.shape[2]:
            return patterns.attend(q, k, v, pattern, layer, first)
        problem = self.problem(q, max(q.shape[-1], v.shape[-1]))
        if problem is None:
            return self.attention(q, k, v, self.of_layer(pattern, layer))
        if self.strict:
            raise UserError(f"attention is \"kernels\", but the library of kernels {problem}")
        return patterns.attend(q, k, v, pattern, layer, first)

    def of_layer(self, pattern, layer):
        """The pattern as longstride.attention takes it, made once."""
        from .pattern import Pattern
        key = layer % len(pattern.parts) if pattern.integration == "interleaved" else 0
        if key not in self.layers:
            self.layers[key] = Pattern(**pattern.to_dict(), layer=key)
        return self.layers[key]


def use_attention(model, attention):
    """Sets the attention of every layer."""
    if attention not in ("auto", "reference", "kernels"):
        raise UserError(f"attention is {shown(attention)}, but must be auto, reference or kernels")
    if model.settings.distance:
        if attention == "kernels":
            raise UserError("attention is \"kernels\", but they compute none with model.distance; choose auto or "
                            "reference")
        return
    attend = patterns.attend
    if attention != "reference":
        try:
            attend = Kernels(strict=attention == "kernels").attend
        except ImportError as error:
            if attention == "kernels":
                raise UserError(f"attention is \"kernels\", but they cannot be loaded: {error}") from None
    for layer in model.layers:
        layer.attention.attend = attend


def attention_of(model):
    """Which of the two computes a forward pass of the model, where and in the type that it has now."""
    if model.settings.distance:
        return "reference"
    kernels, s = getattr(model.layers[0].attention.attend, "__self__", None), model.settings
    if kernels is None:
        return "reference"
    problem = kernels.problem(next(model.parameters()), max(s.key_size, s.value_size))
    return "reference" if problem and not kernels.strict else "kernels"
