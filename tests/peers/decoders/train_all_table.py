#!/usr/bin/env python3
"""Prints the tables of train_all.sh: bits per byte of the test split, and what training took. Models that read on with a
memory have one, those that read windows from an empty context another, because what they are scored on differs.

    train_all_table.py OUTPUT --runs RUN... --seeds SEED...

With several seeds a figure is their mean, followed by each.
"""
import argparse
import datetime
import json
import pathlib


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines() if line.startswith("{")]


def ours(folder, run):
    """Time is known at steps that are logged: from the first to the last, and the first ones as fast as those."""
    logged = [line for line in lines_of(folder / run / "metrics.jsonl") if "time" in line and "tokens" in line]
    first, last = logged[0], logged[-1]
    at = [datetime.datetime.fromisoformat(line["time"].replace("Z", "+00:00")) for line in (first, last)]
    timed = last["tokens"] - first["tokens"]
    seconds = (at[1] - at[0]).total_seconds() * last["tokens"] / timed if timed else None
    score = json.loads((folder / f"{run}.json").read_text())["bits_per_byte"]
    return {"bits": score, "seconds": seconds, "steps": last["step"], "bytes": last["tokens"]}


def theirs(folder, run):
    last = lines_of(folder / f"{run}.peer")[-1]
    return {"bits": last["bits_per_byte"], "seconds": last["trained_seconds"], "steps": last["steps"],
            "bytes": last["bytes_seen"]}


def found(folder, run):
    try:
        return (theirs if run.endswith("-peer") else ours)(folder, run)
    except (OSError, KeyError, IndexError, ValueError):
        return None  # not run, or ended early


def row(run, results):
    results = [result for result in results if result is not None]
    if not results:
        return f"| {run} | not run | | | |"
    mean = {key: sum(result[key] for result in results) / len(results) if None not in [r[key] for r in results] else None
            for key in results[0]}
    each = f" ({', '.join(format(result['bits'], '.4f') for result in results)})" if len(results) > 1 else ""
    seconds = "" if mean["seconds"] is None else f"{mean['seconds']:.0f}"
    return f"| {run} | {mean['bits']:.4f}{each} | {seconds} | {mean['steps']:,.0f} | {mean['bytes']:,.0f} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=pathlib.Path)
    parser.add_argument("--runs", nargs="+", required=True)
    parser.add_argument("--seeds", nargs="+", required=True)
    options = parser.parse_args()
    cold = [run for run in options.runs if run.startswith(("text", "longformer"))]
    warm = [run for run in options.runs if run not in cold]
    for runs, measure in ((warm, "warm: in order, with a memory"), (cold, "cold: windows from an empty context")):
        if not runs:
            continue
        print(f"| run | bits per byte, {measure} | seconds of training | steps | bytes seen |\n|---|---|---|---|---|")
        for run in runs:
            print(row(run, [found(options.output / f"seed-{seed}", run) for seed in options.seeds]))
        print()


if __name__ == "__main__":
    main()
