"""What Hugging Face's programs make of a folder that save_pretrained or `longstride export --hf` has written.

lm-evaluation-harness scores rows as `longstride eval` does, a pipeline writes text, and what Trainer has trained comes
back to the command.
"""
import json
import os
import tempfile
import unittest

from support import command, harness_scores, need, temporary_folder, write_dataset, write_recipe

need("torch", "numpy", "yaml", "h5py", "transformers", "accelerate", "lm_eval")
os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", TRANSFORMERS_VERBOSITY="error",
                  HF_HOME=tempfile.mkdtemp(prefix="longstride-test-hf-"), CUDA_VISIBLE_DEVICES="")

import numpy as np  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402

import longstride  # noqa: E402
from longstride.model.settings import Settings  # noqa: E402

CONTEXT = 48
TEXT = " ".join(f"The wind follows river {i * i % 97}, and {i % 13} birds follow it." for i in range(400)).encode()
MODEL = {"attention": {"integration": "merged", "parts": ["fixed_block", "fixed_summary"], "stride": 8,
                       "summary": [2, 3]}, "dropout": 0.1, "rotary_base": 100.0}
def rows_of(data):
    """The windows that `longstride eval` scores, as text."""
    return [data[at:at + CONTEXT] for at in range(0, len(data), CONTEXT)]


