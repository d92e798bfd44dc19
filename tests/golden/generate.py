#!/usr/bin/env python3
"""Writes tests/golden/{cases,global,memory,training,initial}.safetensors: losses and gradients, those of segments of streams,
training, and initial values of small models by the reference, in float64.

    python3 tests/golden/generate.py            write what is missing or differs
    python3 tests/golden/generate.py --check    only compare with the committed files

Needs PyTorch (1.13 or later) and NumPy. The settings of a case are those of cases.py and the shapes of its parameters.
Initial parameters and tokens are not stored: parameter element i of tensor t in case c is offset + scale * unit(c/t, i),
see hashed.py. For an expected tensor t the file has a list of numbers, `parameters/t`, `average/t`, `states/t` or, of
segment s, `segments/s/t`: offset, scale, norm, sum, the dot products with PROJECTIONS tensors of unit(projection<k>/t, i),
so that every element matters, and some of the elements: all of a small tensor, otherwise those at the distinct
word(sample/t, k) % count in ascending order.
"""
import argparse
import pathlib
import sys

import torch

import hashed
import philox
import vectors
from adam import train
from adaptive import check_against_pytorch
from cases import CASES, ENCODERS, INITIAL, TRAINING, TRAINING_ENCODERS
from encoder import EncoderReference
from global_rows import GLOBAL, GlobalReference
from memory import MemoryReference
from memory_cases import MEMORY, check_paper_counts
from reference import Reference
from scan import SCANS, ScanReference

PROJECTIONS = 6
WHOLE = 32  # tensors of at most this many elements are stored whole
SAMPLE = 12  # and this many elements of larger ones


def distribution(name):
    """Offset and scale: nothing is zero, and attention is far from uniform. Spans are in (0, 1)."""
    if name.endswith(".span"):
        return 0.5, 0.45
    if name.endswith(("norm.weight", ".skip")):
        return 1.0, 0.25
    if name.endswith(".convolution.weight"):
        return 0.75, 0.5
    if name.endswith(".bias"):
        return 0.0, 0.25
    if name.startswith("embedding.") and not name.endswith(".projection.weight"):
        return 0.0, 1.0
    return 0.0, 0.5


def parameters(case, model, dtype):
    made = {}
    for name, shape in model.shapes().items():
        offset, scale = distribution(name)
        count = torch.Size(shape).numel()
        values = offset + scale * hashed.units(f"{case}/{name}", count)
        made[name] = torch.from_numpy(values).to(dtype).reshape(shape).requires_grad_()
    return made


def tokens_of(case, config):
    count = config["batch"] * config["positions"]
    return torch.from_numpy(hashed.tokens(f"{case}/tokens", count).copy()).reshape(config["batch"], -1)


def reference(config):
    model = config["model"]
    if "group_ends" in config:
        return GlobalReference(config)
    if model["kind"] == "encoder":
        return EncoderReference(model, config["data"], config["objective"])
    kind = MemoryReference if "distance" in model else ScanReference if "mixers" in model else Reference
    return kind(config["model"], config["data"])


def gradients(case, config, dtype):
    model = reference(config)
    made = parameters(case, model, dtype)
    losses = model.losses(made, tokens_of(case, config))
    losses.mean().backward()
    return losses.detach(), {name: torch.zeros_like(p) if p.grad is None else p.grad for name, p in made.items()}


def summary_of(name, tensor):
    flat = tensor.detach().flatten().numpy()
    count = flat.size
    drawn = sorted({int(word) % count for word in hashed.words(f"sample/{name}", SAMPLE)})
    projections = [float(flat @ hashed.units(f"projection{k}/{name}", count)) for k in range(PROJECTIONS)]
    stored = flat if count <= WHOLE else flat[drawn]
    return [*distribution(name), float((flat**2).sum() ** 0.5), float(flat.sum()), *projections, *map(float, stored)]


def settings_of(config, **more):
    shapes = reference(config).shapes()
    return {**config, **more, "shapes": {name: list(shape) for name, shape in shapes.items()}}


def summaries(kind, tensors):
    return {f"{kind}/{name}": summary_of(name, tensor) for name, tensor in tensors.items()}


def golden(case, config):
    losses, exact = gradients(case, config, torch.float64)
    _, single = gradients(case, config, torch.float32)
    errors = [((single[t].double() - g).norm() / g.norm()).item() for t, g in exact.items() if g.norm() > 0]
    # PyTorch's own float32 error, norm-wise, of the worst tensor.
    settings = settings_of(config, float32_error=float(f"{max(errors):.2g}"))
    numbers = {"loss": [losses.mean().item()], "losses": losses.flatten().tolist()}
    return settings, {**numbers, **summaries("parameters", exact)}


