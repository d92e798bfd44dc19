#!/usr/bin/env python3
"""The curves of short_runs.sh, ours and the peer's, over seconds of training, as one SVG.

    python3 tests/peers/short_runs_plot.py OUT.svg OUTPUT/seed-1/ROW... [OUTPUT/seed-2/ROW...]

OUTPUT/seed-1/ROW: the folder of our run of a row; the peer's is ROW.peer beside it. Seeds of a row share a chart. What has not been
run is left out. Lines are means of five logged figures, bits per byte of training: of single steps (ours), of the steps since the last
(PyTorch's). Needs no packages.
"""
import json
import pathlib
import sys

import plot


def ours(folder):
    tables = sorted(folder.glob("table*.json"))
    if not tables:
        return None
    row = json.loads(tables[0].read_text())["rows"][0]
    lines = [json.loads(line) for line in (folder / row["run"] / "metrics.jsonl").read_text().splitlines()]
    steps = [line for line in lines if "loss" in line and "split" not in line]
    return [s["step"] * row["seconds_per_iteration"] for s in steps], [s["bits_per_byte"] for s in steps]


def theirs(file):
    if not file.exists():
        return None
    steps = [json.loads(line) for line in file.read_text().splitlines() if line.startswith('{"step"')]
    return [s["seconds"] for s in steps], [s["bits_per_byte"] for s in steps]


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    rows = {}
    for folder in map(pathlib.Path, sys.argv[2:]):
        runs = [("ours", ours(folder), 0, False), ("PyTorch", theirs(folder.with_name(folder.name + ".peer")), 1, True)]
        rows.setdefault(folder.name, []).extend(
            (name, run[0], plot.smoothed(run[1]), colour, dashed) for name, run, colour, dashed in runs if run and run[0])
    panels = [plot.panel(row, "seconds", series) for row, series in rows.items() if series]
    plot.write(pathlib.Path(sys.argv[1]), panels)


if __name__ == "__main__":
    main()
