#!/usr/bin/env python3
"""Writes tests/golden/{cases,training,initial}/*.json: losses and gradients, training, and initial values of small
models by the reference, in float64.

    python3 tests/golden/generate.py            write what is missing or differs
    python3 tests/golden/generate.py --check    compare with what is committed instead

Needs PyTorch (1.13 or later) and NumPy. Parameters and tokens are not stored: parameter element i of tensor t in case c
is offset + scale * unit(c/t, i), see hashed.py. Of a tensor the file has its norm, its sum, its dot products with
PROJECTIONS tensors of unit(projection<k>/t, i), so that every element counts, and some elements as they are.
"""
import argparse
import json
import pathlib
import sys

import torch

import hashed
import philox
from adam import train
from cases import CASES, INITIAL, TRAINING
from reference import Reference

PROJECTIONS = 6
WHOLE = 32  # tensors of at most so many elements are stored whole
SAMPLE = 12  # and of others so many elements


def distribution(name):
    """Offset and scale: nothing is zero, and attention is far from uniform."""
    if name.endswith("norm.weight"):
        return 1.0, 0.25
    if name.endswith(".bias"):
        return 0.0, 0.25
    if name.startswith("embedding."):
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


def gradients(case, config, dtype):
    model = Reference(config["model"], config["data"])
    made = parameters(case, model, dtype)
    losses = model.losses(made, tokens_of(case, config))
    losses.mean().backward()
    return losses.detach(), {name: p.grad for name, p in made.items()}


def summary_of(name, tensor):
    flat = tensor.detach().flatten().numpy()
    count = flat.size
    drawn = [int(word) % count for word in hashed.words(f"sample/{name}", SAMPLE)]
    stored = range(count) if count <= WHOLE else sorted(set(drawn))
    offset, scale = distribution(name)
    return {
        "name": name,
        "shape": list(tensor.shape),
        "offset": offset,
        "scale": scale,
        "norm": float((flat**2).sum() ** 0.5),
        "sum": float(flat.sum()),
        "projections": [float(flat @ hashed.units(f"projection{k}/{name}", count)) for k in range(PROJECTIONS)],
        "indices": [] if count <= WHOLE else list(stored),
        "values": [float(flat[i]) for i in stored],
    }


def golden(case, config):
    losses, exact = gradients(case, config, torch.float64)
    _, single = gradients(case, config, torch.float32)
    errors = [((single[t].double() - g).norm() / g.norm()).item() for t, g in exact.items() if g.norm() > 0]
    return {
        "case": case,
        **config,
        "loss": losses.mean().item(),
        "losses": losses.flatten().tolist(),
        "float32_error": float(f"{max(errors):.2g}"),  # of PyTorch's own float32, norm-wise, worst tensor
        "parameters": [summary_of(name, gradient) for name, gradient in exact.items()],
    }


def golden_training(case, config):
    """Losses, learning rates and gradient norms of every step, and the weights (and their average) at the end."""

    def run(dtype):
        model = Reference(config["model"], config["data"])
        count = config["batch"] * config["positions"]
        batches = [
            torch.from_numpy(hashed.tokens(f"{case}/tokens/{step}", count).copy()).reshape(config["batch"], -1)
            for step in range(config["taken"])
        ]
        return train(model, parameters(case, model, dtype), batches, config["train"])

    steps, weights, average = run(torch.float64)
    single, _, _ = run(torch.float32)
    error = max(abs(a["loss"] - b["loss"]) / b["loss"] for a, b in zip(single, steps))
    return {
        "case": case,
        **config,
        "float32_error": float(f"{error:.2g}"),  # of PyTorch's own float32: the worst relative error of a loss
        **{key: [step[key] for step in steps] for key in steps[0]},
        "parameters": [summary_of(name, weight) for name, weight in weights.items()],
        **({"average": [summary_of(name, weight) for name, weight in average.items()]} if average else {}),
    }


def golden_initial(case, config):
    made = philox.initial(Reference(config["model"], config["data"]), config["seed"])
    return {"case": case, **config, "parameters": [summary_of(name, values) for name, values in made.items()]}


def text_of(value):
    """JSON with one key of the top level, and one tensor, a line."""
    lines = []
    for key, item in value.items():
        if key in ("parameters", "average"):
            tensors = ",\n".join("  " + json.dumps(tensor) for tensor in item)
            lines.append(f'"{key}": [\n{tensors}\n]')
        else:
            lines.append(f"{json.dumps(key)}: {json.dumps(item)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def differences(ours, theirs, where=""):
    """Where two JSON values differ by more than rounding; the float32 error is a measurement and may."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        if ours.keys() != theirs.keys():
            return [where]
        keys = [key for key in ours if key != "float32_error"]
        return [d for key in keys for d in differences(ours[key], theirs[key], f"{where}.{key}")]
    if isinstance(ours, list) and isinstance(theirs, list):
        if len(ours) != len(theirs):
            return [where]
        return [d for k, (a, b) in enumerate(zip(ours, theirs)) for d in differences(a, b, f"{where}[{k}]")]
    if isinstance(ours, float) and isinstance(theirs, (int, float)):
        return [] if abs(ours - theirs) <= 1e-9 * abs(ours) + 1e-13 else [f"{where}: {ours} is not {theirs}"]
    return [] if ours == theirs else [f"{where}: {ours} is not {theirs}"]


def write_or_check(folder, files, check):
    """1 when a file is not what it should be."""
    folder.mkdir(exist_ok=True)
    found = 0
    for case, made in files.items():
        path, text = folder / f"{case}.json", text_of(made)
        wrong = differences(json.loads(text), json.loads(path.read_text())) if path.exists() else ["missing"]
        print(f"{case}: {wrong[:5] if wrong else 'equal'}; float32 error {made.get('float32_error')}")
        if check:
            found += len(wrong)
        elif wrong:
            path.write_text(text)
    stale = {path.stem for path in folder.glob("*.json")} - files.keys()
    if stale:
        print("no such case, delete:", *sorted(stale))
    return 1 if found or stale else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    philox.check_known_answers()
    here = pathlib.Path(__file__).parent
    failed = write_or_check(here / "cases", {c: golden(c, config) for c, config in CASES.items()}, arguments.check)
    made = {c: golden_training(c, config) for c, config in TRAINING.items()}
    failed |= write_or_check(here / "training", made, arguments.check)
    made = {c: golden_initial(c, config) for c, config in INITIAL.items()}
    return failed | write_or_check(here / "initial", made, arguments.check)


if __name__ == "__main__":
    sys.exit(main())
