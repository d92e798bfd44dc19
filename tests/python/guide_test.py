"""Every Python example of docs/guide/from_python.md runs, in order, in a folder with the run and data that it names."""
import contextlib
import importlib.util
import io
import os
import unittest

from support import ROOT, command, need, noise, temporary_folder, write_recipe

need("torch", "numpy", "yaml", "h5py")
os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error")


def examples():
    """The indented blocks of the page, each as one text."""
    blocks, open_block = [], False
    for line in (ROOT / "docs" / "guide" / "from_python.md").read_text().splitlines():
        if line.startswith("    "):
            if not open_block:
                blocks.append("")
            blocks[-1] += line[4:] + "\n"
            open_block = True
        elif line:
            open_block = False
        elif open_block:
            blocks[-1] += "\n"
    return blocks


class Guide(unittest.TestCase):
    def test_every_example_runs(self):
        blocks = examples()
        self.assertEqual(blocks.pop(0).strip(), "pip install ./launch/python")
        self.assertEqual(len(blocks), 8)
        transformers = importlib.util.find_spec("transformers") is not None
        here = os.getcwd()
        with temporary_folder() as folder:
            (folder / "text.bin").write_bytes(noise(6000))
            (folder / "data").mkdir()
            command("prepare", "bytes", "--input", "text.bin", "--output", "data/mine.h5", folder=folder)
            data = {"kind": "bytes", "context": 128, "path": "data/mine.h5"}
            attention = {"integration": "merged", "parts": ["local", "column"], "stride": 8}
            write_recipe(folder / "r.yaml", data, {"attention": attention, "dropout": 0.1})
            command("train", "r.yaml", "--run", "runs/mine", "--device", "cpu", folder=folder)
            encoder = {"kind": "encoder", "norm": "post", "activation": "gelu", "embedding_norm": True,
                       "attention": {"parts": ["local"], "window": 9}}
            write_recipe(folder / "e.yaml", data, encoder, objective={"kind": "masked"})
            command("train", "e.yaml", "--run", "runs/encoder", "--device", "cpu", folder=folder)
            os.environ["HF_HOME"] = str(folder / "cache")
            os.chdir(folder)
            printed, names = io.StringIO(), {}
            try:
                with contextlib.redirect_stdout(printed):
                    for block in blocks:
                        if "transformers" in block and not transformers:
                            continue
                        exec(compile(block, "docs/guide/from_python.md", "exec"), names)
            finally:
                os.chdir(here)
            lines = printed.getvalue().splitlines()
            self.assertEqual(lines[0], "{'run': 'runs/mine', 'step': 12, 'weights': 'last', 'data': 'bytes'}")
            self.assertEqual(sum(line[2:].startswith("The wind") for line in lines), 2)
            self.assertEqual(sum(line.startswith("The wind") for line in lines), 1 if transformers else 0)
            again = names["again"](names["tokens"])
            self.assertEqual(tuple(again.shape), (1, 27, 256))


if __name__ == "__main__":
    unittest.main()
