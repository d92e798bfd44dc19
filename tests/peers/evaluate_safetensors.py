#!/usr/bin/env python3
"""Recomputes what `longstride eval RUN` prints from the files alone, with an independent model and independent windows.

    python3 tests/peers/evaluate_safetensors.py RUN [--split test] [--min-context M] [--weights last] [--windows N]

Reads RUN/checkpoints/step-*/{state.json,model.safetensors} of the newest step, the recipe in state.json and the HDF5
file that the recipe names. Needs torch, numpy, safetensors, h5py and PyYAML. Holds n x n scores for every head, so it is
meant for contexts of a few thousand positions.
"""
import argparse
import json
import math
import pathlib
import sys



def refuse(sentence):
    print(f"evaluate_safetensors.py: {sentence}", file=sys.stderr)
    raise SystemExit(2)


def refuse_import(error):
    package = {"yaml": "pyyaml"}.get(error.name, error.name)
    refuse(f"the Python package {package} is not installed; run: pip install {package}")


try:
    import h5py
    import torch
    import yaml
except ModuleNotFoundError as missing:
    refuse_import(missing)

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "golden"))
from reference import Reference  # noqa: E402


def windows_of(length, context, min_context):
    """(start, length, first scored offset) of every window of one sequence."""
    if min_context == 0 or length <= context:
        return [(start, min(context, length - start), 0) for start in range(0, length, context)]
    made, scored = [(0, context, 0)], context
    while scored < length:
        end = min(scored + context - min_context, length)
        made.append((end - context, context, scored - (end - context)))
        scored = end
    return made


def sequences_of(path, split, cross_files):
    """Every sequence of the split, as arrays of bytes, and the geometry."""
    with h5py.File(path, "r") as file:
        geometry = {key: int(file.attrs[key]) for key in ("rows", "columns", "channels") if key in file.attrs}
        data = file[split][()]
        if data.ndim == 2:
            return list(data), geometry
        bounds = file.get(f"{split}_boundaries")
        if bounds is None or cross_files:
            return [data], geometry
        bounds = [int(b) for b in bounds[()]]
        return [data[a:b] for a, b in zip(bounds, bounds[1:])], geometry


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=pathlib.Path, help="run directory")
    parser.add_argument("--split", default="test", help="split of the run's dataset; default: test")
    parser.add_argument("--min-context", type=int, default=0, help="as `longstride eval` has it; default: 0")
    parser.add_argument("--weights", choices=["automatic", "last", "average"], default="automatic",
                        help="default: automatic, the average if the run keeps one")
    parser.add_argument("--windows", type=int, default=0, help="score only this many windows, from the first")
    parser.add_argument("--batch", type=int, default=4, help="windows scored together; default: 4")
    parser.add_argument("--float64", action="store_true", help="compute in float64 instead of float32")
    options = parser.parse_args()

    checkpoints = sorted((options.run / "checkpoints").glob("step-*"))
    if not checkpoints:
        refuse(f"{options.run}: holds no checkpoint; give the directory of a run that has saved one")
    checkpoint = checkpoints[-1]
    state = json.loads((checkpoint / "state.json").read_text())
    recipe = yaml.safe_load(state["recipe"])
    average = (checkpoint / "ema.safetensors").exists() and options.weights != "last"
    dtype = torch.float64 if options.float64 else torch.float32
    try:
        from safetensors.torch import load_file  # train_gpu_torch.py uses this file without the package
    except ModuleNotFoundError as missing:
        refuse_import(missing)
    weights = load_file(checkpoint / ("ema.safetensors" if average else "model.safetensors"))
    weights = {name: tensor.to(dtype) for name, tensor in weights.items()}
    sequences, geometry = sequences_of(recipe["data"]["path"], options.split, recipe["data"].get("cross_files", False))

    context = recipe["data"]["context"]
    model = Reference(recipe["model"], {"context": context, **geometry})
    expected = model.shapes()
    if {name: tuple(tensor.shape) for name, tensor in weights.items()} != expected:
        wrong = sorted(expected.keys() ^ weights.keys()) or "shapes"
        raise SystemExit(f"{checkpoint}: tensors are not what docs/develop/numerics.md says: {wrong}")

    windows = [(s, *w) for s, data in enumerate(sequences) for w in windows_of(len(data), context, options.min_context)]
    windows = windows[: options.windows or None]
    nats, scored, at = 0.0, 0, 0
    with torch.no_grad():
        while at < len(windows):
            batch = [w for w in windows[at : at + options.batch] if w[2] == windows[at][2]]
            batch = batch if windows[at : at + len(batch)] == batch else batch[:1]
            at += len(batch)
            tokens = torch.stack([torch.from_numpy(sequences[s][a : a + n]) for s, a, n, _ in batch])
            for row, (_, _, n, first) in zip(model.losses(weights, tokens), batch):
                nats += row[first:].double().sum().item()
                scored += n - first
            print(f"\r{at}/{len(windows)} windows", end="", file=sys.stderr)
    print(file=sys.stderr)
    print(json.dumps({
        "run": str(options.run), "step": state["step"], "split": options.split, "context": context,
        "min_context": options.min_context, "weights": "average" if average else "last", "bytes": scored,
        "loss": nats / scored, "bits_per_byte": nats / scored / math.log(2),
    }))


if __name__ == "__main__":
    main()