def segments_of(case, config, dtype):
    """Of every segment of the streams: nats (batch, positions), the other losses, and gradients of the sum of these and
    the mean of the nats. Then the memory after the last."""
    model, n = reference(config), config["positions"]
    made = parameters(case, model, dtype)
    check_spans(model, made)
    tokens = tokens_of(case, {**config, "positions": config["segments"] * n}).long()
    before = tokens.roll(1, dims=1)  # a row's first byte follows none, and what is here is not read
    memory, results = model.empty(config["batch"], dtype), []
    for s in range(config["segments"]):
        starts = torch.tensor([s == 0 or [s, row] in config["restarts"] for row in range(config["batch"])])
        cut = slice(s * n, (s + 1) * n)
        nats, others, memory = model.segment(made, memory, before[:, cut], tokens[:, cut], starts)
        loss = nats.mean() + sum(others.values())
        found = torch.autograd.grad(loss, list(made.values()), allow_unused=True)
        filled = {t: torch.zeros_like(p) if g is None else g for (t, p), g in zip(made.items(), found)}
        results.append((nats.detach(), {kind: float(value.detach()) for kind, value in others.items()}, filled))
    assert model.closest_choice > 1e-3, f"{case}: which rows are most used depends on rounding"
    return results, memory


def check_spans(model, made):
    """No distance is at the end of a ramp, where the loss has a kink."""
    for name, span in made.items():
        if name.endswith(".span"):
            reach = span.detach().double() * model.span["longest"]
            assert (reach - reach.round()).abs().min() > 1e-3 and 0 < span.min() and span.max() < 1, name


def golden_memory(case, config):
    exact, memory = segments_of(case, config, torch.float64)
    single, _ = segments_of(case, config, torch.float32)
    errors, numbers = [], {}
    for s, ((nats, others, found), (_, _, rounded)) in enumerate(zip(exact, single)):
        errors += [((rounded[t].double() - g).norm() / g.norm()).item() for t, g in found.items() if g.norm() > 0]
        numbers[f"losses/{s}"] = nats.flatten().tolist()
        numbers |= {f"{kind}/{s}": [value] for kind, value in others.items()} | summaries(f"segments/{s}", found)
    kept = {f"layers.{layer}.attention.{name}": rows
            for name, layers in (("memory", memory.rows), ("compressed_memory", memory.compressed))
            for layer, rows in enumerate(layers) if rows.numel() > 0}
    states = {name: list(rows.shape) for name, rows in kept.items()}
    return settings_of(config, float32_error=float(f"{max(errors):.2g}"), states=states), \
        {**numbers, **summaries("states", kept)}


def golden_training(case, config):
    """Losses, learning rates and gradient norms of every step, and the weights (and their average) at the end."""

    def run(dtype):
        model = reference(config)
        count = config["batch"] * config["positions"]
        batches = [
            torch.from_numpy(hashed.tokens(f"{case}/tokens/{step}", count).copy()).reshape(config["batch"], -1)
            for step in range(config["taken"])
        ]
        return train(model, parameters(case, model, dtype), batches, config["train"])

    steps, weights, average = run(torch.float64)
    single, _, _ = run(torch.float32)
    error = max(abs(a["loss"] - b["loss"]) / b["loss"] for a, b in zip(single, steps))
    numbers = {key: [step[key] for step in steps] for key in steps[0]}
    # PyTorch's own float32 error: the worst relative error of a loss.
    return settings_of(config, float32_error=float(f"{error:.2g}")), {
        **numbers, **summaries("parameters", weights), **summaries("average", average or {})
    }


def golden_initial(case, config):
    made = philox.initial(reference(config), config["seed"])
    return settings_of(config), summaries("parameters", made)


def differences(ours, theirs):
    """Where two cases differ by more than rounding; the float32 error is a measurement and may differ."""
    if theirs is None:
        return ["missing"]
    found = [key for key in ours[0].keys() | theirs[0].keys()
             if key != "float32_error" and ours[0].get(key) != theirs[0].get(key)]
    for name in ours[1].keys() | theirs[1].keys():
        a, b = ours[1].get(name, []), theirs[1].get(name, [])
        if len(a) != len(b):
            found.append(name)
        rounding = 1e-9 * max(map(abs, a), default=0)  # with softmax, some gradients are nothing but rounding
        close = [abs(x - y) <= rounding for x, y in zip(a, b)]
        found += [f"{name}[{k}]: {a[k]} is not {b[k]}" for k, is_close in enumerate(close) if not is_close]
    return found


def write_or_check(path, made, check):
    """1 if the file is not as it should be. Cases that are equal up to rounding are left unchanged."""
    stored = vectors.read(path)
    wrong = {case: differences(made[case], stored.get(case)) for case in made}
    for case, where in wrong.items():
        print(f"{case}: {where[:5] if where else 'equal'}; float32 error {made[case][0].get('float32_error')}")
    stale = sorted(stored.keys() - made.keys())
    if stale:
        print("no such case:", *stale)
    differs = any(wrong.values()) or bool(stale)
    if differs and not check:
        vectors.write(path, {case: made[case] if wrong[case] else stored[case] for case in made})
    return 1 if differs and check else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    philox.check_known_answers()
    here = pathlib.Path(__file__).parent
    check_paper_counts(MemoryReference)
    check_against_pytorch()
    files = {"cases": (golden, {**CASES, **SCANS, **ENCODERS}), "global": (golden, GLOBAL), "memory": (golden_memory, MEMORY), "training": (golden_training, {**TRAINING, **TRAINING_ENCODERS}),
             "initial": (golden_initial, INITIAL)}
    failed = 0
    for file, (make, cases) in files.items():
        made = {case: make(case, config) for case, config in cases.items()}
        failed |= write_or_check(here / f"{file}.safetensors", made, arguments.check)
    return failed


if __name__ == "__main__":
    sys.exit(main())
