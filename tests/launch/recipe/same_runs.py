#!/usr/bin/env python3
"""Trains random recipes in all the ways that must give the same numbers, and compares the runs.

    same_runs.py LONGSTRIDE [FIRST COUNT] [--device cpu|gpu] [--jobs 2]

The same bits in every loss, evaluation and weight: with another model.recompute, resumed from the middle, with
optimizer.shard and, on a GPU, without a CUDA graph. The same loss and norm of the gradient in the first step, but for
rounding: one sequence at a time, two ranks, two sequence ranks and, on a GPU, the CPU and bf16. (Later steps drift apart:
an optimizer that divides by a gradient's size makes much of the rounding of one that is nearly 0.) --jobs: recipes at a
time. Prints each difference; exits with 1 if there is one or fewer than half of the recipes train.
"""
import argparse
import concurrent.futures
import hashlib
import json
import math
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import drawn as draw

HALF, LAST = 3, 6  # steps


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("longstride")
    parser.add_argument("first", nargs="?", type=int, default=0)
    parser.add_argument("count", nargs="?", type=int, default=40)
    parser.add_argument("--device", choices=["cpu", "gpu"], default="cpu")
    parser.add_argument("--jobs", type=int, default=2)
    return parser.parse_args()


class Run:
    """What a run left: the losses of its steps, its evaluations without times, and digests of its last weights."""

    def __init__(self, folder):
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        self.losses = {line["step"]: line["loss"] for line in lines if "lr" in line}
        self.gradient = next(line["grad_norm"] for line in lines if line.get("step") == 1)
        self.evaluations = [self.without_times(line) for line in lines if "lr" not in line and line["step"] == LAST]
        self.weights = {}
        for path in sorted((folder / "checkpoints" / f"step-{LAST:08d}").glob("*.safetensors")):
            content = path.read_bytes()
            tensors = 8 + int.from_bytes(content[:8], "little")  # behind the header, which also has settings
            self.weights[path.name] = hashlib.sha256(content[tensors:]).hexdigest()

    @staticmethod
    def without_times(line):
        return {key: value for key, value in line.items() if not any(x in key for x in ("time", "second", "bytes"))}

    def difference(self, other):
        """What differs by a bit, or None."""
        for name in ("losses", "evaluations", "weights"):
            mine, others = getattr(self, name), getattr(other, name)
            if mine != others:
                return f"{name} {mine} and {others}"
        return None

    def is_near(self, other, loss, gradient):
        """loss, gradient: the largest relative differences in the first step."""
        return (self.losses.keys() == other.losses.keys() and all(map(math.isfinite, other.losses.values())) and
                abs(self.losses[1] - other.losses[1]) <= loss * self.losses[1] and
                abs(self.gradient - other.gradient) <= gradient * self.gradient)


