#!/usr/bin/env python3
"""Line charts of runs as one SVG. Needs no packages.

    plot.py run OUT.svg [--below 2] RUN...      training and held-out bits per byte over steps, one chart per run;
                                                --below leaves out values above that many bits per byte
    plot.py parity OUT.svg FAMILY...            how far losses are from PyTorch's in fp32, step by step: ours in fp32 and
                                                bf16, and PyTorch's in bf16; FAMILY: a folder written by parity.sh
    plot.py short-runs OUT.svg ROW...           training bits per byte over seconds, ours and the peer's; ROW: the folder
                                                OUTPUT/seed-N/ROW of short_runs.sh, next to the peer's ROW.peer. Seeds of a
                                                row share a chart, and what has not been run is left out

Training figures are means of five logged ones, each from a single step (ours) or the steps since the last (PyTorch's).
"""
import argparse
import json
import math
import pathlib
import sys

COLOURS = ["#d1495b", "#2e6f95", "#66a182", "#8d6a9f", "#b58a3a", "#707070"]
WIDTH, HEIGHT, LEFT, TOP, BOTTOM, RIGHT = 400, 240, 56, 26, 34, 12


def ticks_of(low, high, log):
    if log:
        return [10.0**e for e in range(math.floor(low), math.ceil(high) + 1) if low <= e <= high]
    step = 10 ** math.floor(math.log10((high - low) / 3 or 1))
    step *= next(m for m in (1, 2, 5, 10) if (high - low) / (step * m) <= 5)
    first = math.ceil(low / step)
    return [step * k for k in range(first, math.floor(high / step) + 1)]


def panel(title, x_label, series, log=False):
    """series: [(name, xs, ys, colour, dashed)]; with `log`, y has a logarithmic scale and must be positive."""
    scale = math.log10 if log else float
    xs = [x for s in series for x in s[1]]
    ys = [scale(y) for s in series for y in s[2]]
    left, right, low, high = min(xs), max(xs), min(ys), max(ys)
    high = high if high > low else low + 1
    px = lambda x: LEFT + (WIDTH - LEFT - RIGHT) * (x - left) / (right - left or 1)
    py = lambda y: TOP + (HEIGHT - TOP - BOTTOM) * (high - scale(y)) / (high - low)
    out = [f'<text x="{LEFT}" y="16" font-weight="bold">{title}</text>']
    for tick in ticks_of(low, high, log):
        label = f"{tick:.0e}" if log else f"{tick:.6g}"
        out.append(f'<path d="M{LEFT} {py(tick):.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>'
                   f'<text x="{LEFT - 5}" y="{py(tick) + 4:.1f}" text-anchor="end">{label}</text>')
    for tick in ticks_of(left, right, False):
        out.append(f'<text x="{px(tick):.1f}" y="{HEIGHT - BOTTOM + 14}" text-anchor="middle">{tick:.6g}</text>')
    out.append(f'<text x="{(LEFT + WIDTH) / 2}" y="{HEIGHT - 5}" text-anchor="middle">{x_label}</text>')
    for name, x, y, colour, dashed in series:
        points = " ".join(f"{px(a):.1f},{py(b):.1f}" for a, b in zip(x, y))
        out.append(f'<polyline points="{points}" fill="none" stroke="{COLOURS[colour]}" stroke-width="1.2" '
                   f'stroke-dasharray="{"3 2" if dashed else "none"}"/>')
    names = list(dict.fromkeys((s[0], s[3]) for s in series))
    first = HEIGHT - BOTTOM + 4 - 13 * len(names) if log else TOP + 12  # where there are few lines
    for k, (name, colour) in enumerate(names):
        out.append(f'<text x="{WIDTH - RIGHT - 4}" y="{first + 13 * k}" text-anchor="end" fill="{COLOURS[colour]}" '
                   f'stroke="#fff" stroke-width="3" paint-order="stroke">{name}</text>')
    return "".join(out)


