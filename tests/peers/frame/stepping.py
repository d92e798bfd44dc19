"""A training step of a model that remembers: batch, memories, micro-batches, and their CUDA graph."""
import torch

from frame.model import START
from frame.timing import captured, release


def autocast(o):
    return torch.autocast(o.device, torch.bfloat16, enabled=o.mixed, cache_enabled=not o.graph)


def zeros(o, batch, rows):
    return torch.zeros(batch, rows, o.width, device=o.device, dtype=o.dtype)


def pushed(memory, new):
    """The last rows of [memory | new], as many as memory has."""
    rows = memory.shape[1]
    return new[:, -rows:] if rows <= new.shape[1] else torch.cat([memory, new], 1)[:, -rows:]


@torch.no_grad()
def remember(memories, kept):
    """Keeps what Model.forward gives, for the next segment."""
    for memory, (given, extra) in zip(memories, kept):
        for t, new in zip(memory, [*(extra[1:] if extra else ()), given]):
            t.copy_(pushed(t, new))


class Step:
    """Trains `model` one step per call of run(). system.others(model): the losses that do not depend on the batch."""

    def __init__(self, system, o, model, optimizer):
        self.system, self.o, self.model, self.optimizer = system, o, model, optimizer
        self.tokens, self.targets = (torch.zeros(o.batch, o.segment, dtype=torch.long, device=o.device) for _ in range(2))
        self.memories = system.memories(o, model, o.batch)
        self.loss = torch.zeros((), device=o.device, dtype=torch.float64 if o.dtype == torch.float64 else torch.float32)
        self.run = self.whole

    def random(self):
        for t in (self.tokens, self.targets):
            t.copy_(torch.randint(0, 256, t.shape, device=t.device))
        return self

    def feed(self, tokens, targets):
        self.tokens.copy_(tokens)
        self.targets.copy_(targets)

    def forget_rows(self):
        """At the start of streams."""
        for memory in self.memories:
            for t in memory:
                t.zero_()

    def gradients(self, remembers=True):
        """Adds those of the mean over the batch. Every micro-batch takes its own rows of the memories."""
        self.loss.zero_()
        o, others = self.o, self.system.others(self.model)
        for first in range(0, o.batch, o.micro):
            cut = slice(first, first + o.micro)
            memories = [[t[cut] for t in memory] for memory in self.memories]
            with autocast(o):
                loss, kept = self.model(self.tokens[cut], self.targets[cut], memories)
            extra = [e[0] for _, e in kept if e]
            share = o.micro / o.batch
            total = share * (loss + sum(extra)) if extra else share * loss
            if first == 0 and others is not None:
                total = total + others
            total.backward()
            self.loss += share * loss.detach()
            if remembers:
                remember(memories, kept)

    def update(self):
        self.gradients()
        self.optimizer.step()

    def whole(self):
        self.update()
        self.optimizer.forget()

    def warm_up(self):
        self.gradients(remembers=False)
        self.optimizer.forget()

    def capture(self):
        """Compiles, and captures if the options say so, without training."""
        self.run = self.whole
        self.optimizer.forget()
        release()
        if self.o.graph:
            self.run = captured(self.update, self.warm_up, times=2)
        else:
            self.warm_up()
        return self

    def state(self):
        """Tensors that a step changes."""
        rows = [t for memory in self.memories for t in memory]
        return [*(p.detach() for p in self.model.parameters()), *self.optimizer.state(), *rows]

    def without_effect(self, action):
        """Returns what action() does; afterwards everything is as before."""
        before = [t.clone() for t in self.state()]
        result = action()
        for t, value in zip(self.state(), before):
            t.copy_(value)
        return result


def inputs_of(targets, before, starts):
    """The byte before each target; START at the first one of rows that start a stream."""
    first = torch.full_like(before, START) if starts else before
    return torch.cat([first, targets[:, :-1]], 1)
