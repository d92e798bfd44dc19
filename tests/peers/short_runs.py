#!/usr/bin/env python3
"""Prints the table of short_runs.sh: held-out bits per byte and the bytes seen, ours and the peer's.

    short_runs.py OUTPUT SECONDS ROWS SEED...

ROWS: a file of the rows' names. With several seeds a figure is their mean, followed by each.
"""
import argparse
import json
import pathlib


def ours(folder):
    tables = list(folder.glob("table*.json"))
    return json.loads(tables[0].read_text())["rows"][0] if tables else {}


def theirs(file):
    text = file.read_text() if file.exists() else ""
    last = [json.loads(line) for line in text.splitlines() if line.startswith('{"model"')]
    return last[-1] if last else {}


def cells(runs):
    figures = [run["bits_per_byte"] for run in runs if run.get("bits_per_byte") is not None]
    if not figures:
        return "not run | not run"
    mean = format(sum(figures) / len(figures), ".4f")
    each = f" ({', '.join(format(figure, '.3f') for figure in figures)})" if len(runs) > 1 else ""
    return f"{mean}{each} | {max(run.get('tokens', 0) for run in runs):,}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=pathlib.Path)
    parser.add_argument("seconds")
    parser.add_argument("rows", type=pathlib.Path)
    parser.add_argument("seeds", metavar="seed", nargs="+")
    options = parser.parse_args()
    try:
        rows = options.rows.read_text().split()
    except OSError as error:
        parser.error(f"{options.rows}: cannot be read: {error.strerror}")
    print(f"| {options.seconds} s per run | ours, bits per byte | ours, bytes seen | peer, bits per byte | peer, bytes seen |")
    print("|---|---|---|---|---|")
    for row in rows:
        at = [options.output / f"seed-{seed}" for seed in options.seeds]
        print(f"| {row} | {cells([ours(a / row) for a in at])} | {cells([theirs(a / f'{row}.peer') for a in at])} |")


if __name__ == "__main__":
    main()
