"""Trains for seconds of wall time, which do not include compiling and capturing, and scores the test split."""
import copy
import json
import math
import time

import torch
import torch.nn.functional as F

from frame import text
from frame.model import START, count
from frame.stepping import Step, autocast, inputs_of, remember
from frame.timing import peak_gib, release, synchronize, timed


def say(o, **line):
    print(json.dumps({"model": o.model_name, "attention": o.attention, **line}), flush=True)


def learning_rate(o, step, done):
    """The rate of a step, from 0, when a part `done` of the training is over (docs/develop/numerics.md). Warmup is a number of
    steps, as in the recipes: a peer that takes fewer in its time would diverge with a shorter one. Below 1 it is a part."""
    ramp = 1.0 if o.warmup <= 0 else done / o.warmup if o.warmup < 1 else (step + 1) / o.warmup
    part = 1.0 if o.schedule == "constant" else 0.5 * (1 + math.cos(math.pi * min(done, 1.0)))
    return min(1.0, ramp) * (o.lr * part + o.floor * (1 - part))


def options_of(o, settings):
    changed = copy.copy(o)
    for name, value in settings.items():
        setattr(changed, name, value)
    changed.micro = max(1, min(changed.batch, o.micro * o.segment // changed.segment))
    while changed.batch % changed.micro:
        changed.micro -= 1
    return changed


def shares_of_time(system, o, model, optimizer, stages):
    """Stages are parts of the steps; a step of each is timed, to divide the seconds."""
    if len(stages) == 1:
        return [1.0]
    costs = []
    for part, settings in stages:
        now = options_of(o, settings)
        system.change(model, now)
        step = Step(system, now, model, optimizer).random().capture()
        ms = step.without_effect(lambda: timed(step.run, 3, warm=1)["ms"])
        say(now, stage=len(costs), segment=now.segment, batch=now.batch, micro=now.micro, ms=round(ms, 2))
        costs.append(part * ms)
        del step
        release()
    return [cost / sum(costs) for cost in costs]


class Clock:
    def __init__(self):
        self.seconds, self.since = 0.0, None

    def start(self):
        synchronize()
        self.since = time.perf_counter()

    def stop(self):
        synchronize()
        self.seconds, self.since = self.read(), None

    def read(self):
        return self.seconds + (time.perf_counter() - self.since if self.since is not None else 0.0)


def train(system, o):
    torch.manual_seed(o.seed)
    data = text.sequences(o.train, "train", o.split, o.across)
    model = system.build(o)
    rate = torch.zeros((), device=o.device)
    optimizer = system.optimizer(o, model, rate)
    stages = system.stages(o)
    shares, clock, steps, seen, begun = shares_of_time(system, o, model, optimizer, stages), Clock(), 0, 0, 0.0
    say(o, parameters=count(model), train_bytes=sum(map(len, data)), seconds=o.seconds, shares=[round(s, 4) for s in shares])
    for share, (_, settings) in zip(shares, stages):
        now = options_of(o, settings)
        system.change(model, now)
        source = (text.Streams if o.memory else text.Windows)(data, now.batch, now.segment, o.device)
        step, recent = Step(system, now, model, optimizer).capture(), []
        begun += share
        clock.start()
        while clock.read() < o.seconds * begun:
            tokens, targets, starts = source.next()
            if starts and o.memory:
                step.forget_rows()
            step.feed(tokens, targets)
            rate.fill_(learning_rate(now, steps, clock.read() / o.seconds))
            step.run()
            steps, seen = steps + 1, seen + targets.numel()
            recent.append(step.loss.clone())
            synchronize()
            if system.must_change(step):
                clock.stop()
                step = system.changed(step).capture()
                clock.start()
            if steps % o.every == 0:
                bits = torch.stack(recent).mean().item() / math.log(2)
                say(o, step=steps, seconds=round(clock.read(), 1), bits_per_byte=round(bits, 4), **system.report(model))
                recent = []
        clock.stop()
        peak = peak_gib()
        del step
        optimizer.forget()
        release()
    say(o, trained_seconds=round(clock.seconds, 1), steps=steps, bytes_seen=seen, peak_GiB=round(peak, 1),
        **evaluate(system, options_of(o, stages[-1][1]), model))


def try_stage(system, o):
    """Captures and takes one step of stage o.stage, and scores a window after the last, for what that compiles."""
    stages = system.stages(o)
    now = options_of(o, {**stages[o.stage][1], "windows": 1})
    model = system.build(o)
    system.change(model, now)
    step = Step(system, now, model, system.optimizer(o, model, torch.zeros((), device=o.device))).random().capture()
    step.run()
    scores = evaluate(system, now, model) if o.stage + 1 == len(stages) else {}
    say(now, stage=o.stage, segment=now.segment, batch=now.batch, micro=now.micro, peak_GiB=round(peak_gib(), 1), **scores)


@torch.no_grad()
def evaluate(system, o, model):
    model.eval()
    data = text.sequences(o.train, o.score, o.split, o.across)
    nats, scored = (streams if o.memory else windows)(system, o, model, data)
    return {"split": o.score, "bytes_scored": scored, "bits_per_byte": round(nats / scored / math.log(2), 5)}


def score(model, o, tokens, targets, memories):
    with autocast(o):
        return model(tokens, targets, memories, reduction="sum")


def windows(system, o, model, data):
    """The first o.windows windows of the context, or all, those that `longstride eval --windows` takes."""
    nats, scored = torch.zeros((), device=o.device, dtype=torch.float64), 0
    chosen = [sequence[start : start + length].long() for sequence in data
              for start, length, _ in text.windows_of(len(sequence), o.segment)][: o.windows or None]
    for first in range(0, len(chosen), o.micro):
        targets = torch.full((o.micro, o.segment), -100)
        for row, window in zip(targets, chosen[first : first + o.micro]):
            row[: len(window)] = window
        scored += int((targets >= 0).sum())
        targets = targets.to(o.device)
        tokens = inputs_of(targets, targets[:, :1], True)
        nats += score(model, o, tokens.masked_fill(tokens < 0, 0), targets, system.memories(o, model, o.micro))[0]
    return nats.item(), scored


def streams(system, o, model, data):
    """All of the split, as o.eval_rows streams. Before its own part a stream reads what precedes it, without being
    scored, so that its memory is warm; the first stream starts cold, as the split does."""
    data = torch.cat(data).to(o.device)
    rows = max(1, min(o.eval_rows, len(data) // o.segment))
    part = -(-len(data) // (rows * o.segment))  # windows per row
    lead = min(o.eval_lead, part) if rows > 1 else 0
    memories = system.memories(o, model, rows)
    padded = F.pad(data.long(), (lead * o.segment, rows * part * o.segment - len(data)), value=-100)
    nats, scored = torch.zeros((), device=o.device, dtype=torch.float64), 0
    for s in range(lead + part):
        at = torch.arange(rows, device=o.device)[:, None] * part * o.segment + s * o.segment
        targets = padded[at + torch.arange(o.segment, device=o.device)]
        before = padded[(at - 1).clamp(min=0)]
        tokens = inputs_of(targets, before, s == 0)
        if s == lead:  # the first stream starts here
            tokens[0, 0] = START
            for memory in memories:
                for t in memory:
                    t[0].zero_()
        tokens = tokens.masked_fill(tokens < 0, 0)
        if s < lead:
            targets = torch.full_like(targets, -100)
        loss, kept = score(model, o, tokens, targets, memories)
        remember(memories, kept)
        nats += loss
        scored += int((targets >= 0).sum())
    return nats.item(), scored
