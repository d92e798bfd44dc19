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

import longstride  # noqa: E402
from longstride.model.encoder import Encoder  # noqa: E402

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
