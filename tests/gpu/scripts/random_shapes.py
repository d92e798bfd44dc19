#!/usr/bin/env python3
"""Looks for shapes of attention that cost more than their work: random ones, each compared with the nearest published one.

    random_shapes.py PROGRAM [--seed 1] [--count 30] [--most 1.3] [--seconds 300] [--device gpu] [--tiles 60000]
    random_shapes.py PROGRAM --shape "fixed 100 25 64 64 12800" [--shape "local 128 0 112 128 12800 34"] ...

PROGRAM: build/cuda/longstride. Draws pattern, stride, window, summary width, head sizes and length, times forward and
backward with `bench attention`, and prints for each the time divided by what its work would take at the rate of the
nearest published shape of the same pattern, timed in the same run. Work: pairs of tiles of 64 queries and 64 keys that
hold an allowed pair, and in proportion more if the heads' sizes, rounded up to those of the kernels, exceed the
published ones. --shape times that shape instead: pattern, stride, summary width, key size, value size, n and, of local,
the window. Stops after --seconds. A shape that takes more than --most times its work is compared with what `plan` says.
Exits with 1 if `plan` does not call it slow, or fewer than --count were drawn, and with 2 after a mistake.
"""

import argparse
import json
import math
import pathlib
import random
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
RECIPE = ROOT / "recipes/table1/enwik8-fixed.yaml"
TILE = 64
HEADS = 8
PARTS = {"dense": ["dense"], "local": ["local"], "column": ["column"], "fixed": ["fixed_block", "fixed_summary"]}

# The shapes of the published recipes (of the longest, a quarter): pattern, stride, summary width, key and value size, n.
PUBLISHED = [
    ("dense", 128, 0, 64, 64, 12288),
    ("dense", 96, 0, 64, 128, 3072),
    ("local", 128, 0, 32, 32, 12288),
    ("local", 128, 0, 64, 64, 12288),
    ("local", 512, 0, 64, 64, 65536),
    ("local", 96, 0, 64, 128, 3072),
    ("column", 128, 0, 32, 32, 12288),
    ("column", 128, 0, 64, 64, 12288),
    ("column", 512, 0, 64, 64, 65536),
    ("column", 96, 0, 64, 128, 3072),
    ("fixed", 128, 32, 64, 64, 12288),
]


def fail(sentence):
    print(f"random_shapes.py: {sentence}", file=sys.stderr)
    sys.exit(2)


