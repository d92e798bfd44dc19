"""Weights of transformers' Longformer and BigBird go into a run and out of it: the same logits, and the same bits again."""
import os
import pathlib
import subprocess
import tempfile
import unittest
import warnings

from support import need

need("torch", "transformers")

import torch  # noqa: E402
import transformers  # noqa: E402

import longstride  # noqa: E402
from longstride.model.encoder import PAD, Encoder  # noqa: E402
from longstride.tensors import read_tensors  # noqa: E402

SHAPE = {"kind": "encoder", "layers": 2, "width": 32, "heads": 4, "feed_forward_ratio": 2.0, "norm": "post",
         "activation": "gelu", "embedding_norm": True}
LONGFORMER = {**SHAPE, "attention": {"integration": "interleaved", "parts": ["local"], "window": 9}, "global": {"first": 3, "projections": "own"}}
BIGBIRD = {**SHAPE, "attention": {"integration": "merged", "parts": ["block_window", "random_blocks"], "block": 16,
                                  "random": 2, "seed": 5}, "global": {"first": 1, "last": 1}, "embedding_scale": True}
DENSE = {**SHAPE, "attention": {"integration": "interleaved", "parts": ["dense"]}}
OBJECTIVES = ({"kind": "masked"}, {"kind": "spans"}, {"kind": "sentences", "classes": 3},
              {"kind": "classes", "classes": 5, "read": "classify"})


def encoder_of(model, objective, context=160, **more):
    made = Encoder({**model, **more, "context": context, "picture": (), "objective": objective})
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name, p in made.named_parameters():
            p.copy_(torch.randn(p.shape, generator=generator) * 0.2 + (1 if name.endswith("norm.weight") else 0))
    return made.eval()


def tokens_of(batch=2, context=160):
    return torch.randint(0, 256, (batch, context), generator=torch.Generator().manual_seed(3))


def globals_of(tokens, model):
    mask = torch.zeros_like(tokens)
    mask[:, :model.settings.global_first] = 1
    return {"global_attention_mask": mask} if model.settings.pattern.parts == ["local"] else {}


