#!/usr/bin/env python3
"""Compares the losses of a run with PyTorch's, step by step, and plots both.

    python3 tests/peers/parity_compare.py fp32 RUN torch.json [--svg out.svg]
    python3 tests/peers/parity_compare.py bf16 RUN seed1.json seed2.json ... [--nearest torch.json]
                                          [--exact torch.json] [--svg out.svg]

fp32: the relative difference of every step's loss must be at most 1e-4.
bf16: the peers are PyTorch runs that differ only in how they round. Our mean distance from them (root mean square over all
steps) must be at most the largest distance between two of them. (These distances are random: of three equal runs, the
first is farther from both others than they are from each other one time in three.) --nearest is PyTorch's run that rounds
weights to nearest, as we do, while the peers round them up or down at random, with twice the variance; our distance from
it is printed too. With --exact, PyTorch's fp32 run, all distances from that are printed.
Prints one JSON object; the exit code is 1 if the bound does not hold. Needs no packages.
"""
import argparse
import itertools
import json
import math
import pathlib
import sys

import plot


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
    if options.precision == "bf16" and len(options.peers) < 2:
        parser.error("bf16 needs two runs of the peer or more")
    ours = plot.losses_of_run(options.run)
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
        result["to_seeds"] = [rms(ours, peer) for peer in theirs]
        result["between_seeds"] = [rms(a, b) for a, b in itertools.combinations(theirs, 2)]
        result["holds"] = sum(result["to_seeds"]) / len(theirs) <= max(result["between_seeds"])
        for name, path in (("nearest", options.nearest), ("exact", options.exact)):
            if path:
                control = json.loads(path.read_text())["losses"]
                if len(control) != len(ours):
                    sys.exit(f"{path} has {len(control)} steps, {options.run} {len(ours)}")
                result[f"to_{name}"] = rms(ours, control)
                result[f"seeds_to_{name}"] = [rms(peer, control) for peer in theirs]
    if options.svg:
        names = ["PyTorch"] if len(theirs) == 1 else [f"PyTorch, rounding seed {i + 1}" for i in range(len(theirs))]
        steps = list(range(1, len(ours) + 1))
        series = [(name, steps, losses, i, i > 0) for i, (name, losses) in enumerate(zip(["ours", *names], [ours, *theirs]))]
        plot.write(options.svg, [plot.panel(f"{result['recipe']}, {options.precision}, nats per byte", "steps", series)], columns=1)
    print(json.dumps(result))
    return 0 if result["holds"] else 1


if __name__ == "__main__":
    sys.exit(main())
