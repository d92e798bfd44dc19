#!/usr/bin/env python3
"""Prints the tables of compare_gpu.sh: the ratio to the peer of every model, and where our time goes.

    compare_gpu.py FOLDER

FOLDER: `order` has a line NAME POLICY per pair of runs, NAME.POLICY.{ours,peer} has their output, and *.error their errors.
"""
import argparse
import json
import pathlib


def printed(path):
    """The figures of a run, or a text that says why there are none."""
    text = path.read_text()
    found = [line for line in text.splitlines() if line.startswith('{"model"')] if path.suffix == ".peer" else [text]
    try:
        return json.loads(found[-1])
    except (IndexError, ValueError):
        said = (text + pathlib.Path(str(path) + ".error").read_text()).strip().splitlines()
        return " / ".join(said[-2:])[-160:] or "not run"


def row_of(name, policy, ours, peer):
    ran, peer_ran = isinstance(ours, dict), isinstance(peer, dict)
    cells = [
        name, policy,
        f'{ours["tokens_per_second"]:,.0f}' if ran else ours,
        f'{peer["tok_s"]:,}' if peer_ran else peer,
        f'{ours["tokens_per_second"] / peer["tok_s"]:.2f}' if ran and peer_ran else "",
        f'{ours["planned_bytes"] / 2**30:.1f}' if ran else "",
        f'{peer["peak_GiB"]:.1f}' if peer_ran else "",
        f'{100 * ours["busy"]:.2f}%' if ran else "",
    ]
    return f'| {" | ".join(cells)} |'


def breakdown_of(name, policy, ours):
    down = ours["breakdown"]
    mfu = ours["mfu"] if isinstance(ours["mfu"], str) else format(ours["mfu"], ".1%")
    lines = [
        f'\n{name}, recompute {policy}: {ours["milliseconds"]:.2f} ms per step, MFU {mfu}; copy '
        f'{down["copy_bytes_per_second"] / 1e12:.2f} TB/s, product {down["product_flops_per_second"] / 1e12:.0f} TFLOP/s\n',
        "| | ms | share | bound, ms | share of bound | bound by |\n|---|---|---|---|---|---|",
    ]
    for line in down["lines"]:
        lines.append(f'| {line["name"]} | {line["ms"]:.2f} | {line["share"]:.1%} | {line["floor_ms"]:.2f} | '
                     f'{line["floor_ms"] / line["ms"]:.0%} | {line["bound"]} |')
    lines.append(f'| between kernels | {down["between_ms"]:.2f} | {down["between_ms"] / ours["milliseconds"]:.1%} | | | |')
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    work = parser.parse_args().folder
    try:
        order = (work / "order").read_text().splitlines()
    except OSError as error:
        parser.error(f"{work / 'order'}: cannot be read: {error.strerror}; give a folder of compare_gpu.sh")
    rows, tables = [], []
    for line in order:
        name, policy = line.split()
        ours, peer = printed(work / f"{name}.{policy}.ours"), printed(work / f"{name}.{policy}.peer")
        rows.append(row_of(name, policy, ours, peer))
        if isinstance(ours, dict):
            tables += breakdown_of(name, policy, ours)
    print("| model | recompute | ours, tokens/s | peer, tokens/s | ratio | ours, GiB | peer, GiB | busy |\n|---|---|---|---|---|---|---|---|")
    print("\n".join(rows))
    print("\n".join(tables))


if __name__ == "__main__":
    main()
