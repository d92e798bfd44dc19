"""The class that a peer derives from. `options` are defaults of the command line, `recipe` how its recipe trains the
model, `form` what its blocks are, `parameters` how many the recipe has, `tiny` the options of a check."""
import torch
from torch import nn

from frame.model import START, Model
from frame.optimizers import Adam
from frame.stepping import zeros


class System:
    name, forms, parameters, rounding = "", [], 0, 1e-12
    options = dict(layers=12, width=512, heads=8, inner=2048, segment=512, memory=512, batch=192)
    recipe = dict(lr=3e-4, floor=0.0, schedule="cosine", warmup=0, clip=0.25, decay=0.0, dropout=0.0, deviation=0.02)
    form = dict(norm="post", activation="relu", tied=True, scaled=True, output_bias=True, table="sinusoid", drops="all",
                exact_logits=False)
    tiny = {}

    def attention(self, o, layer):
        """The module of a layer."""
        raise NotImplementedError

    def complete(self, o):
        """Sets what follows from the options, or refuses them."""
        o.farthest = o.segment + o.memory - 1

    def forms_of(self, o):
        """Forms that can run with these options, the one to train with first."""
        return [form for form in self.forms if form != "triton" or o.device.startswith("cuda")]

    def forms_to_check(self, o):
        return self.forms_of(o)

    def results(self, o, weights, text):
        """Losses and gradients of segments, as check.results has them, of a model that is not the frame's; or None."""
        return None

    def initialise(self, model):
        for p in model.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, 0, model.o.deviation)

    def build(self, o):
        with torch.device(o.device):
            model = Model(o, self.attention)
        self.initialise(model)
        if o.compile:
            for block in model.blocks:
                block.compile(dynamic=False)
        return model.to(o.dtype) if o.dtype == torch.float64 else model

    def optimizer(self, o, model, rate):
        return Adam(model, rate, o.clip, o.decay, o.beta2)

    def memory(self, o, attention, batch):
        """The rows that a layer with this attention remembers, oldest first; the last ones are its inputs."""
        return [zeros(o, batch, o.memory)]

    def memories(self, o, model, batch):
        return [self.memory(o, block.attention, batch) for block in model.blocks]

    def others(self, model):
        """A loss that does not depend on the batch."""
        return None

    def stages(self, o):
        """Those of a training: (part of the steps, options that change)."""
        return [(1.0, {})]

    def change(self, model, o):
        """Before a stage."""

    def must_change(self, step):
        """After a step: whether changed(step), another step to capture, must take its place."""
        return False

    def changed(self, step):
        raise NotImplementedError

    def report(self, model):
        """More for the lines of a training."""
        return {}

    def places(self, o, names):
        """[(name in tests/golden, the peer's name, rows of it)] for the peer's parameters; where a name of the reference
        returns, its rows follow."""
        return decoder_places(o, names)

    def reference(self, o):
        """The model of tests/golden."""
        from memory import MemoryReference

        form = {"kind": "decoder", "layers": o.layers, "width": o.width, "heads": o.heads, "positions": "none",
                "feed_forward_ratio": o.inner / o.width, "norm": o.norm, "activation": o.activation, "attention_bias": False,
                "tied_output": o.tied, "output_bias": True, "embedding_scale": o.scaled}
        return MemoryReference({**form, **self.as_recipe(o)}, {"context": o.segment})


EVERY = slice(None)
PARTS = {"n1": "attention_norm", "n2": "feed_forward_norm", "f1": "feed_forward.inner", "f2": "feed_forward.outer",
         "attention.q": "attention.query_key_value", "attention.k": "attention.query_key_value",
         "attention.v": "attention.query_key_value", "attention.kv": "attention.query_key_value",
         "attention.qkv": "attention.query_key_value", "attention.out": "attention.output",
         "attention.r": "attention.distance", "attention.compress": "attention.compress", "attention.span": "attention.span"}
WHOLE = {"output.weight": "output.weight", "bias": "output.bias", "nf.weight": "final_norm.weight",
         "nf.bias": "final_norm.bias", "table": "distance.table", "u": "distance.content_bias", "v": "distance.position_bias"}


def decoder_places(o, names):
    found = [("embedding.start", "emb.weight", START), ("embedding.token.weight", "emb.weight", slice(START))]
    for name in names:
        if name in WHOLE:
            found.append((WHOLE[name], name, EVERY))
        elif name.startswith("positions."):
            found.append((f"embedding.position.{name.split('.')[1]}.weight", name, EVERY))
        elif name.startswith("blocks."):
            _, layer, part = name.split(".", 2)
            part, kind = (part, "") if part in PARTS else (part.rpartition(".")[0], "." + part.rpartition(".")[2])
            found.append((f"layers.{layer}.{PARTS[part]}{kind}", name, EVERY))
    return found


def gathered(places, tensors):
    """The peer's tensors by the names of the reference; biases of distances are rows."""
    pieces = {}
    for name, place, rows in places:
        pieces.setdefault(name, []).append(tensors[place][rows])
    whole = {name: torch.cat(found) if len(found) > 1 else found[0] for name, found in pieces.items()}
    return {name: t.flatten() if name.endswith(("content_bias", "position_bias")) else t for name, t in whole.items()}


@torch.no_grad()
def load(places, parameters, weights):
    """The reverse: copies the reference's tensors into the peer's parameters."""
    done = dict.fromkeys(weights, 0)
    for name, place, rows in places:
        wanted = parameters[place][rows]
        begin, end = done[name], done[name] + len(wanted)
        part = weights[name] if wanted.numel() == weights[name].numel() else weights[name][begin:end]
        parameters[place][rows] = part.reshape(wanted.shape).to(wanted)
        done[name] = end
    if missing := weights.keys() - {name for name, _, _ in places}:
        raise SystemExit(f"the peer lacks {', '.join(sorted(missing))}")
