#!/usr/bin/env python3
"""Times `longstride train` on a recipe: the other half of compare_cpu.sh. Prints one JSON object.

    python3 tests/peers/time_longstride.py COMMAND RECIPE DATA.h5 FOLDER --steps 9

The median and the largest tokens/s over all steps but the first two, from metrics.jsonl; and processor seconds per step,
from the difference between two runs of different length.
"""
import argparse
import json
import pathlib
import resource
import shutil
import statistics
import subprocess
import sys


def run(options, steps):
    """Processor seconds and the lines of metrics.jsonl."""
    folder = pathlib.Path(options.folder) / "run"
    shutil.rmtree(folder, ignore_errors=True)
    settings = {
        "data.path": options.data, "train.steps": steps, "train.warmup": 2, "train.log_every": 1,
        "train.evaluate_windows": 1, "train.checkpoint_every": 0,
    }
    command = [options.command, "train", options.recipe, "--run", str(folder)]
    for key, value in settings.items():
        command += ["--set", f"{key}={value}"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command")
    parser.add_argument("recipe")
    parser.add_argument("data")
    parser.add_argument("folder")
    parser.add_argument("--steps", type=int, default=9)
    options = parser.parse_args()
    short, _ = run(options, 2)
    long, lines = run(options, options.steps + 2)
    rates = [line["tokens_per_second"] for line in lines if "tokens_per_second" in line and line["step"] > 2]
    print(json.dumps({
        "median": round(statistics.median(rates), 1), "fastest": round(max(rates), 1),
        "cpu_seconds_per_step": round((long - short) / options.steps, 4),
    }))


if __name__ == "__main__":
    main()
