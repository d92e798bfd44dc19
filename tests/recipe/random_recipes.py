#!/usr/bin/env python3
"""Trains random recipes for three steps and gives the runs to other commands. Each must end with exit code 0, or refuse
with 2 and sentences; nothing may crash, print NaN or take a minute. A number always gives the same recipe.

    random_recipes.py LONGSTRIDE [FIRST COUNT]
"""
import json
import pathlib
import random
import subprocess
import sys
import tempfile

LONGSTRIDE = str(pathlib.Path(sys.argv[1]).resolve())
FIRST, COUNT = (int(text) for text in sys.argv[2:4]) if len(sys.argv) > 2 else (0, 60)
PARTS = (["dense"], ["local"], ["column"], ["local", "column"], ["fixed_block"], ["fixed_block", "fixed_summary"],
         ["local", "fixed_summary"])


class Drawn:
    def __init__(self, number):
        self.random = random.Random(number)
        self.context = self.one_of(8, 16, 24, 33, 48, 64)
        self.heads = self.one_of(1, 2, 3, 4)
        self.by_distance = self.chance(0.7)
        self.streams = self.by_distance and self.chance(0.7)

    def one_of(self, *values):
        return self.random.choice(values)

    def chance(self, probability):
        return self.random.random() < probability

    def some(this, /, **settings):
        """Each with a probability, which comes first, and one of the values that follow."""
        return {key: this.one_of(*values) for key, (probability, *values) in settings.items() if this.chance(probability)}

    def recipe(self, data):
        batch = self.one_of(1, 2, 3, 4)
        made = {"name": "drawn", "data": {"kind": "bytes", "path": str(data), "context": self.context},
                "model": self.model(),
                "train": {"steps": 3, "global_batch": batch, "lr": self.one_of(1e-3, 1e-2), "warmup": 1,
                          "micro_batch": self.one_of(*(n for n in range(1, batch + 1) if batch % n == 0)),
                          "checkpoint_every": 2, "evaluate_every": 3}}
        if self.streams:
            made["data"]["order"] = "streams"
        if self.chance(0.3):
            made["optimizer"] = {"kind": self.one_of("adam", "adagrad", "adafactor", "muon")}
        return made

    def model(self):
        made = {"kind": "decoder", "layers": self.one_of(1, 2, 3), "heads": self.heads,
                "width": self.heads * self.one_of(4, 6, 8, 16)}
        made |= self.some(dropout=(0.5, 0, 0.1), norm=(0.3, "post"), activation=(0.4, "relu", "gelu", "geglu"),
                          attention_bias=(0.3, False), tied_output=(0.3, True), output_bias=(0.3, True),
                          embedding_scale=(0.3, True), query_key_norm=(0.2, True), key_ratio=(0.2, 0.5, 1, 2),
                          recompute=(0.3, "block", "selective", "automatic"))
        if not self.by_distance:
            return made | {"attention": self.pattern()} | self.some(positions=(0.5, "none", "data", "attention"))
        made |= {"positions": "none", "distance": self.distance()}
        return made | {"memory": self.memory()} if self.streams and self.chance(0.8) else made

    def pattern(self):
        parts, stride = self.one_of(*PARTS), self.one_of(2, 3, 8, 12, 16, 33)
        made = {"integration": self.one_of("merged", "multihead", "interleaved"), "parts": parts}
        if parts != ["dense"]:
            made["stride"] = stride
        if "local" in parts:
            made |= self.some(window=(0.4, 1, 5, 16, 70))
        if "fixed_summary" in parts:
            made |= {"summary": self.one_of(1, 2, stride // 2)}
            made |= self.some(summary_inclusive=(0.2, True), distinct_heads=(0.2, True))
        return made

    def distance(self):
        table = self.one_of("none", "sinusoid", "learned")
        made = {"table": table} | self.some(biases=(0.5, "none", "layer", "model"), window=(0.4, 1, 2, 5, 17, 64, 200),
                                            self=(0.3, True, False), dropout=(0.3, 0, 0.2))
        if table == "learned":
            made |= {"distances": self.one_of(4, 16, 64, 200)} | self.some(shared_table=(0.4, True, False))
        if table == "sinusoid":
            made |= self.some(distances=(0.2, 4, 16, 64), table_dropout=(0.3, 0, 0.2))
        if self.chance(0.25):
            made |= {"dilation": self.one_of(2, 3, 4), "dilated_heads": self.one_of(1, self.heads)}
        if self.chance(0.3):
            made["span"] = {"longest": self.one_of(4, 16, 100), "ramp": self.one_of(1, 4, 32),
                            "initial": self.one_of(0, 0.5, 1), "loss": self.one_of(0, 1e-4)}
        return made

    def memory(self):
        start = self.some(start=(0.3, "zeros"))
        if self.chance(0.6):
            return {"length": self.one_of(1, 7, 8, 16, 33, 64, 100)} | start
        rate = self.one_of(*(n for n in (1, 2, 3, 4, 8) if self.context % n == 0))
        compress = self.one_of("mean", "max", "convolution", "dilated", "most_used")
        made = {"length": self.context * self.one_of(1, 2), "rate": rate, "compress": compress,
                "compressed": self.context // rate + self.one_of(0, 1, 5, self.context // rate)} | start
        return made | self.some(reconstruction=(0.8, 0, 1)) if compress in ("convolution", "dilated") else made

    def commands(self):
        yield "eval", "run", "--split", "test", *(() if self.streams else ("--windows", "3"))
        if self.streams:
            yield ("eval", "run", "--split", "valid", "--memory", str(self.one_of(0, 3, self.context, 4 * self.context)),
                   *(("--clamp", str(self.one_of(1, 5))) if self.chance(0.3) else ()))
        yield "sample", "run", "--count", "1", "--length", str(self.one_of(5, self.context, 2 * self.context + 3))
        yield "show", "pattern", "run"
        yield "export", "run", "--output", "exported"
        yield "report", "run"
        yield ("train", "recipe.yaml", "--run", "run", "--resume-changed", "--set", "train.steps=5")


def ends_well(command, folder):
    """Whether it did what it was asked to. Raises if it neither did nor refused."""
    on_cpu = [] if command[0] in ("prepare", "show", "export", "report") else ["--device", "cpu"]
    done = subprocess.run([LONGSTRIDE, *command, *on_cpu], cwd=folder, capture_output=True, text=True, errors="replace",
                          timeout=60)
    sentences = done.stderr.strip().splitlines()
    refused = done.returncode == 2 and sentences and "internal" not in done.stderr
    if not (done.returncode == 0 or refused) or "nan" in done.stdout.lower().split():
        raise RuntimeError(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout[-500:]}{done.stderr[-2000:]}")
    return done.returncode == 0


def main():
    trained = 0
    with tempfile.TemporaryDirectory() as work:
        data = pathlib.Path(work) / "text.h5"
        letters = random.Random(1)
        text = pathlib.Path(work) / "text"
        text.write_text("".join(letters.choice("etaoin shrdlu\n") for _ in range(200000)))
        if not ends_well(["prepare", "bytes", "--input", str(text), "--split", "0.8,0.1,0.1", "--output", str(data)], work):
            sys.exit("random_recipes.py: the text was not prepared")
        for number in range(FIRST, FIRST + COUNT):
            folder = pathlib.Path(work) / str(number)
            folder.mkdir()
            drawn = Drawn(number)
            (folder / "recipe.yaml").write_text(json.dumps(drawn.recipe(data), indent=1))
            try:
                if ends_well(["train", "recipe.yaml", "--run", "run"], folder):
                    trained += 1
                    for command in drawn.commands():
                        ends_well(command, folder)
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                sys.exit(f"random_recipes.py: recipe {number}: {error}\n{(folder / 'recipe.yaml').read_text()}")
    print(f"{trained} of {COUNT} recipes trained, the others were refused")
    sys.exit(0 if trained >= COUNT // 2 else "random_recipes.py: fewer than half were accepted")


main()
