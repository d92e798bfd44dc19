#!/usr/bin/env python3
"""Draws docs/figures/attends_*.svg: what each position of a row's window attends to, for the pages on models.

    python3 docs/figures/attends.py

Columns are keys, from the oldest on; rows are queries. The window's own keys are on the right, and what the row remembers
on their left.
"""
import pathlib

SIZE, STEP = 6, 7
STYLE = (".past{fill:#8a94a6;fill-opacity:.22}.seen{fill:#3f78d6}.faint{fill:#3f78d6;fill-opacity:.5}.self{fill:#1b3a8a}"
         "text{fill:#7a8496}@media (prefers-color-scheme: dark){.seen,.faint{fill:#6ea2f5}.self{fill:#c4d8ff}}")


def cell(x, y):
    return f"M{x} {y}h{SIZE}v{SIZE}h-{SIZE}z"


def picture(name, queries, buffers, kind_of, added=0, both=False):
    """kind_of(query, distance) is "seen", "faint" or None, for keys at least one position back, or `both` ways. Added rows are
    queries too, with numbers below 0."""
    paths = {"past": "", "seen": "", "faint": "", "self": ""}
    texts, left, first = "", 10, -sum(count for _, count in buffers[:-1])
    for label, count in buffers:
        texts += f'<text x="{left}" y="20">{label}</text>\n'
        for column in range(count):
            key = first + column
            for query in range(-added, queries):
                if key > query and not both:
                    continue
                kind = "self" if key == query else kind_of(query, query - key) or "past"
                paths[kind] += cell(left + STEP * column, 30 + STEP * (added + query) + (12 if added > 0 <= query else 0))
        left, first = left + STEP * count + 12, first + count
    width, height = left + 4, 30 + STEP * (added + queries) + (20 if added > 0 else 8)
    body = "".join(f'<path class="{kind}" d="{d}"/>\n' for kind, d in paths.items() if d)
    text = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
            f'font-family="sans-serif" font-size="13">\n<style>{STYLE}</style>\n{texts}{body}</svg>\n')
    (pathlib.Path(__file__).parent / f"attends_{name}.svg").write_text(text)


def fixed(query, distance, stride=6, summary=2):
    key = query - distance
    return "seen" if key // stride == query // stride or key % stride >= stride - summary else None


def dilated(_, distance, window=6, step=3):
    near = distance < window
    far = distance % step == 0 and distance // step < window
    return "seen" if near else "faint" if far else None


def blocks(query, distance, block=12):
    return "seen" if query // block == (query - distance) // block else "faint"


def window_and_first(query, distance, side=3, first=2):
    return "seen" if abs(distance) <= side or query < first or query - distance < first else None


def bigbird(query, distance, block=3, count=8, drawn=(3, 6, 5, 1, 2, 3, 4, 1)):
    ours, other = query // block, (query - distance) // block
    near = abs(ours - other) <= 1 or {ours, other} & {0, count - 1}
    return "seen" if near else "faint" if drawn[ours] == other else None


def etc(query, distance, added=4, group=5, side=2):
    key = query - distance
    if query >= 0 and key >= 0:
        return "seen" if abs(distance) <= side else None
    if query < 0 and key < 0:
        return "seen"
    position, row = (query, key) if query >= 0 else (key, query)
    return "seen" if position // group == row + added else "faint"


def main():
    picture("sparse", 24, [("window", 24)], fixed)
    picture("transformer_xl", 12, [("memory", 12), ("window", 12)], lambda query, distance: "seen")
    picture("adaptive_span", 12, [("memory", 24), ("window", 12)],
            lambda query, distance: "seen" if distance <= 7 else "faint" if distance <= 10 else None)
    picture("compressive", 12, [("compressed", 8), ("memory", 12), ("window", 12)], lambda query, distance: "seen")
    picture("longformer", 24, [("window", 24)], dilated)
    picture("blockbert", 24, [("window", 24)], blocks, both=True)
    picture("longformer_encoder", 24, [("window", 24)], window_and_first, both=True)
    picture("bigbird", 24, [("window", 24)], bigbird, both=True)
    picture("etc", 20, [("rows", 4), ("window", 20)], etc, added=4, both=True)


if __name__ == "__main__":
    main()
