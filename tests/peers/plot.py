"""Line charts as one SVG. Needs no packages."""
import json
import math
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
