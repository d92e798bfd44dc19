"""transformers reads what save_pretrained writes, with the code that lies beside the weights and nothing else."""
import json
import os
import pathlib
import subprocess
import sys
import textwrap
import unittest

from support import ROOT, need, noise, temporary_folder

need("torch", "numpy", "yaml", "transformers")
os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error")

import torch  # noqa: E402

from longstride.model.settings import Settings  # noqa: E402
from longstride.runs import Model  # noqa: E402

SETTINGS = {"kind": "decoder", "context": 48, "layers": 2, "width": 24, "heads": 2, "dropout": 0.1,
            "rotary_base": 100.0, "attention": {"integration": "merged", "parts": ["fixed_block", "fixed_summary"],
                                                "stride": 8, "summary": [2, 3]}}
READER = """
    import json, math, sys
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
    folder = sys.argv[1]
    model, report = AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True, output_loading_info=True)
    model.eval()
    window = torch.tensor([[256, *open(folder + "/window", "rb").read()]])
    out = {"missing": sorted(report["missing_keys"]), "unexpected": sorted(report["unexpected_keys"])}
    with torch.no_grad():
        out["loss"] = float(model(window, labels=window).loss)
        out["of two batches"] = [float(model(window, labels=window, num_items_in_batch=items).loss)
                                 for items in (96, torch.tensor(96))]
        out["logits"] = model(window[:, :20]).logits.flatten().tolist()
        out["without start"] = float((model(window[:, 1:20]).logits - model(window[:, :20]).logits[:, 1:]).abs().max())
        mixed = model(torch.cat([window[:, :20], window[:, 1:21]])).logits
        out["mixed"] = float((mixed[0, :20] - model(window[:, :20]).logits[0]).abs().max()
                             + (mixed[1] - model(window[:, :21]).logits[0, 1:]).abs().max())
        pad = torch.full((1, 7), 256)
        rows = torch.cat([window[:, :20], torch.cat([pad, window[:, :13]], 1), torch.cat([window[:, 1:14], pad], 1)])
        mask = torch.ones_like(rows)
        mask[1, :7] = mask[2, 13:] = 0
        padded = model(rows, attention_mask=mask, labels=torch.where(mask == 1, rows, -100))
        alone = [model(window[:, :20]), model(window[:, :13]), model(window[:, 1:14])]
        out["padded"] = float(sum((found - one.logits[0]).abs().max() for found, one in zip(
            (padded.logits[0], padded.logits[1, 7:], padded.logits[2, :13]), alone)))
        parts = [(model(one, labels=one).loss, one.shape[1] - 1)
                 for one in (window[:, :20], window[:, :13], window[:, 1:14])]
        whole = sum(loss * count for loss, count in parts) / sum(count for _, count in parts)
        out["padded loss"] = [float(padded.loss), float(whole)]
        rows = torch.cat([window, torch.cat([pad, window[:, :42]], 1)])  # as long as may be
        mask = torch.ones_like(rows)
        mask[1, :7] = 0
        loss = model(rows, attention_mask=mask, labels=torch.where(mask == 1, rows, -100)).loss
        alone = [model(one, labels=one).loss * (one.shape[1] - 1) for one in (window, window[:, :42])]
        out["longest padded loss"] = [float(loss), float(sum(alone)) / (48 + 41)]
        rows, mask = rows[:, :20].clone(), mask[:, :20]
        out["padded prompts"] = [model.generate(rows, attention_mask=mask, do_sample=False,
                                                max_new_tokens=40).tolist(),
                                 [model.generate(one, do_sample=False, max_new_tokens=40)[0].tolist()
                                  for one in (window[:, :20], window[:, :13])]]
        bare = window[:, 1:].to(torch.int32)
        out["loss without start"] = float(model(bare, labels=bare.long()).loss)
        out["greedy"] = model.generate(window[:, :6], do_sample=False, max_new_tokens=30)[0].tolist()
        longer = model.generate(window[:, 1:6], do_sample=False, max_length=60)[0].tolist()
        last = model.generate(torch.tensor([longer[24:59]]), do_sample=False, max_new_tokens=1)[0].tolist()
        out["longer"] = [longer, last]
        torch.manual_seed(1)
        out["drawn"] = model.generate(do_sample=True)[0].tolist()
    for name, call in {
        "twice": lambda: model(window[:, [0, 1, 0]]),
        "long": lambda: model(window), "empty": lambda: model(window[:, :0]),
        "ignored": lambda: model(torch.tensor([[256, 65, -100]])),
        "numbers": lambda: model(torch.tensor([[256.0, 65.0]])),
        "hole": lambda: model(window[:, :4], attention_mask=torch.tensor([[1, 0, 1, 1]])),
        "nothing": lambda: model(window[:, :4], attention_mask=torch.tensor([[0, 0, 0, 0]])),
        "other mask": lambda: model(window[:, :4], attention_mask=torch.tensor([[0, 1, 1]])),
        "positions": lambda: model(window[:, :4], position_ids=torch.arange(4)[None]),
    }.items():
        try:
            call()
        except (ValueError, IndexError, RuntimeError) as error:
            out[name] = str(error)
    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
    empty = model.generate(**tokenizer("", return_tensors="pt"), do_sample=False, max_new_tokens=6)
    out["empty prompt"] = [empty[0].tolist(), model.generate(do_sample=False, max_new_tokens=6)[0].tolist()]
    text = "Hä <|begin|> \\n\\x00 日本  "
    ids = tokenizer(text).input_ids
    out["text"] = [text, ids, tokenizer.decode(ids, skip_special_tokens=True)]
    model.train()
    model(window, labels=window).loss.backward()
    out["gradients"] = all(p.grad is not None for p in model.parameters())
    model.save_pretrained(folder + "-again")
    out["double"] = str(model.double()(window, labels=window).loss.dtype)
    out["modules"] = [name for name in sys.modules if name.split(".")[0] == "longstride"]
    json.dump(out, open(folder + "/out.json", "w"))
"""