def write(path, panels, columns=2):
    rows = -(-len(panels) // columns)
    body = "\n".join(f'<g transform="translate({k % columns * WIDTH} {k // columns * HEIGHT})">{p}</g>' for k, p in enumerate(panels))
    path.write_text(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {columns * WIDTH} {rows * HEIGHT}" '
                    f'font-family="sans-serif" font-size="11"><rect width="100%" height="100%" fill="#fff"/>\n{body}\n</svg>\n')


def smoothed(values, span=5):
    """Means of `span` values around each."""
    half = span // 2
    near = lambda k: values[max(0, k - half):k + half + 1]
    return [sum(near(k)) / len(near(k)) for k in range(len(values))]


def json_lines(path):
    return [json.loads(line) for line in path.read_text().splitlines() if line.startswith("{")]


def training_lines(run):
    return [line for line in json_lines(run / "metrics.jsonl") if "loss" in line and "split" not in line]


def losses_of_run(run):
    steps = training_lines(run)
    if [line["step"] for line in steps] != list(range(1, len(steps) + 1)):
        sys.exit(f"{run}: not every step is logged; train with --set train.log_every=1")
    return [line["loss"] for line in steps]


def run_panels(folders, below):
    panels = []
    for folder in folders:
        training = training_lines(folder)
        held_out = [line for line in json_lines(folder / "metrics.jsonl") if line.get("split") == "valid"]
        series = []
        for name, group, colour, values in (
            ("training", training, 1, smoothed([line["bits_per_byte"] for line in training])),
            ("held out", held_out, 0, [line["bits_per_byte"] for line in held_out])):
            kept = [(line["step"], value) for line, value in zip(group, values) if value < below]
            if kept:
                series.append((name, *map(list, zip(*kept)), colour, False))
        if series:
            panels.append(panel(folder.resolve().name, "steps", series))
    return panels


SMALLEST = 1e-9  # equal losses are drawn here


def parity_panels(folders):
    panels = []
    for folder in folders:
        def torch_losses(path):
            return json.loads(path.read_text())["losses"]

        exact = torch_losses(folder / "torch-fp32.json")
        runs = [("PyTorch, bf16, weights rounded at random", torch_losses(path), 5, True)
                for path in sorted(folder.glob("torch-bf16-?.json"))]
        if (folder / "torch-bf16.json").exists():
            runs.append(("PyTorch, bf16", torch_losses(folder / "torch-bf16.json"), 1, False))
        runs += [(f"ours, {precision}", losses_of_run(folder / precision), colour, False)
                 for precision, colour in (("bf16", 0), ("fp32", 2))]
        series = [(name, list(range(1, len(exact) + 1)),
                   [max(SMALLEST, abs(a - b) / b) for a, b in zip(losses, exact)], colour, dashed)
                  for name, losses, colour, dashed in runs]
        panels.append(panel(folder.name, "steps", series, log=True))
    return panels


def short_run(folder):
    """Seconds and bits per byte of our run, or None."""
    tables = sorted(folder.glob("table*.json"))
    if not tables:
        return None
    row = json.loads(tables[0].read_text())["rows"][0]
    steps = training_lines(folder / row["run"])
    return [s["step"] * row["seconds_per_iteration"] for s in steps], [s["bits_per_byte"] for s in steps]


def short_peer(file):
    """The same for the peer."""
    if not file.exists():
        return None
    steps = [line for line in json_lines(file) if "step" in line]
    return [s["seconds"] for s in steps], [s["bits_per_byte"] for s in steps]


def short_runs_panels(folders):
    rows = {}
    for folder in folders:
        peer = short_peer(folder.with_name(folder.name + ".peer"))
        runs = [("ours", short_run(folder), 0, False), ("PyTorch", peer, 1, True)]
        rows.setdefault(folder.name, []).extend(
            (name, run[0], smoothed(run[1]), colour, dashed) for name, run, colour, dashed in runs if run and run[0])
    return [panel(row, "seconds", series) for row, series in rows.items() if series]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("run", "parity", "short-runs"):
        command = commands.add_parser(name)
        command.add_argument("output", type=pathlib.Path)
        command.add_argument("folders", type=pathlib.Path, nargs="+")
        if name == "run":
            command.add_argument("--below", type=float, default=math.inf)
    options = parser.parse_args()
    if options.command == "run":
        panels = run_panels(options.folders, options.below)
    else:
        panels = {"parity": parity_panels, "short-runs": short_runs_panels}[options.command](options.folders)
    if not panels:
        parser.error("no run has anything to draw")
    write(options.output, panels, columns=min(2, len(panels)))


if __name__ == "__main__":
    main()
