"""`longstride.load` gives the figure of `longstride eval` to 1e-6 bits per byte, for the four families of table 1."""
import unittest

from support import DEVICE, command, figure, need, noise, temporary_folder, write_dataset, write_recipe

need("torch", "numpy", "yaml", "h5py")

import numpy  # noqa: E402

import longstride  # noqa: E402

SPLITS = ("train", "valid", "test")


def sequences(lengths):
    return {split: numpy.frombuffer(noise(n, seed=n), dtype=numpy.uint8) for split, n in zip(SPLITS, lengths)}


def pictures(counts, side):
    return {split: data.reshape(-1, 3 * side * side)
            for split, data in sequences([3 * side * side * count for count in counts]).items()}


class Families(unittest.TestCase):
    attention = "reference"

    @classmethod
    def setUpClass(cls):
        cls.context = temporary_folder()
        cls.folder = cls.context.__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.context.__exit__(None, None, None)

    def trained(self, name, data, model, **train):
        write_recipe(self.folder / f"{name}.yaml", {**data, "path": f"{name}.h5"}, model, **train)
        command("train", f"{name}.yaml", "--run", name, "--device", "cpu", folder=self.folder)
        return name

    def compare(self, name, *options, min_context=0, cross_files=False, **which):
        expected = figure(name, *options, folder=self.folder)
        split = longstride.read_split(self.folder / f"{name}.h5", "test", cross_files)
        model = longstride.load(self.folder / name, device=DEVICE, attention=self.attention, **which)
        self.assertEqual(model.attention, self.attention)
        found = longstride.evaluate(model, split, min_context)
        self.assertAlmostEqual(found.bits_per_byte, expected, delta=1e-6, msg=f"{name} {options}")
        self.assertLess(expected, 7.98, name)  # it has learnt something, so the weights matter
        if not options and not cross_files:  # which the folder does not say
            self.compare_saved(name, model, expected)

    def compare_saved(self, name, model, expected):
        """The folders that the command and this package write are one to both."""
        command("export", name, "--hf", f"{name}-hf", folder=self.folder)
        model.save_pretrained(self.folder / f"{name}-saved")
        self.assertEqual(longstride.load(self.folder / f"{name}-hf").settings.to_dict(), model.settings.to_dict())
        for folder in (f"{name}-hf", f"{name}-saved"):
            self.assertAlmostEqual(figure(folder, "--data", f"{name}.h5", folder=self.folder), expected, delta=1e-6)

    def test_text_fixed_merged_with_averages_and_every_choice_of_checkpoint(self):
        (self.folder / "text.bin").write_bytes(noise(12000))
        command("prepare", "bytes", "--input", "text.bin", "--output", "text.h5", folder=self.folder)
        attention = {"integration": "merged", "parts": ["fixed_block", "fixed_summary"], "stride": 16,
                     "summary": [4, 2], "distinct_heads": True}
        run = self.trained("text", {"kind": "bytes", "context": 128}, {"attention": attention}, ema=0.6)
        self.compare(run)
        self.compare(run, "--weights", "last", weights="last")
        self.compare(run, "--checkpoint", "best", checkpoint="best")
        self.compare(run, "--checkpoint", "4", checkpoint=4)
        self.compare(run, "--min-context", "100", min_context=100)
        choices = ([], ["--weights", "last"], ["--checkpoint", "4"])
        figures = {figure(run, *more, folder=self.folder) for more in choices}
        self.assertEqual(len(figures), 3)  # so a wrong choice would show

    def test_cifar10_strided_interleaved_with_positions_of_the_data(self):
        write_dataset(self.folder / "cifar.h5", "cifar10", pictures([4, 2, 3], 32), rows=32, columns=32, channels=3)
        attention = {"integration": "interleaved", "parts": ["column", "local", "local", "local"], "stride": 96,
                     "window": 96}
        model = {"layers": 3, "positions": "data", "key_ratio": 0.5, "feed_forward_ratio": 2.0, "dropout": 0.25,
                 "attention": attention}
        self.compare(self.trained("cifar", {"kind": "cifar10", "context": 3072}, model))

    def test_imagenet64_strided_with_positions_of_the_data(self):
        write_dataset(self.folder / "images.h5", "images", pictures([2, 1, 1], 64), rows=64, columns=64, channels=3)
        attention = {"integration": "interleaved", "parts": ["column", "local", "local", "local"], "stride": 128}
        model = {"positions": "data", "attention": attention}
        run = self.trained("images", {"kind": "images", "context": 12288}, model, steps=4, evaluate_every=0)
        self.compare(run)

    def test_audio_multihead_strided_by_file_and_across_files(self):
        for name, cross_files in [("audio", False), ("joined", True)]:
            data = sequences([4000, 1000, 1500])
            bounds = {split: numpy.array([0, len(data[split]) // 3, len(data[split])]) for split in SPLITS}
            write_dataset(self.folder / f"{name}.h5", "audio", data, boundaries=bounds, rate=12000,
                          encoding="mu-law 255")
            model = {"attention": {"integration": "multihead", "parts": ["local", "column"], "stride": 16}}
            run = self.trained(name, {"kind": "audio", "context": 256, "cross_files": cross_files}, model)
            self.compare(run, cross_files=cross_files)

    def test_rotary_normalised_keys_without_tables_as_in_recipes_beyond_the_paper(self):
        write_dataset(self.folder / "beyond.h5", "bytes", sequences([4000, 1000, 1500]))
        model = {"positions": "none", "rotary_base": 10000, "query_key_norm": True, "init": "deviation",
                 "attention": {"integration": "interleaved", "parts": ["local", "dense"], "stride": 16, "window": 40}}
        run = self.trained("beyond", {"kind": "bytes", "context": 256}, model, residual="fp32")
        self.compare(run)

    def test_sinks_with_a_window_and_the_first_keys(self):
        write_dataset(self.folder / "sinks.h5", "bytes", sequences([4000, 1000, 1500]))
        attention = {"integration": "merged", "parts": ["local", "first"], "stride": 16, "window": 20, "first": 3,
                     "sink": "learned", "key_heads": 1}
        model = {"positions": "none", "rotary_base": 10000, "attention": attention}
        run = self.trained("sinks", {"kind": "bytes", "context": 256}, model)
        self.compare(run)
        model = longstride.load(self.folder / run, device=DEVICE, attention=self.attention)
        self.assertGreater(float(model.layers[1].attention.sink.detach().abs().min()), 1e-3)
        command("sample", run, "--device", "cpu", "--count", 2, "--length", 60, "--seed", 5, "--output", "drawn",
                "--force", folder=self.folder)
        drawn = [(self.folder / "drawn" / f"sample-00{s}.txt").read_bytes() for s in range(2)]
        self.assertEqual(model.generate(count=2, length=60, seed=5), drawn)

    def test_the_form_of_transformer_xl(self):
        write_dataset(self.folder / "form.h5", "bytes", sequences([4000, 1000, 1500]))
        model = {"norm": "post", "activation": "relu", "attention_bias": False, "tied_output": True,
                 "output_bias": True, "embedding_scale": True, "init_deviation": 0.02,
                 "init_deviations": {"embedding": 0.03},
                 "attention": {"integration": "interleaved", "parts": ["local"], "stride": 32}}
        self.compare(self.trained("form", {"kind": "bytes", "context": 256}, model))


if __name__ == "__main__":
    unittest.main()
