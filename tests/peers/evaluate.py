"""Recomputes what `longstride eval RUN` prints from the files alone, with an independent model and independent windows.

    run.py evaluate RUN [--split test] [--min-context M] [--weights last] [--windows N]

Reads RUN/checkpoints/step-*/{state.json,model.safetensors} of the newest step, the recipe in state.json and the HDF5
file that the recipe names. Needs torch, numpy and h5py. Holds n x n scores for every head, so it is meant for contexts of a
few thousand positions.
"""
import argparse
import json
import math
import pathlib
import sys

import h5py
import torch

from frame.text import read_recipe, read_safetensors, sequences, windows_of

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "golden"))
from reference import Reference  # noqa: E402


def main(arguments):
    parser = argparse.ArgumentParser(prog="run.py evaluate", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=pathlib.Path, help="run directory")
    parser.add_argument("--split", default="test", help="split of the run's dataset; default: test")
    parser.add_argument("--min-context", type=int, default=0, help="as `longstride eval` has it; default: 0")
    parser.add_argument("--weights", choices=["automatic", "last", "average"], default="automatic",
                        help="default: automatic, the average if the run keeps one")
    parser.add_argument("--windows", type=int, default=0, help="score only this many windows, from the first")
    parser.add_argument("--batch", type=int, default=4, help="windows scored together; default: 4")
    parser.add_argument("--float64", action="store_true", help="compute in float64 instead of float32")
    options = parser.parse_args(arguments)

    checkpoints = sorted((options.run / "checkpoints").glob("step-*"))
    if not checkpoints:
        parser.error(f"{options.run}: holds no checkpoint; give the directory of a run that has saved one")
    checkpoint = checkpoints[-1]
    state = json.loads((checkpoint / "state.json").read_text())
    recipe = read_recipe(state["recipe"])
    average = (checkpoint / "ema.safetensors").exists() and options.weights != "last"
    dtype = torch.float64 if options.float64 else torch.float32
    weights = read_safetensors(checkpoint / ("ema.safetensors" if average else "model.safetensors"))
    weights = {name: tensor.to(dtype) for name, tensor in weights.items()}
    path, across = recipe["data"]["path"], recipe["data"].get("cross_files", False)
    data = sequences(path, options.split, across=across)
    with h5py.File(path, "r") as file:
        geometry = {key: int(file.attrs[key]) for key in ("rows", "columns", "channels") if key in file.attrs}

    context = recipe["data"]["context"]
    model = Reference(recipe["model"], {"context": context, **geometry})
    expected = model.shapes()
    if {name: tuple(tensor.shape) for name, tensor in weights.items()} != expected:
        wrong = sorted(expected.keys() ^ weights.keys()) or "shapes"
        raise SystemExit(f"{checkpoint}: tensors are not what docs/develop/numerics.md says: {wrong}")

    windows = [(s, *w) for s, bytes in enumerate(data) for w in windows_of(len(bytes), context, options.min_context)]
    windows = windows[: options.windows or None]
    nats, scored, at = 0.0, 0, 0
    with torch.no_grad():
        while at < len(windows):
            batch = [w for w in windows[at : at + options.batch] if w[2] == windows[at][2]]
            batch = batch if windows[at : at + len(batch)] == batch else batch[:1]
            at += len(batch)
            tokens = torch.stack([data[s][a : a + n] for s, a, n, _ in batch])
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
