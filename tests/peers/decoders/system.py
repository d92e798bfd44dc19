"""What a script says about its model: the class that it derives from. `options` are defaults of the command line, `recipe`
how recipes/survey trains the model for eight minutes."""
import torch

from decoders.model import Model
from decoders.optimizers import Adam
from decoders.stepping import zeros


class System:
    name, forms, parameters = "", [], 0
    options = dict(layers=12, width=512, heads=8, inner=2048, segment=512, memory=512, batch=192)
    recipe = dict(lr=3e-4, floor=0.0, schedule="cosine", warmup=0, clip=0.25, decay=0.0, dropout=0.0, deviation=0.02)
    form = dict(norm="post", activation="relu", tied=True, table="sinusoid")

    def attention(self, o, layer):
        """The module of a layer."""
        raise NotImplementedError

    def complete(self, o):
        """Sets what follows from the options, or refuses them."""
        o.farthest = o.segment + o.memory - 1

    def build(self, o):
        with torch.device(o.device):
            model = Model(o, self.attention)
        if o.compile:
            for block in model.blocks:
                block.compile(dynamic=False)
        return model.to(o.dtype) if o.dtype == torch.float64 else model

    def optimizer(self, o, model, rate):
        return Adam(model, rate, o.clip, o.decay)

    def memory(self, o, attention, batch):
        """The rows that a layer with this attention remembers, oldest first; the last ones are its inputs."""
        return [zeros(o, batch, o.memory)]

    def memories(self, o, model, batch):
        return [self.memory(o, block.attention, batch) for block in model.blocks]

    def others(self, model):
        """A loss that does not depend on the batch."""
        return None

    def stages(self, o):
        """Of training: (part of the steps, options that change)."""
        return [(1.0, {})]

    def change(self, model, o):
        """Before a stage."""

    def must_change(self, step):
        """After a step: whether changed(step), another step to capture, must take its place."""
        return False

    def changed(self, step):
        raise NotImplementedError

    def report(self, model):
        """For the lines of a training."""
        return {}