# A model that remembers reads any number of windows.
REMEMBERS = {"kind": "decoder", "context": 12, "layers": 2, "width": 24, "heads": 2, "positions": "none",
             "distance": {"table": "sinusoid", "span": {"longest": 20, "ramp": 5, "initial": 0.4}},
             "memory": {"length": 24, "compressed": 6, "rate": 4}}
REMEMBERING_READER = """
    import json, sys
    import torch
    from transformers import AutoModelForCausalLM
    folder = sys.argv[1]
    model = AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True).eval()
    window = torch.tensor([[256, *open(folder + "/window", "rb").read()]])
    with torch.no_grad():
        out = {"loss": float(model(window, labels=window).loss),
               "greedy": model.generate(window[:, :6], do_sample=False, max_new_tokens=60)[0].tolist()}
    json.dump(out, open(folder + "/out.json", "w"))
"""


def read_elsewhere(reader, saved):
    """What `reader` finds in a process that has no longstride on its path."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(reader), str(saved)], cwd=str(saved.parent),
                          env={**environment, "HF_HOME": str(saved.parent / "cache")}, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)
    if done.returncode != 0:
        raise AssertionError(done.stdout.decode())
    return json.loads((saved / "out.json").read_text())


class Remembers(unittest.TestCase):
    def test_a_model_with_a_memory_reads_and_writes_beyond_its_context(self):
        with temporary_folder() as folder:
            torch.manual_seed(3)
            model = Model(Settings(REMEMBERS), {}).eval()
            torch.nn.init.normal_(model.output.weight, std=0.3)
            saved, window = pathlib.Path(folder) / "saved", noise(48)
            model.save_pretrained(saved)
            (saved / "window").write_bytes(window)
            found = read_elsewhere(REMEMBERING_READER, saved)
            with torch.no_grad():
                expected = float(model.losses(torch.tensor([list(window)])).mean())
            self.assertAlmostEqual(found["loss"], expected, delta=1e-6)
            self.assertEqual(found["greedy"], [256, *model.generate(window[:5], length=65, temperature=0)[0]])


class Hub(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        context = temporary_folder()
        cls.folder = pathlib.Path(context.__enter__())
        cls.addClassCleanup(context.__exit__, None, None, None)
        torch.manual_seed(3)
        cls.model = Model(Settings(SETTINGS), {"run": "small", "step": 7, "weights": "last", "data": "bytes"}).eval()
        torch.nn.init.normal_(cls.model.output.weight, std=0.3)
        saved = cls.folder / "saved"
        cls.model.save_pretrained(saved)
        cls.window = noise(48)
        (saved / "window").write_bytes(cls.window)
        cls.found = read_elsewhere(READER, saved)

    def test_every_weight_is_read_without_the_package(self):
        self.assertEqual((self.found["missing"], self.found["unexpected"], self.found["modules"]), ([], [], []))

    def test_the_loss_of_a_whole_window_is_the_models(self):
        tokens = torch.tensor([list(self.window)])
        with torch.no_grad():
            self.assertAlmostEqual(self.found["loss"], float(self.model.loss(tokens)), delta=1e-6)

    def test_a_step_of_several_batches_has_the_mean_of_all(self):
        for found in self.found["of two batches"]:
            self.assertAlmostEqual(found, self.found["loss"] / 2, delta=1e-6)

    def test_a_sequence_without_the_first_token_gets_it(self):
        self.assertLess(self.found["without start"], 1e-6)
        self.assertLess(self.found["mixed"], 1e-5)
        tokens = torch.tensor([list(self.window)])
        with torch.no_grad():
            expected = float(self.model.losses(tokens)[:, 1:].mean())
        self.assertAlmostEqual(self.found["loss without start"], expected, delta=1e-6)

    def test_padding_changes_nothing(self):
        self.assertLess(self.found["padded"], 1e-5)
        self.assertAlmostEqual(*self.found["padded loss"], delta=1e-6)
        self.assertAlmostEqual(*self.found["longest padded loss"], delta=1e-6)
        together, alone = self.found["padded prompts"]
        self.assertEqual(together[0], alone[0])
        self.assertEqual(together[1][7:42], alone[1][:35])  # before the longer one's window slides

    def test_the_tokenizer_gives_the_bytes_of_a_text(self):
        text, ids, again = self.found["text"]
        self.assertEqual(ids, list(text.encode()))
        self.assertEqual(again, text)

    def test_pictures_have_no_tokenizer(self):
        picture = {**SETTINGS, "picture": [4, 4, 3]}
        Model(Settings(picture), {}).save_pretrained(self.folder / "pictures")
        Model(Settings(SETTINGS), {"data": "audio"}).save_pretrained(self.folder / "sound")
        for folder in ("pictures", "sound"):
            self.assertEqual(list((self.folder / folder).glob("tokenizer*")), [])

    def test_the_loss_of_doubles_is_one(self):
        self.assertEqual(self.found["double"], "torch.float64")

    def test_logits_predict_the_next_byte_and_never_the_start(self):
        tokens = torch.tensor([list(self.window)])
        with torch.no_grad():
            expected = self.model(tokens)[:, :20]
        found = torch.tensor(self.found["logits"]).reshape(1, 20, 257)
        self.assertLess(float((found[..., :256] - expected).abs().max()), 1e-5)
        self.assertTrue(bool((found[..., 256] < -1e30).all()))

    def test_generate_continues_greedily_as_the_model_does(self):
        expected = self.model.generate(self.window[:5], length=35, temperature=0)[0]
        self.assertEqual(self.found["greedy"], [256, *expected])
        self.assertGreater(len(set(expected[5:])), 1)

    def test_the_start_stands_for_an_empty_prompt(self):
        found, nothing = self.found["empty prompt"]
        self.assertEqual(found, nothing)
        self.assertEqual(len(found), 7)

    def test_generate_draws_a_whole_context_from_nothing(self):
        self.assertEqual(self.found["drawn"][0], 256)
        self.assertEqual(len(self.found["drawn"]), 49)
        self.assertLess(max(self.found["drawn"][1:]), 256)

    def test_generate_writes_past_the_context_with_a_window_that_slides(self):
        longer, last = self.found["longer"]
        self.assertEqual(longer[:35], self.found["greedy"][1:])
        self.assertEqual((len(longer), longer[24:]), (60, last))

    def test_what_the_model_cannot_do_is_refused(self):
        for name, message in [
            ("empty", "input_ids must be whole numbers, (batch, positions): 256, then bytes"),
            ("twice", "input_ids has 256, but tokens are bytes, 0 to 255, after a first 256"),
            ("long", "the model was given 49 positions, but must be given from 1 to its context, 48"),
            ("ignored", "input_ids has -100, but tokens are bytes, 0 to 255, after a first 256"),
            ("numbers", "input_ids must be whole numbers, (batch, positions): 256, then bytes"),
            ("hole", "attention_mask hides positions within a sequence"),
            ("nothing", "attention_mask hides positions within a sequence, or all of one"),
            ("other mask", "attention_mask is (1, 3), but must have the shape of input_ids, (1, 4)"),
            ("positions", "position_ids is given, but a Longstride model does not take it"),
        ]:
            self.assertIn(message, self.found.get(name, "accepted"), name)

    def test_training_reaches_every_parameter(self):
        self.assertTrue(self.found["gradients"])

    def test_what_transformers_saves_is_loaded_by_the_package(self):
        from longstride import load
        for folder in ("saved", "saved-again"):
            again = load(self.folder / folder).state_dict()
            for name, tensor in self.model.state_dict().items():
                self.assertTrue(torch.equal(again[name], tensor), f"{folder} {name}")

    def test_the_code_saved_is_the_packages(self):
        code = ROOT / "launch" / "python" / "longstride" / "model"
        made = ("config.json", "generation_config.json", "model.safetensors", "window", "out.json")
        saved = {path.name: path.read_text() for path in (self.folder / "saved").iterdir() if path.name not in made}
        package = {path.name: path.read_text() for path in code.iterdir() if path.suffix in (".py", ".json")
                   and path.stem != "__init__" and not path.name.startswith("tokenization")}  # of pieces
        self.assertEqual(saved, package)


if __name__ == "__main__":
    unittest.main()
