"""The tokenizer of a run on SentencePiece's tokens, in the folder that save_pretrained and `longstride export --hf` write:
its ids are those of `longstride prepare`, and Hugging Face's programs read text by it."""
import copy
import json
import os
import pathlib
import pickle
import subprocess
import sys
import tempfile
import unittest

from support import SKIPPED, command, harness_scores, need, temporary_folder, write_recipe

need("torch", "numpy", "yaml", "h5py", "transformers", "accelerate", "lm_eval", "sentencepiece")
os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", TRANSFORMERS_VERBOSITY="error",
                  HF_HOME=tempfile.mkdtemp(prefix="longstride-test-hf-"), CUDA_VISIBLE_DEVICES="")

import h5py  # noqa: E402
import numpy as np  # noqa: E402
import sentencepiece  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402

import longstride  # noqa: E402
from longstride.model.tokenization_longstride import LongstrideTokenizer  # noqa: E402

CONTEXT, VOCABULARY = 24, 400
MODEL = {"attention": {"integration": "merged", "parts": ["local", "column"], "stride": 8}, "rotary_base": 100.0}
PLAIN = "".join(f"The wind follows river {i * i % 97}, and {i % 13} birds follow it.\n" for i in range(400))
ODD = ("a\u2581b \u2581\u2581 <|begin|> <unk> <0x0A><s>  two   spaces \n\n\ttab\r\n\0\0 H\u00e4 \u65e5\u672c \ufb01 \u1e9b\u0323 "
       "\U0001f600 1\u00a02 \u2047 e\u0301  ")
# Other models: with a space in front, without bytes, with pieces across words, with a symbol of the user's.
MODELS = {
    "llama": {"model_type": "bpe", "byte_fallback": True, "normalization_rule_name": "identity",
              "remove_extra_whitespaces": False},
    "normalised": {"model_type": "unigram", "byte_fallback": True},
    "without_bytes": {"model_type": "unigram"},
    "across": {"model_type": "unigram", "byte_fallback": True, "split_by_whitespace": False,
               "add_dummy_prefix": False, "remove_extra_whitespaces": False},
    "symbols": {"model_type": "bpe", "byte_fallback": True, "user_defined_symbols": ["<|begin|>", "river 9"]},
}
LATER = """
    import sys
    from transformers import AutoTokenizer
    try:
        AutoTokenizer.from_pretrained(sys.argv[1], trust_remote_code=True)
    except ImportError as error:
        print(error)
"""


def auto_tokenizer(folder):
    return transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=True)


def prepared(folder, text, *options):
    """The ids that `longstride prepare` gives a text."""
    (folder / "whole.txt").write_bytes(text.encode() if isinstance(text, str) else text)
    command("prepare", "tokens", "--input", "whole.txt", "--split", "1.0,0,0", "--output", "whole.h5", "--force", *options,
            folder=folder)
    with h5py.File(folder / "whole.h5") as file:
        return file["train"][()].ravel().tolist()


