"""Random recipes for small models, and commands that must end well."""
import pathlib
import random
import subprocess

PARTS = ("dense", "local", "column", "fixed_block", "fixed_summary", "first")


class Drawn:
    """A recipe. sizes, contexts: those of heads and of sequences to choose from."""

    def __init__(self, number, sizes=(4, 6, 8, 16), contexts=(8, 16, 24, 33, 48, 64)):
        self.random = random.Random(number)
        self.size = self.one_of(*sizes)
        self.context = self.one_of(*contexts)
        self.heads = self.one_of(1, 2, 3, 4)
        self.by_distance = self.chance(0.6)
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
                          "checkpoint_every": 2, "evaluate_every": 3, "log_every": 1} |
                self.some(ema=(0.2, 0.5), clip=(0.3, 0, 0.1), schedule=(0.3, "constant", "reciprocal_sqrt"))}
        if self.streams:
            made["data"]["order"] = "streams"
        if self.chance(0.3):
            made["optimizer"] = {"kind": self.one_of("adam", "adagrad", "adafactor", "muon")}
        return made

    def model(self):
        made = {"kind": "decoder", "layers": self.one_of(1, 2, 3), "heads": self.heads, "width": self.heads * self.size}
        made |= self.some(dropout=(0.5, 0, 0.1), inner_dropout=(0.2, 0.1), embedding_dropout=(0.2, 0.1),
                          output_dropout=(0.2, 0.1), init_deviation=(0.3, 0.05), norm=(0.3, "post"),
                          activation=(0.4, "relu", "gelu", "geglu"), attention_bias=(0.3, False),
                          feed_forward_bias=(0.3, False), tied_output=(0.3, True), output_bias=(0.3, True),
                          embedding_scale=(0.3, True), query_key_norm=(0.2, True), key_ratio=(0.2, 0.5, 1, 2),
                          recompute=(0.3, "block", "selective", "automatic"),
                          adaptive=(0.2, {"cutoffs": [40, 41, 200]}, {"cutoffs": [100], "divide": 2}))
        if not self.by_distance:
            made |= self.some(positions=(0.5, "none", "data", "attention"), rotary_base=(0.3, 10000))
            return made | {"attention": self.pattern()}
        made |= {"positions": "none", "distance": self.distance()}
        return made | {"memory": self.memory()} if self.streams and self.chance(0.8) else made

    def pattern(self):
        integration = self.one_of("merged", "multihead", "interleaved")
        if integration == "merged":
            parts = [self.one_of("local", "fixed_block"), self.one_of("column", "fixed_summary", "first")]
        else:
            count = self.heads if integration == "multihead" else self.one_of(1, 2, 3)
            parts = [self.one_of(*PARTS) for _ in range(count)]
        stride = self.one_of(*(n for n in (2, 3, 8, 12, 16, 33) if n <= self.context))
        made = {"integration": integration, "parts": parts, "stride": stride}
        if "local" in parts:
            made |= self.some(window=(0.4, *(n for n in (1, 5, 16, 70) if n <= self.context)))
        if "first" in parts:
            made |= {"first": self.one_of(1, 4, 12)}
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


def text(folder, longstride):
    """The path of a dataset of random letters, which is made in the folder."""
    letters = random.Random(1)
    path = pathlib.Path(folder) / "text"
    path.write_text("".join(letters.choice("etaoin shrdlu\n") for _ in range(200000)))
    data = path.with_name("text.h5")
    if not ends_well(longstride, ["prepare", "bytes", "--input", str(path), "--split", "0.8,0.1,0.1", "--output", str(data)],
                     folder):
        raise RuntimeError("the text was not prepared")
    return data


def ends_well(longstride, command, folder, device="cpu", ranks=1, environment=None):
    """Whether it did what it was asked to. Raises if it neither did nor refused."""
    launcher = ["mpirun", "-n", str(ranks)] if ranks > 1 else []
    on_device = [] if command[0] in ("prepare", "show", "export", "report") else ["--device", device]
    done = subprocess.run([*launcher, longstride, *command, *on_device], cwd=folder, capture_output=True, text=True,
                          errors="replace", timeout=60, env=environment)
    refused = done.returncode == 2 and done.stderr.strip() and "internal" not in done.stderr
    if not (done.returncode == 0 or refused) or "nan" in done.stdout.lower().split():
        raise RuntimeError(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout[-500:]}{done.stderr[-2000:]}")
    return done.returncode == 0
