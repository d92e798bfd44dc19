#!/usr/bin/env python3
"""Prints the ratios of compare_cpu.sh as a line of JSON.

    compare_cpu.py RECIPE BEFORE AFTER PEER

BEFORE, AFTER: what time_longstride.py printed before and after the peer. PEER: a file with the output of train_cpu_torch.py.
"""
import argparse
import json
import pathlib


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe")
    parser.add_argument("before", type=json.loads)
    parser.add_argument("after", type=json.loads)
    parser.add_argument("peer", type=pathlib.Path)
    options = parser.parse_args()
    recipe, before, after = options.recipe, options.before, options.after
    try:
        fastest = json.loads(options.peer.read_text().splitlines()[-1])["fastest"]
    except (OSError, ValueError, LookupError):
        parser.error(f"{options.peer}: must be a file with what train_cpu_torch.py printed")
    tokens = fastest["seconds_per_step"] * fastest["tokens_per_second"]
    medians = [before["median"], after["median"]]
    cpu = [before["cpu_seconds_per_step"], after["cpu_seconds_per_step"]]
    print(json.dumps({
        "recipe": recipe, "longstride_median": medians, "torch_median": fastest["tokens_per_second"],
        "torch_form": fastest["form"], "torch_compiled": fastest["compiled"],
        "ratio_of_medians": round(min(medians) / fastest["tokens_per_second"], 2),
        "ratio_of_fastest_steps": round(max(before["fastest"], after["fastest"]) / (tokens / fastest["fastest_step"]), 2),
        "cpu_seconds_per_step": cpu, "torch_cpu_seconds_per_step": fastest["cpu_seconds_per_step"],
        "ratio_of_cpu_seconds": round(fastest["cpu_seconds_per_step"] / max(cpu), 2),
    }))


if __name__ == "__main__":
    main()