class Recipe:
    def __init__(self, longstride, folder, drawn, data, device):
        self.longstride, self.folder, self.device, self.differences = longstride, folder, device, []
        self.recipe = drawn.recipe(data)
        self.recipe["train"] |= {"steps": LAST, "checkpoint_every": HALF, "evaluate_every": HALF, "evaluate_windows": 4,
                                 "lr": 0.01}
        self.recipe["model"]["init_deviation"] = 0.2  # the output too, so that all weights tell on the first loss
        folder.mkdir()
        (folder / "recipe.yaml").write_text(json.dumps(self.recipe, indent=1))
        cores = {"OMP_NUM_THREADS": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
                 "OMPI_MCA_hwloc_base_binding_policy": "none"}
        self.environment = os.environ | cores

    def trains(self, run, *settings, ranks=1, device=None, options=()):
        command = ["train", "recipe.yaml", "--run", run, *options]
        for setting in ("train.precision=fp32", *settings):
            command += ["--set", setting]
        return draw.ends_well(self.longstride, command, self.folder, device or self.device, ranks, self.environment)

    def has(self, run):
        return Run(self.folder / run)

    def must_equal(self, first, run):
        difference = self.has(first).difference(self.has(run))
        if difference:
            self.differences.append(f"{first} and {run}: {difference}")

    def must_be_near(self, run, loss=1e-5, gradient=1e-4, first="whole"):
        whole, other = self.has(first), self.has(run)
        if not whole.is_near(other, loss, gradient):
            self.differences.append(f"{first} and {run}: losses {whole.losses} and {other.losses}, norms of the first "
                                    f"gradient {whole.gradient} and {other.gradient}")

    def compare(self):
        """False if the recipe is refused."""
        if not self.trains("whole", "model.recompute=none"):
            return False
        for policy in ("selective", "block", "attention_and_feed_forward"):
            if self.trains(policy, f"model.recompute={policy}"):
                self.must_equal("whole", policy)
        shutil.copytree(self.folder / "whole", self.folder / "resumed")
        shutil.rmtree(self.folder / "resumed" / "checkpoints" / f"step-{LAST:08d}")
        if self.trains("resumed", "model.recompute=none", options=["--resume"]):
            self.must_equal("whole", "resumed")
        if self.trains("apart", "train.micro_batch=1"):
            self.must_be_near("apart")
        if self.device == "gpu":
            self.compare_with_cpu()
        elif self.recipe["train"]["global_batch"] % 2 == 0:
            self.compare_ranks()
        return True

    def compare_with_cpu(self):
        if self.trains("without-graph", "model.recompute=none", "train.graph=false"):
            self.must_equal("whole", "without-graph")
        if self.trains("cpu", device="cpu"):
            self.must_be_near("cpu")
        # With weights as large as the others have, 16 bits change half of a gradient, in PyTorch too; with these, 1% of it.
        small = "model.init_deviation=0.05"
        if self.trains("small", small) and self.trains("bf16", small, "train.precision=bf16"):
            self.must_be_near("bf16", loss=0.003, gradient=0.03, first="small")

    def compare_ranks(self):
        if self.trains("ranks", "train.micro_batch=0", ranks=2):
            self.must_be_near("ranks")
            if self.trains("shard", "train.micro_batch=0", "optimizer.shard=true", ranks=2):
                ranks, shard = self.has("ranks"), self.has("shard")
                ranks.weights, shard.weights = ({"model": run.weights["model.safetensors"]} for run in (ranks, shard))
                if ranks.difference(shard):
                    self.differences.append(f"ranks and shard: {ranks.difference(shard)}")
        if self.trains("sequence", "train.micro_batch=0", "parallel.sequence_ranks=2", ranks=2):
            self.must_be_near("sequence")


def main():
    given = arguments()
    longstride = str(pathlib.Path(given.longstride).resolve())
    sizes = {"sizes": (16, 24, 32, 40, 64, 80, 128), "contexts": (33, 64, 100, 192, 256, 520)} if given.device == "gpu" else {}
    with tempfile.TemporaryDirectory() as work:
        data = draw.text(work, longstride)

        def tried(number):
            folder = pathlib.Path(work) / str(number)
            try:
                recipe = Recipe(longstride, folder, draw.Drawn(number, **sizes), data, given.device)
                return number, recipe.compare(), recipe.differences, (folder / "recipe.yaml").read_text()
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                return number, True, [str(error)], (folder / "recipe.yaml").read_text()

        trained = differing = 0
        with concurrent.futures.ThreadPoolExecutor(given.jobs) as pool:
            for number, accepted, differences, recipe in pool.map(tried, range(given.first, given.first + given.count)):
                trained += accepted
                if differences:
                    differing += 1
                    print(f"recipe {number}:", *differences, recipe, sep="\n", flush=True)
    print(f"{trained} of {given.count} recipes trained, the others were refused; {differing} differ")
    sys.exit(differing > 0 or trained < given.count // 2)


main()