class Logits(unittest.TestCase):
    def expect_equal(self, model, tokens, types=None):
        with torch.no_grad():
            theirs = longstride.to_transformers(model)
            more = globals_of(tokens, model)
            more |= {"attention_mask": (tokens != PAD).long()} if bool((tokens == PAD).any()) else {}
            found = theirs(tokens, token_type_ids=types, **more)
            kind = model.settings.objective["kind"]
            seen = tokens[0] != PAD
            if kind == "spans" and hasattr(found, "start_logits"):
                pairs = zip(model.scores(tokens, types).unbind(1), (found.start_logits, found.end_logits))
            elif hasattr(found, "logits"):
                pairs = [(model.scores(tokens, types), found.logits)]
            else:
                pairs = [(model(tokens, types), found.last_hidden_state)]
            for ours, other in pairs:
                self.assertEqual(ours.shape, other.shape)
                self.assertLess(float((ours - other)[:, seen].abs().max()), 1e-5)

    def test_of_every_head(self):
        for model in (LONGFORMER, BIGBIRD, DENSE):
            for objective in OBJECTIVES:
                self.expect_equal(encoder_of(model, objective), tokens_of())

    def test_of_longformer_without_global_rows(self):
        self.expect_equal(encoder_of({**LONGFORMER, "global": {}}, OBJECTIVES[0]), tokens_of())

    def test_with_types(self):
        types = (torch.arange(160) // 11 % 2).expand(2, -1)
        for model in (LONGFORMER, BIGBIRD):
            typed = encoder_of(model, OBJECTIVES[0], types="groups")
            self.expect_equal(typed, tokens_of(), types)
            with torch.no_grad():
                self.assertGreater(float((typed(tokens_of(), types) - typed(tokens_of())).abs().max()), 1e-3)

    def test_with_padding(self):
        tokens = tokens_of()
        tokens[:, 100:] = PAD
        for objective in (OBJECTIVES[0], OBJECTIVES[2]):
            self.expect_equal(encoder_of(LONGFORMER, objective), tokens)


class Weights(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name)

    def test_return_as_they_were(self):
        for name, model in (("longformer", LONGFORMER), ("bigbird", BIGBIRD)):
            for objective in OBJECTIVES[:3]:
                ours = encoder_of(model, objective, types="groups")
                theirs, file = longstride.to_transformers(ours), self.path / f"{name}-{objective['kind']}.safetensors"
                theirs.save_pretrained(self.path / file.stem)
                recipe = longstride.from_transformers(self.path / file.stem, file, types=True)
                self.assertEqual(recipe["data"]["context"], 160)
                again = Encoder({**recipe["model"], "context": 160, "picture": (), "objective": objective})
                if model is LONGFORMER:
                    self.assertEqual(recipe["model"]["attention"], LONGFORMER["attention"])
                tensors = read_tensors(file)
                expected = ours.state_dict()
                if (name, objective["kind"]) == ("bigbird", "spans"):  # transformers' head is another
                    expected = {key: value for key, value in expected.items() if not key.startswith("spans")}
                else:
                    again.load_state_dict(tensors)
                self.assertEqual(set(tensors), set(expected))
                for key, value in expected.items():
                    self.assertTrue(torch.equal(tensors[key], value), key)

    def test_of_published_shape_come_in_with_their_first_type(self):
        config = transformers.LongformerConfig(vocab_size=300, hidden_size=32, num_hidden_layers=1, num_attention_heads=4,
                                               intermediate_size=64, max_position_embeddings=66, attention_window=8,
                                               type_vocab_size=2, pad_token_id=1)
        theirs, file = transformers.LongformerForMaskedLM(config).eval(), self.path / "in.safetensors"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            recipe = longstride.from_transformers(theirs, file)
        tensors, table = read_tensors(file), theirs.longformer.embeddings
        self.assertEqual(recipe["data"]["context"], 64)
        self.assertNotIn("embedding.token.weight", tensors)
        expected = table.position_embeddings.weight[2:] + table.token_type_embeddings.weight[0]
        self.assertTrue(torch.equal(tensors["embedding.position.0.weight"], expected.detach()))

    def test_that_do_not_fit_are_refused(self):
        for change in ({"norm": "pre"}, {"activation": "relu"}, {"attention": {**DENSE["attention"], "key_heads": 2}, "global": {}}, {"embedding_norm": False},
                       {"attention": {**LONGFORMER["attention"], "sink": "learned"}}, {"global": {"first": 2}}):
            with self.assertRaises(longstride.UserError):
                longstride.to_transformers(encoder_of({**LONGFORMER, **change}, OBJECTIVES[0]))
        with self.assertRaises(longstride.UserError):
            longstride.to_transformers(torch.nn.Linear(1, 1))
        with self.assertRaisesRegex(longstride.UserError, "has no config.json"):
            longstride.from_transformers(self.path / "nowhere", self.path / "x.safetensors")
        (self.path / "config.json").write_text('{"model_type": "bert"}')
        with self.assertRaises(longstride.UserError):
            longstride.from_transformers(self.path, self.path / "x.safetensors")


class Runs(unittest.TestCase):
    def test_begin_with_the_file_and_give_the_same_logits(self):
        command = os.environ.get("LONGSTRIDE_COMMAND")
        if command is None:
            self.skipTest("LONGSTRIDE_COMMAND is not set")
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder)

            def run(*arguments):
                done = subprocess.run([command, *arguments], cwd=folder, capture_output=True, text=True)
                self.assertEqual(done.returncode, 0, done.stderr)

            (path / "t.txt").write_bytes(bytes(97 + i * i % 23 for i in range(30000)))
            run("prepare", "bytes", "--input", "t.txt", "--output", "x.h5")
            large = {**BIGBIRD, "attention": {**BIGBIRD["attention"], "block": 64, "random": 1}}
            for name, model in (("longformer", LONGFORMER), ("bigbird", large)):
                theirs = longstride.to_transformers(encoder_of(model, OBJECTIVES[0], 576))
                longstride.from_transformers(theirs, path / f"{name}.safetensors")
                text = (f"name: {name}\ndata: {{kind: bytes, path: x.h5, context: 576}}\nobjective: {{kind: masked}}\n"
                        f"model: {model}\ntrain: {{steps: 1, global_batch: 1, lr: 1.0e-30, warmup: 1}}\n")
                (path / "r.yaml").write_text(text.replace("True", "true").replace("'", ""))
                theirs.save_pretrained(path / f"{name}-folder")
                done = subprocess.run([command, "train", "r.yaml", "--run", "x", "--from", f"{name}-folder"], cwd=folder,
                                      capture_output=True, text=True)
                self.assertEqual(done.returncode, 2)
                self.assertIn("make a file of its weights with longstride.from_transformers", done.stderr)
                run("train", "r.yaml", "--run", name, "--from", f"{name}.safetensors", "--device", "cpu")
                ours, tokens = longstride.load(path / name), tokens_of(1, 576)
                again = longstride.to_transformers(ours)
                with torch.no_grad():
                    expected = theirs(tokens, **globals_of(tokens, ours)).logits
                    found = again(tokens, **globals_of(tokens, ours)).logits
                    self.assertLess(float((found - expected).abs().max()), 1e-5)
                    self.assertLess(float((ours.scores(tokens) - expected).abs().max()), 1e-5)
                (path / "row.bin").write_bytes(bytes(tokens[0].tolist()))
                run("encode", name, "--input", "row.bin", "--output", f"{name}.npy", "--device", "cpu")
                import numpy
                with torch.no_grad():
                    hidden = ours(tokens)[0].numpy()
                self.assertLess(abs(hidden - numpy.load(path / f"{name}.npy")).max(), 1e-5)


if __name__ == "__main__":
    unittest.main()
