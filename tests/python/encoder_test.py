"""An encoder in PyTorch against the golden files, and against the command on a run."""
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

from support import ROOT, need

need("torch", "numpy")

import masks  # noqa: E402
import numpy  # noqa: E402
import torch  # noqa: E402
import vectors  # noqa: E402
from cases import ENCODERS  # noqa: E402
from generate import parameters, tokens_of  # noqa: E402

import random_blocks  # noqa: E402

import longstride  # noqa: E402
from longstride.model import blocks, patterns  # noqa: E402
from longstride.model.encoder import PAD, Encoder  # noqa: E402
from longstride.model.settings import Pattern  # noqa: E402

RECIPE = """name: e
data: {kind: bytes, path: x.h5, context: 48}
objective: {kind: %s}
model: {kind: encoder, layers: 2, width: 16, heads: 2, norm: post, activation: gelu, embedding_norm: true,
  attention: {integration: merged, parts: [local], window: 9}}
train: {steps: 3, global_batch: 2, lr: 1.0e-2, warmup: 1}
"""


def model_of(config):
    return Encoder({**config["model"], "context": config["data"]["context"], "picture": (),
                    "objective": config["objective"]})


class Shapes:
    def __init__(self, module):
        self.module = module

    def shapes(self):
        return {name: tuple(p.shape) for name, p in self.module.named_parameters()}


class Golden(unittest.TestCase):
    stored = vectors.read(pathlib.Path(ROOT / "tests" / "golden" / "cases.safetensors"))

    def test_losses_in_double(self):
        for name, config in ENCODERS.items():
            module = model_of(config).double().eval()
            module.load_state_dict(parameters(name, Shapes(module), torch.float64))
            rows = tokens_of(name, config)
            drawn = [masks.draw(config["objective"], row, 0, r) for r, row in enumerate(rows.numpy())]
            shown, weights = (torch.from_numpy(numpy.stack(part)) for part in zip(*drawn))
            nats = -torch.log_softmax(module.scores(shown), -1).gather(-1, rows.long()[..., None])[..., 0] * weights
            expected = torch.tensor(self.stored[name][1]["losses"], dtype=torch.float64)
            self.assertLess(float((nats.detach().flatten() - expected).abs().max()), 1e-11, name)


def toy(objective, **more):
    torch.manual_seed(1)
    made = Encoder({"kind": "encoder", "context": 48, "picture": (), "layers": 2, "width": 16, "heads": 2, "norm": "post",
                    "attention": {"integration": "merged", "parts": ["local"], "window": 9}, "objective": objective, **more})
    with torch.no_grad():
        for p in made.parameters():  # some of which are not drawn
            p.normal_(0, 0.3)
    return made.double().eval()


