#!/usr/bin/env python3
"""How far losses are from PyTorch's in fp32, step by step: ours in fp32 and bf16, and PyTorch's in bf16, as one SVG.

    python3 tests/peers/parity_plot.py OUT.svg FOLDER...

FOLDER: what parity.sh leaves of a family, OUTPUT/FAMILY. Needs no packages.
"""
import json
import pathlib
import sys

import plot
from parity_compare import losses_of_run

SMALLEST = 1e-9  # equal losses are drawn here


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    panels = []
    for folder in map(pathlib.Path, sys.argv[2:]):
        exact = json.loads((folder / "torch-fp32.json").read_text())["losses"]
        runs = [("PyTorch, bf16, weights rounded by chance", json.loads(p.read_text())["losses"], 5, True)
                for p in sorted(folder.glob("torch-bf16-?.json"))]
        if (folder / "torch-bf16.json").exists():
            runs.append(("PyTorch, bf16", json.loads((folder / "torch-bf16.json").read_text())["losses"], 1, False))
        runs += [(f"ours, {precision}", losses_of_run(folder / precision), colour, False)
                 for precision, colour in (("bf16", 0), ("fp32", 2))]
        series = [(name, list(range(1, len(exact) + 1)),
                   [max(SMALLEST, abs(a - b) / b) for a, b in zip(losses, exact)], colour, dashed)
                  for name, losses, colour, dashed in runs]
        panels.append(plot.panel(folder.name, "steps", series, log=True))
    plot.write(pathlib.Path(sys.argv[1]), panels)


if __name__ == "__main__":
    main()
