#!/usr/bin/env python3
"""Prints a line per step and split of a run's metrics.jsonl: the last figures logged, without times.

    figures.py RUN
"""
import json
import pathlib
import sys

KEPT = ("step", "split", "loss", "bits_per_byte", "lr", "grad_norm", "bytes")


def main():
    last = {}
    for line in (pathlib.Path(sys.argv[1]) / "metrics.jsonl").read_text().splitlines():
        entry = json.loads(line)
        if "loss" in entry:
            last[entry["step"], entry.get("split", "")] = {key: entry[key] for key in KEPT if key in entry}
    for key in sorted(last):
        print(json.dumps(last[key]))


if __name__ == "__main__":
    main()
