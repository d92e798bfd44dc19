#!/usr/bin/env python3
"""Holds the losses of a run against PyTorch's, step by step, and draws both.

    python3 tests/peers/parity_compare.py fp32 RUN torch.json [--svg out.svg]
    python3 tests/peers/parity_compare.py bf16 RUN seed1.json seed2.json ... --nearest torch.json [--exact torch.json]
                                          [--svg out.svg]

fp32: the largest relative difference of a step's loss has to be within 1e-4.
bf16: by the root mean square over all steps, the difference to PyTorch's run that rounds weights to the nearest, as we do
(--nearest), has to be within the largest difference of two PyTorch runs that round them up or down by chance, each by
another seed. How far we are from those is printed too, and decides nothing: rounding by chance has twice the variance,
which moves all of them from the exact curve the same way. Given PyTorch's fp32 run with --exact, so is how far all are from it.
Prints one JSON object; the exit code is 1 when the bound does not hold. Needs no packages.
"""
import argparse
import itertools
import json
import math
import pathlib
import sys

import plot


def losses_of_run(run):
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    steps = [line for line in lines if "loss" in line and "split" not in line]
    if [line["step"] for line in steps] != list(range(1, len(steps) + 1)):
        sys.exit(f"{run}: not every step is logged; train with --set train.log_every=1")
    return [line["loss"] for line in steps]


def rms(a, b):
    return math.sqrt(sum((x - y) ** 2 for x, y in zip(a, b)) / len(a))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("precision", choices=["fp32", "bf16"])
    parser.add_argument("run", type=pathlib.Path)
    parser.add_argument("peers", type=pathlib.Path, nargs="+")
    parser.add_argument("--nearest", type=pathlib.Path)
    parser.add_argument("--exact", type=pathlib.Path)
    parser.add_argument("--svg", type=pathlib.Path)
    options = parser.parse_args()
    if options.precision == "bf16" and (options.nearest is None or len(options.peers) < 2):
        parser.error("bf16 needs --nearest and two runs of the peer or more")
    ours = losses_of_run(options.run)
    peers = [json.loads(path.read_text()) for path in options.peers]
    theirs = [peer["losses"] for peer in peers]
    if any(len(peer) != len(ours) for peer in theirs):
        sys.exit(f"{options.run} has {len(ours)} steps, the peers {[len(peer) for peer in theirs]}")
    result = {"recipe": peers[0]["recipe"], "precision": options.precision, "steps": len(ours),
              "torch": peers[0]["torch"], "device": peers[0]["device"], "first": ours[0], "last": ours[-1],
              "torch_last": [peer[-1] for peer in theirs]}
    if options.precision == "fp32":
        relative = [abs(a - b) / b for a, b in zip(ours, theirs[0])]
        result["largest_relative"] = max(relative)
        result["at_step"] = relative.index(max(relative)) + 1
        result["holds"] = max(relative) <= 1e-4
    else:
        controls = {"nearest": options.nearest} | ({"exact": options.exact} if options.exact else {})
        controls = {name: json.loads(path.read_text())["losses"] for name, path in controls.items()}
        for name, losses in controls.items():
            if len(losses) != len(ours):
                sys.exit(f"the {name} run has {len(losses)} steps, {options.run} {len(ours)}")
        result["to_nearest"] = rms(ours, controls["nearest"])
        result["to_seeds"] = [rms(ours, peer) for peer in theirs]
        result["between_seeds"] = [rms(a, b) for a, b in itertools.combinations(theirs, 2)]
        result["holds"] = result["to_nearest"] <= max(result["between_seeds"])
        if options.exact:
            result["to_exact"], result["nearest_to_exact"] = (rms(run, controls["exact"]) for run in (ours, controls["nearest"]))
            result["seeds_to_exact"] = [rms(peer, controls["exact"]) for peer in theirs]
    if options.svg:
        names = ["PyTorch"] if len(theirs) == 1 else [f"PyTorch, rounding seed {i + 1}" for i in range(len(theirs))]
        steps = list(range(1, len(ours) + 1))
        series = [(name, steps, losses, i, i > 0) for i, (name, losses) in enumerate(zip(["ours", *names], [ours, *theirs]))]
        plot.write(options.svg, [plot.panel(f"{result['recipe']}, {options.precision}, nats a byte", "steps", series)], columns=1)
    print(json.dumps(result))
    return 0 if result["holds"] else 1


if __name__ == "__main__":
    sys.exit(main())