class Heads(unittest.TestCase):
    """What padding hides, and the shapes of scores."""

    def test_padding_is_seen_by_no_position_and_counts_in_no_mean(self):
        tokens = torch.arange(97, 117)[None]
        longer = torch.cat([tokens, torch.full((1, 12), PAD)], 1)
        for objective in ({"kind": "masked"}, {"kind": "classes", "classes": 3, "read": "mean"},
                          {"kind": "labels", "labels": 2, "read": "mean"}, {"kind": "sentences", "classes": 2},
                          {"kind": "spans"}):
            model = toy(objective)
            with torch.no_grad():
                alone, padded = model.scores(tokens), model.scores(longer)
                self.assertLess(float((model(tokens) - model(longer)[:, :20]).abs().max()), 1e-12)
            if objective["kind"] == "spans":
                self.assertEqual(alone.shape, (1, 2, 20))
                self.assertTrue(bool((padded[..., 20:] == -torch.inf).all()))
                padded = padded[..., :20]
            elif alone.dim() == 3:
                padded = padded[:, :20]
            self.assertLess(float((alone - padded).abs().max()), 1e-12, objective)

    def test_key_heads_of_global_rows_are_shared(self):
        attention = {"integration": "merged", "parts": ["local"], "window": 9}
        own = {"first": 2, "projections": "own"}
        few = toy({"kind": "masked"}, attention={**attention, "key_heads": 1}, **{"global": own})
        all_heads = toy({"kind": "masked"}, attention=attention, **{"global": own})
        for name, values in few.state_dict().items():
            if ".query_key_value." in name:
                query, *rest = values.split([16, 8, 8])
                values = torch.cat([query, *(part for part in rest for _ in range(2))])
            elif ".global_key_value." in name:
                values = torch.cat([part for part in values.split(8) for _ in range(2)])
            all_heads.state_dict()[name].copy_(values)
        with torch.no_grad():
            tokens = torch.arange(97, 117)[None]
            self.assertLess(float((few(tokens) - all_heads(tokens)).abs().max()), 1e-12)

    def test_random_blocks_are_those_of_the_golden_draw(self):
        for parts in (["block_window", "random_blocks"], ["random_blocks"]):
            pattern = Pattern({"integration": "merged", "parts": parts, "block": 64, "random": 3, "seed": 7}, 2,
                              direction="both")
            pattern.global_first = pattern.global_last = 1
            for head in range(2):
                self.assertEqual(blocks.drawn_blocks(pattern, 1, head, 11),
                                 random_blocks.drawn_blocks(7, 1, head, 11, 3, window=len(parts) == 2))

    def test_global_rows_see_all_and_are_seen_by_all(self):
        pattern = Pattern({"integration": "merged", "parts": ["local"], "window": 3}, 2, direction="both")
        pattern.global_first = 2
        i = torch.arange(9)
        allowed = patterns.mask(pattern, 0, 9, i, i)[0]
        expected = ((i[:, None] - i).abs() <= 1) | (i[:, None] < 2) | (i < 2)
        self.assertTrue(torch.equal(allowed, expected))

    def test_shifted_blocks_wrap(self):
        pattern = Pattern({"integration": "merged", "parts": ["shifted_block"], "blocks": 2, "shifts": {"0": 1, "1": 1}}, 2,
                          direction="both")
        i = torch.arange(7)
        own, other = patterns.mask(pattern, 0, 7, i, i)
        self.assertTrue(torch.equal(own, i[:, None] // 4 == i // 4))
        self.assertTrue(torch.equal(other, i[:, None] // 4 != i // 4))


class Runs(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        path = pathlib.Path(self.folder.name)
        (path / "t.txt").write_bytes(bytes(97 + i * i % 23 for i in range(3000)))
        self.command("prepare", "bytes", "--input", "t.txt", "--output", "x.h5")

    def command(self, *arguments):
        command = os.environ.get("LONGSTRIDE_COMMAND")
        if command is None:
            self.skipTest("LONGSTRIDE_COMMAND is not set")
        done = subprocess.run([command, *arguments], cwd=self.folder.name, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_hidden_rows_and_answers_are_the_commands(self):
        path = pathlib.Path(self.folder.name)
        (path / "r.yaml").write_text(RECIPE % "masked")
        self.command("train", "r.yaml", "--run", "run")
        text = (path / "t.txt").read_bytes()[:40]
        (path / "short.txt").write_bytes(text)
        self.command("encode", "run", "--input", "short.txt", "--output", "h.npy")
        model = longstride.load(path / "run")
        tokens = torch.tensor(list(text))[None]
        with torch.no_grad():
            found = model(tokens)[0].numpy()
            self.assertLess(numpy.abs(found - numpy.load(path / "h.npy")).max(), 1e-5)
            shown = tokens.clone()
            shown[0, 7] = 256
            best = torch.softmax(model.scores(shown)[0, 7], -1)
        (path / "m.txt").write_bytes(text[:7] + b"_" + text[8:])
        answer = json.loads(self.command("predict", "run", "--input", "m.txt", "--mask", "_"))
        self.assertEqual(answer["predicted"], int(best.argmax()))
        self.assertAlmostEqual(answer["probability"], float(best.max()), 5)

    def test_hidden_rows_of_every_form_are_the_commands(self):
        path = pathlib.Path(self.folder.name)
        (path / "text.txt").write_bytes(b"One sentence. Another one! And the rest of it")
        forms = {"longformer": "attention: {parts: [local], window: 9}, global: {first: 3, projections: own}",
                 "shared": "attention: {parts: [block_window], block: 8, sink: learned}, global: {first: 3}, rotary_base: 100",
                 "bigbird": "attention: {integration: merged, parts: [block_window, random_blocks], block: 64, random: 1, "
                            "seed: 3}, global: {first: 1, last: 1}",
                 "shifted": "attention: {parts: [shifted_block], blocks: 3, shifts: {0: 1, 1: 0, 2: 1}}"}
        for name, form in forms.items():
            context = 400 if name == "bigbird" else 48
            text = (path / "t.txt").read_bytes()[:context]
            (path / "row.bin").write_bytes(text)
            (path / "r.yaml").write_text(RECIPE.replace("context: 48", f"context: {context}").replace(
                "attention: {integration: merged, parts: [local], window: 9}", form) % "masked")
            self.command("train", "r.yaml", "--run", name)
            self.command("encode", name, "--input", "row.bin", "--output", f"{name}.npy")
            with torch.no_grad():
                found = longstride.load(path / name)(torch.tensor(list(text))[None])[0].numpy()
            self.assertLess(numpy.abs(found - numpy.load(path / f"{name}.npy")).max(), 1e-5, name)

    def test_what_cannot_be_is_refused(self):
        path = pathlib.Path(self.folder.name)
        (path / "r.yaml").write_text(RECIPE % "masked")
        self.command("train", "r.yaml", "--run", "run")
        model = longstride.load(path / "run")
        for tokens in (torch.full((1, 3), 260), torch.zeros(1, 49, dtype=torch.long)):
            with self.assertRaises(longstride.UserError):
                model(tokens)


if __name__ == "__main__":
    unittest.main()
