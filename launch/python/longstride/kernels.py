"""Which attention a module uses: Longstride's kernels, or the references of model/patterns.py and model/distance.py."""
import torch

from .model import patterns
from .model.keys import UserError, shown
from .model.settings import UNREAD

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

    def usable(self, like, head):
        """Whether the kernels compute it; if they must, an error says why they do not."""
        problem = self.problem(like, head)
        if problem and self.strict:
            raise UserError(f"attention is \"kernels\", but the library of kernels {problem}")
        return problem is None

    def attend(self, q, k, v, pattern, layer, first=0, sink=None):
        # A step of generation has fewer queries than keys; it reads every key once, whichever way it is computed.
        if q.shape[2] != k.shape[2]:
            return patterns.attend(q, k, v, pattern, layer, first, sink)
        if self.usable(q, max(q.shape[-1], v.shape[-1])):
            return self.attention(q, k, v, self.of_layer(pattern, layer), sink=sink)
        return patterns.attend(q, k, v, pattern, layer, first, sink)

    def of_layer(self, pattern, layer):
        """The pattern as longstride.attention takes it, made once."""
        from .pattern import Pattern
        key = layer % len(pattern.parts) if pattern.integration == "interleaved" else 0
        if key not in self.layers:
            # Calls give the sink and the heads of keys; what no part of a loaded model reads is unknown there.
            named = {name: value for name, value in pattern.to_dict().items() if name not in ("sink", "key_heads", *UNREAD)}
            self.layers[key] = Pattern(**named, layer=key)
        return self.layers[key]


class DistanceKernels(Kernels):
    """Attention by longstride.distance_attention, in place of DistanceAttention.mix."""

    def __init__(self, strict):
        super().__init__(strict)
        from .distance_op import distance_attention
        self.attention = distance_attention

    def mix(self, layer, q, part, segment):
        """As layer.mix; None where that must do it: for one query, as above, and for dropout of probabilities."""
        d, s = layer.settings.distance, layer.scores
        dropped = layer.training and d.dropout > 0
        if q.shape[2] == 1 or dropped or not self.usable(q, max(q.shape[-1], part.values.shape[-1])):
            return None
        z = layer.spans()
        table = layer.table_of(int(min(part.keys.shape[2] - 1, s.farthest(z))) + 1, part, segment)
        if table is not None:  # (distances, heads, size), or (distances, size) for all heads
            table = table.permute(2, 0, 1) if len(table) == q.shape[1] else table[0].T
        u, w = (layer.bias_of(name, segment.shared) for name in ("content_bias", "position_bias"))
        return self.attention(
            q, part.keys, part.values, table, *(None if b is None else b[:, 0] for b in (u, w)), z, segment.hidden,
            window=s.window, dilation=s.steps, include_self=d.self, longest_span=d.span.longest if d.span else 0,
            ramp=d.span.ramp if d.span else 0)


def use_attention(model, attention):
    """Sets the attention of every layer."""
    if attention not in ("auto", "reference", "kernels"):
        raise UserError(f"attention is {shown(attention)}, but must be auto, reference or kernels")
    kernels, distance = None, model.settings.distance is not None
    if attention == "kernels" and distance and model.layers[0].attention.counts():
        raise UserError("attention is \"kernels\", but model.memory.compress is most_used, which needs probabilities "
                        "that kernels do not give; choose auto or reference")
    if attention != "reference":
        try:
            kernels = (DistanceKernels if distance else Kernels)(strict=attention == "kernels")
        except ImportError as error:
            if attention == "kernels":
                raise UserError(f"attention is \"kernels\", but they cannot be loaded: {error}") from None
    for number, layer in enumerate(model.layers):
        if distance:
            layer.attention.kernels = kernels and kernels.mix
            continue
        layer.attention.attend = kernels.attend if kernels else patterns.attend
        if kernels:
            kernels.of_layer(model.settings.pattern, number)  # torch.compile cannot follow how it is made


def attention_of(model):
    """Which of the two computes a forward pass of the model, where and in the type that it has now."""
    attention, s = model.layers[0].attention, model.settings
    kernels = getattr(attention.kernels if s.distance else attention.attend, "__self__", None)
    if kernels is None or (s.distance and attention.counts()):
        return "reference"
    problem = kernels.problem(next(model.parameters()), max(s.key_size, s.value_size))
    return "reference" if problem and not kernels.strict else "kernels"