class Pieces(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        context = temporary_folder()
        cls.folder = context.__enter__()
        cls.addClassCleanup(context.__exit__, None, None, None)
        (cls.folder / "text.txt").write_text(PLAIN)
        try:
            command("prepare", "tokens", "--input", "text.txt", "--train-vocabulary", VOCABULARY, "--output", "text.h5",
                    folder=cls.folder)
        except AssertionError as error:
            if "needs SentencePiece" not in str(error):
                raise
            print("skipped: this build of longstride lacks SentencePiece")
            sys.exit(SKIPPED)
        data = {"path": "text.h5", "kind": "tokens", "vocabulary": VOCABULARY, "context": CONTEXT}
        write_recipe(cls.folder / "small.json", data, MODEL, steps=20, lr=0.02)
        command("train", "small.json", "--run", "run", "--device", "cpu", folder=cls.folder)
        cls.said = command("export", "run", "--hf", "exported", folder=cls.folder).decode()
        longstride.load(cls.folder / "run").save_pretrained(cls.folder / "saved")
        cls.tokenizer = auto_tokenizer(cls.folder / "saved")

    def test_export_writes_what_save_pretrained_writes(self):
        exported, saved = self.folder / "exported", self.folder / "saved"
        names = sorted(path.name for path in saved.iterdir())
        self.assertEqual(sorted(path.name for path in exported.iterdir()), names)
        for name in set(names) - {"config.json", "model.safetensors"}:
            self.assertEqual((exported / name).read_bytes(), (saved / name).read_bytes(), name)
        self.assertEqual((saved / "tokenizer.model").read_bytes(), (self.folder / "run/tokenizer.model").read_bytes())
        self.assertNotIn("tokenizer", self.said)
        longstride.load(saved).save_pretrained(self.folder / "again")
        self.assertEqual(sorted(path.name for path in (self.folder / "again").iterdir()), names)

    def test_ids_are_those_of_prepare_and_give_the_text_back(self):
        for text in (PLAIN, ODD, ODD * 3 + PLAIN):
            ids = prepared(self.folder, text, "--model", "run/tokenizer.model")
            self.assertEqual(self.tokenizer(text).input_ids, ids)
            self.assertEqual(self.tokenizer.decode(ids), text)
        self.assertEqual(self.tokenizer.decode(self.tokenizer("\ud800").input_ids), "\ufffd" * 3)
        damaged = b"\xffThe \x80wind\xe2\x82 follows\xed\xa0\x80 \xc3"  # no UTF-8
        self.assertEqual(self.tokenizer(damaged.decode("utf-8", "surrogateescape")).input_ids,
                         prepared(self.folder, damaged, "--model", "run/tokenizer.model"))

    def test_ids_of_other_models_are_those_of_prepare_too(self):
        for name, options in MODELS.items():
            path = self.folder / f"{name}.model"
            with open(path, "wb") as file:
                sentencepiece.SentencePieceTrainer.train(
                    sentence_iterator=iter((PLAIN + ODD).replace("\0", "").split("\n")), model_writer=file,
                    vocab_size=VOCABULARY, hard_vocab_limit=False, minloglevel=2, num_threads=1, **options)
            tokenizer = LongstrideTokenizer(str(path))
            for text in (PLAIN, ODD, ODD * 3 + PLAIN):
                ids = prepared(self.folder, text, "--model", path.name)
                self.assertEqual(tokenizer(text).input_ids, ids, name)
            self.assertEqual(tokenizer.bos_token_id, tokenizer.vocab_size)
            if name == "without_bytes":
                with self.assertRaisesRegex(ValueError, "has what is no UTF-8"):
                    tokenizer("a \udcff")
            if name == "llama":
                self.assertEqual(tokenizer.decode(tokenizer(ODD + PLAIN).input_ids), ODD + PLAIN)

    def test_the_start_is_the_id_beyond_the_pieces(self):
        tokenizer = self.tokenizer
        self.assertEqual((tokenizer.bos_token_id, tokenizer.pad_token_id, len(tokenizer)),
                         (VOCABULARY, VOCABULARY, VOCABULARY + 1))
        ids = tokenizer("The wind").input_ids
        self.assertEqual(tokenizer.decode([VOCABULARY, *ids], skip_special_tokens=True), "The wind")
        self.assertEqual(tokenizer.decode([VOCABULARY, *ids]), "<|begin|>The wind")
        self.assertEqual(tokenizer.decode(ids[0]), tokenizer.decode(ids[:1]))

    def test_copies_are_the_same_tokenizer(self):
        self.tokenizer.save_pretrained(self.folder / "copied")
        self.tokenizer.save_pretrained(self.folder / "copied")  # over itself
        for copied in (auto_tokenizer(self.folder / "copied"), copy.deepcopy(self.tokenizer),
                       pickle.loads(pickle.dumps(self.tokenizer))):
            self.assertEqual(copied(ODD).input_ids, self.tokenizer(ODD).input_ids)
            self.assertEqual(copied.bos_token_id, VOCABULARY)

    def test_a_pipeline_continues_text_as_the_model_does(self):
        write = transformers.pipeline("text-generation", model=str(self.folder / "exported"), trust_remote_code=True,
                                      device="cpu")
        found = write("The wind ", max_new_tokens=8, do_sample=False)[0]["generated_text"]
        ids = self.tokenizer("The wind ").input_ids
        expected = longstride.load(self.folder / "saved").generate([ids], length=len(ids) + 8, temperature=0)[0]
        self.assertEqual(found, self.tokenizer.decode(expected))
        sampled = command("sample", "exported", "--prompt-text", "The wind ", "--length", len(ids) + 8, "--temperature", 0,
                          "--device", "cpu", "--quiet", "--output", "drawn", folder=self.folder)
        self.assertEqual(sampled, b"")
        self.assertEqual((self.folder / "drawn/sample-000.txt").read_text(), found)

    def test_the_start_stands_for_an_empty_prompt(self):
        write = transformers.pipeline("text-generation", model=str(self.folder / "exported"), trust_remote_code=True,
                                      device="cpu")
        drawn = longstride.load(self.folder / "saved").generate([[]], length=6, temperature=0)[0]
        asked = {"max_new_tokens": 6, "do_sample": False}
        self.assertEqual(write("", **asked)[0]["generated_text"], self.tokenizer.decode(drawn))
        empty = write.model.generate(**self.tokenizer("", return_tensors="pt"), **asked)
        self.assertEqual(empty.tolist(), [[VOCABULARY, *drawn]])
        both = self.tokenizer(["", "The wind"], return_tensors="pt", padding=True, padding_side="left")
        alone = write.model.generate(**self.tokenizer("The wind", return_tensors="pt"), **asked)
        found = write.model.generate(**both, **asked).tolist()
        self.assertEqual([found[0][-6:], found[1]], [drawn, alone[0].tolist()])

    def test_the_harness_scores_as_the_model_does(self):
        texts = ["The wind follows river 7", "and 12 birds", "f\u00fcr"]
        figures, found = harness_scores(self.folder, "exported", "loglikelihood_rolling", "bits_per_byte", texts)
        model = longstride.load(self.folder / "run")
        with torch.no_grad():
            expected = [float(model.losses(torch.tensor([self.tokenizer(text).input_ids])).sum()) for text in texts]
        for mine, theirs in zip(expected, found):
            self.assertAlmostEqual(mine, -float(theirs), delta=1e-4)
        size = sum(len(text.encode()) for text in texts)
        self.assertAlmostEqual(figures["bits_per_byte,none"], sum(expected) / np.log(2) / size, delta=1e-5)

    def test_the_folder_has_the_figure_of_its_run(self):
        run, folder = (json.loads(command("eval", name, "--data", "text.h5", "--device", "cpu", "--json",
                                          folder=self.folder)) for name in ("run", "exported"))
        self.assertEqual(run["bits_per_byte"], folder["bits_per_byte"])

    def test_a_run_without_pieces_has_no_tokenizer(self):
        (np.arange(4000) ** 2 % 300).astype("<u2").tofile(self.folder / "ids.bin")
        command("prepare", "tokens", "--input", "ids.bin", "--vocabulary", "300", "--output", "ids.h5", folder=self.folder)
        write_recipe(self.folder / "ids.json", {"path": "ids.h5", "kind": "tokens", "vocabulary": 300, "context": CONTEXT},
                     MODEL, steps=2)
        command("train", "ids.json", "--run", "ids", "--device", "cpu", folder=self.folder)
        said = command("export", "ids", "--hf", "ids-hf", folder=self.folder).decode()
        self.assertIn("no tokenizer, as the run's data has no SentencePiece model", said)
        longstride.load(self.folder / "ids").save_pretrained(self.folder / "ids-saved")
        for folder in ("ids-hf", "ids-saved"):
            self.assertEqual(list((self.folder / folder).glob("token*")), [])
            model = transformers.AutoModelForCausalLM.from_pretrained(self.folder / folder, trust_remote_code=True)
            self.assertTrue(bool(model(torch.tensor([[300, 1, 299]])).logits.isfinite().all()))

    def test_a_changed_tokenizer_is_refused(self):
        changed = self.folder / "changed"
        subprocess.run(["cp", "-r", str(self.folder / "run"), str(changed)], check=True)
        with open(changed / "tokenizer.model", "ab") as file:
            file.write(b"x")
        with self.assertRaisesRegex(longstride.UserError, "is not the tokenizer that the run was trained with"):
            longstride.load(changed)
        self.assertIn("is not the tokenizer", command("export", "changed", "--hf", "no", folder=self.folder, fails=True))
        for name in ("exported", "saved"):
            folder = self.folder / f"{name}-changed"
            subprocess.run(["cp", "-r", str(self.folder / name), str(folder)], check=True)
            whole = (folder / "tokenizer.model").read_bytes()
            for content in (whole + b"x", b"", whole[:len(whole) // 2]):
                (folder / "tokenizer.model").write_bytes(content)
                with self.assertRaisesRegex(longstride.UserError, "is not the tokenizer that the run was trained with"):
                    longstride.load(folder)
                if content != whole + b"x":
                    with self.assertRaisesRegex(ValueError, "is no SentencePiece model, or is damaged"):
                        auto_tokenizer(folder)
            (folder / "tokenizer.model").unlink()
            with self.assertRaisesRegex(ValueError, "tokenizer.model: is missing"):
                auto_tokenizer(folder)

    def test_a_missing_package_is_named(self):
        absent = pathlib.Path(self.folder / "absent")
        absent.mkdir()
        (absent / "sentencepiece.py").write_text("raise ImportError(\"No module named 'sentencepiece'\")\n")
        said = subprocess.run([sys.executable, "-c", "\n".join(line[4:] for line in LATER.split("\n")),
                               str(self.folder / "saved")], env={**os.environ, "PYTHONPATH": str(absent)},
                              capture_output=True, text=True, check=True).stdout
        self.assertIn("pip install sentencepiece", said)


if __name__ == "__main__":
    unittest.main()