class Harness(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        context = temporary_folder()
        cls.folder = context.__enter__()
        cls.addClassCleanup(context.__exit__, None, None, None)
        splits = {"train": TEXT[:18000], "valid": TEXT[18000:18480], "test": TEXT[18480:18480 + 10 * CONTEXT]}
        cls.test = splits["test"]
        write_dataset(cls.folder / "text.h5", "bytes", {name: np.frombuffer(data, np.uint8)
                                                        for name, data in splits.items()})
        write_recipe(cls.folder / "small.json", {"path": "text.h5", "kind": "bytes", "context": CONTEXT}, MODEL,
                     steps=40, lr=0.02)
        command("train", "small.json", "--run", "run", "--device", "cpu", folder=cls.folder)
        longstride.load(cls.folder / "run").save_pretrained(cls.folder / "saved")

    def losses(self, run):
        """Nats of every byte of the rows of `test`, by the command."""
        file = self.folder / f"{run}.npy"
        command("eval", run, "--data", "text.h5", "--losses", file, "--force", "--device", "cpu", folder=self.folder)
        return np.load(file)

    def evaluated(self, kind, metric, rows, saved="saved", **arguments):
        return harness_scores(self.folder, saved, kind, metric, [row.decode() for row in rows], **arguments)

    def test_the_harness_scores_rows_as_eval_does(self):
        expected = self.losses("run").sum(1)
        short = self.test[:CONTEXT // 3]  # is scored next to longer ones
        _, found = self.evaluated("loglikelihood", "perplexity", [*rows_of(self.test), short])
        self.assertEqual(len(found), len(expected) + 1)
        for mine, theirs in zip([*expected, self.losses("run")[0, :len(short)].sum()], found):
            self.assertAlmostEqual(float(mine) / CONTEXT, -float(theirs) / CONTEXT, delta=1e-6)

    def test_the_harness_has_the_bits_per_byte_of_eval(self):
        result, _ = self.evaluated("loglikelihood_rolling", "bits_per_byte", rows_of(self.test))
        figure = json.loads(command("eval", "run", "--device", "cpu", "--json", folder=self.folder))["bits_per_byte"]
        self.assertAlmostEqual(result["bits_per_byte,none"], figure, delta=1e-6)

    def test_the_harness_scores_a_text_beyond_the_context_in_windows(self):
        text, window = self.test[:100], CONTEXT - 1
        model = longstride.load(self.folder / "saved")
        with torch.no_grad():
            of = [model.losses(torch.tensor([list(text[:window])])).sum()]
            for at in range(window, len(text), window):  # a window has the byte before it
                end = min(at + window, len(text))
                of.append(model.losses(torch.tensor([list(text[end - window - 1:end])]))[0, at - end:].sum())
        _, found = self.evaluated("loglikelihood_rolling", "bits_per_byte", [text], max_length=window)
        self.assertAlmostEqual(-float(found[0]) / 100, float(sum(of)) / 100, delta=1e-6)

    def test_a_pipeline_continues_text_as_the_model_does(self):
        write = transformers.pipeline("text-generation", model=str(self.folder / "saved"), trust_remote_code=True,
                                      device="cpu")
        found = write("The wind ", max_new_tokens=20, do_sample=False)[0]["generated_text"]
        model = longstride.load(self.folder / "saved")
        expected = model.generate(b"The wind ", length=29, temperature=0)[0]
        self.assertEqual(found, expected.decode(errors="replace"))
        drawn = write("The", max_new_tokens=10)[0]["generated_text"]
        self.assertTrue(drawn.startswith("The"))
        self.assertGreater(len(drawn), 3)

    def test_export_writes_what_save_pretrained_writes(self):
        command("export", "run", "--hf", "exported", folder=self.folder)
        exported, saved = self.folder / "exported", self.folder / "saved"
        names = sorted(path.name for path in saved.iterdir())
        self.assertEqual(sorted(path.name for path in exported.iterdir()), names)
        for name in set(names) - {"config.json", "model.safetensors"}:
            self.assertEqual((exported / name).read_text(), (saved / name).read_text(), name)
        configs = [json.loads((folder / "config.json").read_text()) for folder in (exported, saved)]
        settings = [Settings(config.pop("settings")).to_dict() for config in configs]
        self.assertEqual(configs[0], configs[1])
        self.assertEqual(settings[0], settings[1])
        mine, theirs = (longstride.load(folder).state_dict() for folder in (exported, saved))
        for name, tensor in theirs.items():
            self.assertTrue(torch.equal(mine[name], tensor), name)
        self.assertTrue(json.loads(command("eval", "exported", "--data", "text.h5", "--json", "--device", "cpu",
                                           folder=self.folder))["bits_per_byte"] > 0)

    def test_what_trainer_has_trained_comes_back(self):
        """Save, train in Trainer, save: eval, sample and report take the folder, and eval agrees with the module."""
        model = transformers.AutoModelForCausalLM.from_pretrained(self.folder / "saved", trust_remote_code=True)
        rows = [torch.tensor([256, *row]) for row in rows_of(TEXT[:40 * CONTEXT])]
        arguments = transformers.TrainingArguments(
            output_dir=str(self.folder / "trainer"), max_steps=6, per_device_train_batch_size=4, learning_rate=0.01,
            logging_steps=2, save_strategy="no", report_to=[], use_cpu=True, disable_tqdm=True)
        data = [{"input_ids": row, "labels": row} for row in rows]
        trainer = transformers.Trainer(model=model, args=arguments, train_dataset=data, eval_dataset=data[:4])
        trainer.train()
        trainer.evaluate()
        back = self.folder / "trainer"
        trainer.save_model(str(back))
        trainer.save_state()
        losses, before = self.losses("trainer"), self.losses("run")
        self.assertGreater(np.abs(losses - before).max(), 1e-2)  # it has learnt
        window = torch.tensor([list(row) for row in rows_of(self.test)])
        with torch.no_grad():
            packages = longstride.load(back).losses(window).numpy()
            again = transformers.AutoModelForCausalLM.from_pretrained(back, trust_remote_code=True).eval()
            logits = again(torch.nn.functional.pad(window, (1, 0), value=256)[:, :-1]).logits
            theirs = torch.nn.functional.cross_entropy(logits.transpose(1, 2), window, reduction="none").numpy()
        self.assertLess(abs(packages.mean() - losses.mean()), 1e-6)
        self.assertLess(abs(theirs.mean() - losses.mean()), 1e-6)
        self.assertLess(np.abs(packages - losses).max(), 2e-5)
        sample = command("sample", "trainer", "--prompt-text", "The ", "--length", "40", "--device", "cpu", "--quiet",
                         folder=self.folder)
        self.assertTrue(sample.startswith(b"The "))
        command("report", "trainer", "--output", "page.html", folder=self.folder)
        page = (self.folder / "page.html").read_text()
        self.assertIn("bits per byte by step", page)
        self.assertIn("<b>46</b><span>steps", page)

    def test_bfloat16_and_several_files_come_back(self):
        model = transformers.AutoModelForCausalLM.from_pretrained(self.folder / "saved", trust_remote_code=True,
                                                                  dtype=torch.bfloat16)
        model.save_pretrained(self.folder / "sharded", max_shard_size="20KB")
        self.assertGreater(len(list((self.folder / "sharded").glob("*.safetensors"))), 1)
        losses = self.losses("sharded")
        with torch.no_grad():
            expected = longstride.load(self.folder / "sharded").losses(
                torch.tensor([list(row) for row in rows_of(self.test)])).numpy()
        self.assertLess(abs(losses.mean() - expected.mean()), 1e-6)

    def test_a_folder_whose_code_is_not_ours_is_refused(self):
        foreign = self.folder / "foreign"
        foreign.mkdir()
        (foreign / "config.json").write_text(json.dumps({"model_type": "longstride", "architectures": ["OtherModel"]}))
        sentence = command("eval", "foreign", folder=self.folder, fails=True)
        self.assertIn("is not of a model that Longstride wrote", sentence)
        with self.assertRaisesRegex(longstride.UserError, "is not of a model that Longstride wrote"):
            longstride.load(foreign)


if __name__ == "__main__":
    unittest.main()
