"""Compares a peer with tests/golden/memory.py, which has the models written out densely: losses and gradients of all
weights over segments that follow each other, in float64 and float32, and the shapes of the parameters."""
import argparse
import copy
import json
import math
import pathlib
import sys

import torch

from decoders.stepping import Step, inputs_of

GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "golden"
SEGMENTS = 5


def reference(system, o):
    sys.path.insert(0, str(GOLDEN))
    from memory import MemoryReference

    form = {"kind": "decoder", "layers": o.layers, "width": o.width, "heads": o.heads, "positions": "none",
            "feed_forward_ratio": o.inner / o.width, "norm": o.norm, "activation": o.activation, "attention_bias": False,
            "tied_output": o.tied, "output_bias": True, "embedding_scale": o.tied}
    return MemoryReference({**form, **system.as_recipe(o)}, {"context": o.segment})


def by_their_name(tensors, o):
    """The peer's tensors, by the names of the reference."""
    found = {"embedding.start": tensors["emb.weight"][256], "embedding.token.weight": tensors["emb.weight"][:256],
             "output.bias": tensors["bias"]}
    direct = {"output.weight": "output.weight", "nf.weight": "final_norm.weight", "nf.bias": "final_norm.bias",
              "table": "distance.table"}
    found |= {theirs: tensors[ours] for ours, theirs in direct.items() if ours in tensors}
    if "u" in tensors:
        found |= {"distance.content_bias": tensors["u"].flatten(), "distance.position_bias": tensors["v"].flatten()}
    parts = {"n1": "attention_norm", "n2": "feed_forward_norm", "f1": "feed_forward.inner", "f2": "feed_forward.outer",
             "attention.out": "attention.output", "attention.r": "attention.distance",
             "attention.compress": "attention.compress"}
    for k in range(o.layers):
        ours, theirs = f"blocks.{k}.", f"layers.{k}."
        found[theirs + "attention.query_key_value.weight"] = torch.cat(
            [tensors[ours + "attention.q.weight"], tensors[ours + "attention.kv.weight"]])
        if ours + "attention.span" in tensors:
            found[theirs + "attention.span"] = tensors[ours + "attention.span"]
        for mine, name in parts.items():
            for kind in (".weight", ".bias"):
                if ours + mine + kind in tensors:
                    found[theirs + name + kind] = tensors[ours + mine + kind]
    return found


def options_of(system, o, **settings):
    from decoders import command

    made = argparse.Namespace(**{**vars(o), "device": "cpu", "micro": 0, "dropout": 0.0, **settings})
    return command.completed(system, made)


def shapes_agree(system, o):
    full = options_of(system, o, dtype=torch.float32)
    with torch.device("meta"):
        model = system.build(argparse.Namespace(**{**vars(full), "device": "meta"}))
    ours = {name: tuple(t.shape) for name, t in by_their_name(dict(model.named_parameters()), full).items()}
    theirs = {name: tuple(shape) for name, shape in reference(system, full).shapes().items()}
    count = sum(p.numel() for p in model.parameters())
    if ours != theirs:
        print(json.dumps({"model": system.name, "shapes": sorted(set(ours.items()) ^ set(theirs.items()))}))
    print(json.dumps({"model": system.name, "parameters": count, "of_the_recipe": system.parameters}))
    return ours == theirs and count == system.parameters


def results(system, o, weights, text):
    """Losses of SEGMENTS segments and gradients of their sum, as one list of tensors by name."""
    model = system.build(o)
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(weights[name])
    system.change(model, o)
    step, losses = Step(system, o, model, None), []
    for s in range(SEGMENTS):
        targets = text[:, s * o.segment : (s + 1) * o.segment]
        begins = s == 0 or not o.memory
        before = targets[:, :1] if begins else text[:, s * o.segment - 1 : s * o.segment]
        step.feed(inputs_of(targets, before, begins), targets)
        step.gradients()
        losses.append(step.loss.clone())
    found = by_their_name({name: p.grad for name, p in model.named_parameters()}, o)
    return {"losses": torch.stack(losses), **found}


def expected(system, o, weights, text, dtype):
    model = reference(system, o)
    p = {name: t.detach().to(dtype).clone().requires_grad_() for name, t in by_their_name(weights, o).items()}
    memory, losses, total = model.empty(o.batch, dtype), [], 0.0
    for s in range(SEGMENTS):
        targets, begins = text[:, s * o.segment : (s + 1) * o.segment], s == 0 or not o.memory
        before = text[:, max(0, s * o.segment - 1)][:, None]
        previous = torch.cat([before, targets[:, :-1]], 1)
        nats, others, memory = model.segment(p, memory, previous, targets, torch.full((o.batch,), begins))
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
            found = results(system, settings, weights, text)
            naive = expected(system, settings, weights, text, dtype)
        finally:
            torch.set_default_dtype(torch.float32)
        error, where = distance(found, exactly)
        allowed = 1e-12 if dtype == torch.float64 else 2 * distance(naive, exactly)[0]
        holds = holds and error <= allowed and math.isfinite(error)
        lines[str(dtype).removeprefix("torch.")] = {"error": error, "allowed": allowed, "where": where}
    print(json.dumps({"model": system.name, "attention": form, "holds": holds, **lines}), flush=True)
    return holds


def check(system, o):
    torch.manual_seed(3)
    holds = shapes_agree(system, o)
    tiny = copy.copy(o)
    for name, value in system.tiny.items():
        setattr(tiny, name, value)
    model = system.build(options_of(system, tiny, attention=system.forms[0], dtype=torch.float64))
    weights = {name: torch.rand(p.shape, dtype=torch.float64) - 0.5 for name, p in model.named_parameters()}
    weights |= {name: system.tiny_span(tiny) for name in weights if name.endswith("attention.span")}
    text = torch.randint(256, (tiny.batch, SEGMENTS * tiny.segment))
    for form in system.forms:
        holds = check_form(system, tiny, form, weights, text) and holds
    return holds
