#!/usr/bin/env python3
"""Holds the losses of a run against PyTorch's, step by step, and draws both.

    python3 tests/peers/parity_compare.py fp32 RUN torch.json [--svg out.svg]
    python3 tests/peers/parity_compare.py bf16 RUN seed1.json seed2.json ... [--exact torch.json] [--svg out.svg]

fp32: the largest relative difference of a step's loss has to be within 1e-4.
bf16: by the root mean square over all steps, the mean difference to PyTorch runs that differ only in how they round has to
be within the largest of these to each other. (How far two of them are apart is chance: of three trainings alike, the first
is farther from both others than they are from each other one time in three.) Given PyTorch's fp32 run with --exact, how far
we and they are from it is printed too: runs that share what autocast rounds may be nearer to each other than to the truth.
Prints one JSON object; the exit code is 1 when the bound does not hold. Needs no packages.
"""
import argparse
import itertools
import json
import math
import pathlib
import sys


def losses_of_run(run):
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    steps = [line for line in lines if "loss" in line and "split" not in line]
    if [line["step"] for line in steps] != list(range(1, len(steps) + 1)):
        sys.exit(f"{run}: not every step is logged; train with --set train.log_every=1")
    return [line["loss"] for line in steps]


def rms(a, b):
    return math.sqrt(sum((x - y) ** 2 for x, y in zip(a, b)) / len(a))


def svg(path, title, series):
    """Lines over steps; the legend names them."""
    width, height, left, low = 720, 300, 56, 28
    every = [y for _, ys in series for y in ys]
    top, bottom = max(every), min(every)
    x = lambda step, count: left + (width - left - 10) * step / max(1, count - 1)
    y = lambda value: 24 + (height - low - 24) * (top - value) / max(1e-12, top - bottom)
    colours = ["#d1495b", "#2e6f95", "#66a182", "#8d6a9f", "#b58a3a"]
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
           f'font-size="12"><rect width="100%" height="100%" fill="#fff"/><text x="{left}" y="16">{title}</text>']
    for tick in range(5):
        value = bottom + (top - bottom) * tick / 4
        out.append(f'<path d="M{left} {y(value):.1f}H{width - 10}" stroke="#ddd"/>'
                   f'<text x="{left - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{value:.2f}</text>')
    for i, (name, ys) in enumerate(series):
        points = " ".join(f"{x(s, len(ys)):.1f},{y(v):.2f}" for s, v in enumerate(ys))
        dash = "" if i == 0 else ' stroke-dasharray="5 4"'
        out.append(f'<polyline points="{points}" fill="none" stroke="{colours[i % len(colours)]}" stroke-width="1.5"{dash}/>'
                   f'<text x="{width - 14}" y="{40 + 16 * i}" text-anchor="end" fill="{colours[i % len(colours)]}">{name}</text>')
    out.append(f'<text x="{left}" y="{height - 8}">steps 1 to {len(series[0][1])}; nats a byte</text></svg>')
    path.write_text("\n".join(out) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("precision", choices=["fp32", "bf16"])
    parser.add_argument("run", type=pathlib.Path)
    parser.add_argument("peers", type=pathlib.Path, nargs="+")
    parser.add_argument("--exact", type=pathlib.Path)
    parser.add_argument("--svg", type=pathlib.Path)
    options = parser.parse_args()
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
        if len(theirs) < 2:
            sys.exit("bf16 needs two runs of the peer or more")
        result["to_seeds"] = [rms(ours, peer) for peer in theirs]
        result["between_seeds"] = [rms(a, b) for a, b in itertools.combinations(theirs, 2)]
        result["holds"] = sum(result["to_seeds"]) / len(theirs) <= max(result["between_seeds"])
        if options.exact:
            exact = json.loads(options.exact.read_text())["losses"]
            if len(exact) != len(ours):
                sys.exit(f"{options.exact} has {len(exact)} steps, {options.run} {len(ours)}")
            result["to_exact"] = rms(ours, exact)
            result["seeds_to_exact"] = [rms(peer, exact) for peer in theirs]
    if options.svg:
        names = ["PyTorch"] if len(theirs) == 1 else [f"PyTorch, rounding seed {i + 1}" for i in range(len(theirs))]
        svg(options.svg, f"{result['recipe']}, {options.precision}", [("Longstride", ours), *zip(names, theirs)])
    print(json.dumps(result))
    return 0 if result["holds"] else 1


if __name__ == "__main__":
    sys.exit(main())
