#!/usr/bin/env python3
"""The curve of a run, training and held-out bits per byte over steps, as an SVG; several runs in a chart each.

    python3 tests/peers/run_plot.py OUT.svg [--below 2] RUN...

RUN: a run's folder. --below: what is above so many bits per byte is left out. Training: means of five logged steps. Needs no
packages.
"""
import argparse
import json
import pathlib

import plot


def curves(folder, below):
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    lines = [line for line in lines if "bits_per_byte" in line]
    training = [line for line in lines if "split" not in line]
    held_out = [line for line in lines if line.get("split") == "valid"]
    series = []
    for name, group, colour, values in (
        ("training", training, 1, plot.smoothed([line["bits_per_byte"] for line in training])),
        ("held out", held_out, 0, [line["bits_per_byte"] for line in held_out])):
        kept = [(line["step"], value) for line, value in zip(group, values) if value < below]
        if kept:
            series.append((name, *map(list, zip(*kept)), colour, False))
    return series


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=pathlib.Path)
    parser.add_argument("runs", type=pathlib.Path, nargs="+")
    parser.add_argument("--below", type=float, default=float("inf"))
    options = parser.parse_args()
    charts = {run.resolve().name: curves(run, options.below) for run in options.runs}
    panels = [plot.panel(name, "steps", series) for name, series in charts.items() if series]
    if not panels:
        parser.error("no run has anything to draw")
    plot.write(options.output, panels, columns=min(2, len(panels)))


if __name__ == "__main__":
    main()