def whole(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number of at least 1")
    return value


def positive(text):
    value = float(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not a number above 0")
    return value


def tiles(entries):
    return -(-entries // TILE)


def work(pattern, stride, window, width, n):
    """Pairs of tiles of one head of one sequence."""
    if pattern == "dense":
        return tiles(n) * (tiles(n) + 1) // 2
    if pattern == "column":  # every residue class by itself
        longer = n % stride
        return sum(count * (t * (t + 1) // 2)
                   for count, t in ((longer, tiles(n // stride + 1)), (stride - longer, tiles(n // stride))))
    total = 0
    for begin in range(0, n, TILE):
        end = min(begin + TILE, n)
        if pattern == "local":
            total += tiles(end) - max(0, begin - window + 1) // TILE
        else:
            total += tiles(end) - begin // stride * stride // TILE  # own blocks
            total += tiles((end - 1) // stride * width)  # summaries of earlier blocks, one after the other
    return total


def kernel_sizes(key, value):
    for size in ((32, 32), (64, 64), (64, 128), (128, 128)):
        if key <= size[0] and value <= size[1]:
            return size
    raise ValueError(f"no kernel for heads of {key} and {value}")


class Shape:
    def __init__(self, pattern, stride, width, key, value, n, window=0):
        self.pattern, self.stride, self.width, self.key, self.value, self.n = pattern, stride, width, key, value, n
        self.window = window or stride + 1
        self.per_head = work(pattern, stride, self.window, width, n)
        self.sizes = sum(kernel_sizes(key, value))

    def __str__(self):
        of_pattern = {"dense": "", "local": f" {self.window}", "column": f" {self.stride}",
                      "fixed": f" {self.stride}, summary {self.width}"}[self.pattern]
        return f"{self.pattern}{of_pattern}, heads {self.key}/{self.value}, n {self.n}"

    def batch(self, target):
        return max(1, round(target / (self.per_head * HEADS)))

    def settings(self):
        """Those of a recipe, as the command takes them."""
        settings = {
            "data.context": self.n, "model.heads": HEADS, "model.width": HEADS * self.value,
            "model.key_ratio": self.key / self.value, "model.attention.stride": self.stride,
            "model.attention.parts": "[" + ", ".join(PARTS[self.pattern]) + "]",
            "model.attention.integration": "merged" if self.pattern == "fixed" else "interleaved",
            "model.attention.summary": self.width if self.pattern == "fixed" else "[]",
            "model.attention.distinct_heads": "false",
            "model.attention.window": self.window if self.pattern == "local" else 0,
        }
        return [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]

    def said_by(self, program, *command):
        try:
            done = subprocess.run([program, *command, *self.settings()], capture_output=True, text=True)
        except OSError as error:
            fail(f"{program} does not run: {error.strerror}; give the path of build/cuda/longstride")
        if done.returncode != 0:
            fail(f"{self}: {done.stderr.strip()}")
        return done.stdout

    def is_called_slow(self, program):
        said = self.said_by(program, "plan", str(RECIPE), "--device", "gpu")
        return any(line.startswith("slow ") for line in said.splitlines())

    def time(self, program, device, target):
        """ms, and pairs of tiles per ms."""
        batch = self.batch(target)
        said = self.said_by(program, "bench", "attention", str(RECIPE), "--json", "--batch", str(batch), "--repeats", "5",
                            "--device", device)
        try:
            lines = json.loads(said)["lines"]
            ms = next(line["ms"] for line in lines if line["name"].endswith("forward+backward"))
        except (ValueError, LookupError, TypeError, StopIteration):
            fail(f"{program} does not print the times of `bench attention`; give the path of build/cuda/longstride")
        return ms, self.per_head * batch * HEADS / ms


def shape_of(text):
    pattern, *numbers = text.split()
    if pattern not in PARTS or len(numbers) not in (5, 6) or not all(n.isdecimal() for n in numbers):
        raise argparse.ArgumentTypeError(f"{text!r} is not a shape: dense, local, column or fixed, then stride, summary "
                                         "width (0: none), key size, value size, n and, of local, the window")
    stride, width, key, value, n, *window = map(int, numbers)
    if not (stride and key and value and n and max(key, value) <= 128 and width <= stride):
        raise argparse.ArgumentTypeError(f"{text!r} has a size that is 0, heads above 128, or summaries above the stride")
    return Shape(pattern, stride, width, key, value, n, *window)


def draw(rng):
    pattern = rng.choice(["dense", "local", "local", "column", "column", "fixed", "fixed", "fixed"])
    key = value = rng.choice([16, 24, 32, 48, 64, 80, 96, 112, 128])
    if rng.random() < 0.3:
        value = rng.choice([32, 64, 96, 128])
    stride = rng.choice([rng.randrange(32, 1024), rng.randrange(32, 300)])
    width = rng.randrange(8, min(stride, 129)) if pattern == "fixed" else 0
    n = rng.randrange(4096, 32768)
    window = rng.choice([0, rng.randrange(32, 1024)]) if pattern == "local" else 0
    return Shape(pattern, stride, width, key, value, n, window)


def nearest(shape):
    """The one of the same pattern that is nearest in head sizes, then in the window or the stride."""
    def reach(of):
        return of.window if of.pattern == "local" else of.stride

    def distance(other):
        return (abs(math.log(sum(kernel_sizes(shape.key, shape.value)) / sum(kernel_sizes(other.key, other.value)))),
                abs(math.log(reach(shape) / reach(other))))
    return min((p for p in map(lambda p: Shape(*p), PUBLISHED) if p.pattern == shape.pattern), key=distance)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("program", help="build/cuda/longstride")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=whole, default=30, help="shapes to draw")
    parser.add_argument("--most", type=positive, default=1.3, help="times its work that a shape may take")
    parser.add_argument("--seconds", type=positive, default=300, help="draw no shape after so many")
    parser.add_argument("--device", choices=["gpu", "cpu"], default="gpu")
    parser.add_argument("--tiles", type=positive, default=60000,
                        help="pairs of tiles, about, in every measurement")
    parser.add_argument("--shape", action="append", type=shape_of, default=[], help="times this shape, draws none")
    options = parser.parse_args()
    began, rng, rates, over, unsaid, done = time.monotonic(), random.Random(options.seed), {}, 0, 0, 0
    count = len(options.shape) or options.count
    print("| shape | ms | times its work | plan | nearest published |\n|---|---|---|---|---|")
    while done < count and time.monotonic() - began < options.seconds:
        shape = options.shape[done] if options.shape else draw(rng)
        other = nearest(shape)
        if str(other) not in rates:
            rates[str(other)] = other.time(options.program, options.device, options.tiles)[1]
        ms, rate = shape.time(options.program, options.device, options.tiles)
        ratio = rates[str(other)] / rate / max(1, shape.sizes / other.sizes)
        done += 1
        said = ""
        if ratio > options.most:
            over += 1
            said = "slow" if shape.is_called_slow(options.program) else "**says nothing**"
            unsaid += said != "slow"
        print(f"| {shape} | {ms:.3f} | {ratio:.2f} | {said} | {other} |", flush=True)
    which = "given" if options.shape else f"of seed {options.seed}"
    print(f"\n{done} shapes {which}, {over} above {options.most} times their work, of which plan calls {over - unsaid} slow")
    sys.exit(1 if unsaid or done < count else 0)


if __name__ == "__main__":
    main()
