"""Compares a peer with tests/golden, which has the models written out densely: losses and gradients of all weights over
segments that follow each other, in float64 and float32, and the shapes of the parameters."""
import argparse
import copy
import json
import math
import pathlib
import sys

import torch

from frame import command
from frame.stepping import Step, inputs_of
from frame.system import gathered, load

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "golden"))
SEGMENTS = 5


def options_of(system, o, **settings):
    made = argparse.Namespace(**{**vars(o), "device": "cpu", "micro": 0, "dropout": 0.0, **settings})
    return command.completed(system, made)


def shapes_agree(system, o):
    full = options_of(system, o, dtype=torch.float32)
    with torch.device("meta"):
        model = system.build(argparse.Namespace(**{**vars(full), "device": "meta"}))
    parameters, shapes = dict(model.named_parameters()), {n: tuple(s) for n, s in system.reference(full).shapes().items()}
    places = system.places(full, parameters)
    sizes, whole = dict.fromkeys(shapes, 0), {name: math.prod(shape) for name, shape in shapes.items()}
    for name, place, rows in places:
        sizes[name] = sizes.get(name, 0) + parameters[place][rows].numel()
    count = sum(p.numel() for p in parameters.values())
    if sizes != whole:
        print(json.dumps({"model": system.name, "sizes": sorted(set(sizes.items()) ^ set(whole.items()))}))
    print(json.dumps({"model": system.name, "parameters": count, "of_the_recipe": system.parameters}))
    return sizes == whole and count == system.parameters


def begins(o, segment):
    return segment == 0 or not o.memory


def results(system, o, weights, text):
    """Losses of SEGMENTS segments and gradients of their sum, as one dictionary of tensors by the reference's names."""
    model = system.build(o)
    parameters = dict(model.named_parameters())
    places = system.places(o, parameters)
    load(places, parameters, weights)
    system.change(model, o)
    step, losses = Step(system, o, model, None), []
    for s in range(SEGMENTS):
        targets = text[:, s * o.segment : (s + 1) * o.segment]
        before = targets[:, :1] if begins(o, s) else text[:, s * o.segment - 1 : s * o.segment]
        step.feed(inputs_of(targets, before, begins(o, s)), targets)
        step.gradients()
        losses.append(step.loss.clone())
    gradients = gathered(places, {name: p.grad for name, p in parameters.items()})
    return {"losses": torch.stack(losses), **gradients}


def expected(system, o, weights, text, dtype):
    model = system.reference(o)
    p = {name: t.detach().to(dtype).clone().requires_grad_() for name, t in weights.items()}
    losses, total = [], 0.0
    memory = model.empty(o.batch, dtype) if o.memory or hasattr(model, "segment") else None
    for s in range(SEGMENTS):
        targets, others = text[:, s * o.segment : (s + 1) * o.segment], {}
        before = text[:, max(0, s * o.segment - 1)][:, None]
        if memory is None:
            nats = model.losses(p, targets)
        else:
            previous = torch.cat([before, targets[:, :-1]], 1)
            nats, others, memory = model.segment(p, memory, previous, targets, torch.full((o.batch,), begins(o, s)))
        losses.append(nats.mean().detach())
        total = total + nats.mean() + sum(others.values())
    gradients = torch.autograd.grad(total, list(p.values()), allow_unused=True)
    return {"losses": torch.stack(losses), **{
        name: torch.zeros_like(t) if g is None else g for (name, t), g in zip(p.items(), gradients)}}


def distance(found, wanted):
    """The largest relative error of a tensor, and its name."""
    errors = {}
    for name, right in wanted.items():
        norm = right.double().norm().item()
        errors[name] = (found[name].double() - right.double()).norm().item() / (norm if norm > 0 else 1.0)
    worst = max(errors, key=errors.get)
    return errors[worst], worst


def check_form(system, o, form, weights, text):
    """In float64 the forms must agree to rounding, and in float32 with the float64 reference to twice the error of the
    reference in float32, for every tensor."""
    exactly = expected(system, options_of(system, o, attention=form, dtype=torch.float64), weights, text, torch.float64)
    lines, holds = {}, True
    for dtype in (torch.float64, torch.float32):
        settings = options_of(system, o, attention=form, dtype=dtype, micro=1 if dtype == torch.float64 else 0)
        torch.set_default_dtype(dtype)
        try:
            found = system.results(settings, weights, text) or results(system, settings, weights, text)
            naive = expected(system, settings, weights, text, dtype)
        finally:
            torch.set_default_dtype(torch.float32)
        error, where = distance(found, exactly)
        allowed = system.rounding if dtype == torch.float64 else 2 * distance(naive, exactly)[0]
        holds = holds and error <= allowed and math.isfinite(error)
        lines[str(dtype).removeprefix("torch.")] = {"error": error, "allowed": allowed, "where": where}
    print(json.dumps({"model": system.name, "attention": form, "holds": holds, **lines}), flush=True)
    return holds


def check(system, o):
    torch.manual_seed(3)
    holds = system.parameters is None or shapes_agree(system, o)
    for tiny in system.tiny if isinstance(system.tiny, list) else [system.tiny]:
        small = copy.copy(o)
        for name, value in tiny.items():
            setattr(small, name, value)
        made = options_of(system, small, attention=system.forms[0], dtype=torch.float64)
        weights = {name: torch.rand(shape, dtype=torch.float64) - 0.5 for name, shape in system.reference(made).shapes().items()}
        weights |= {name: system.tiny_span(small) for name in weights if name.endswith("attention.span")}
        text = torch.randint(256, (made.batch, SEGMENTS * made.segment))
        for form in system.forms_to_check(made):
            holds = check_form(system, small, form, weights, text) and holds
    return holds
