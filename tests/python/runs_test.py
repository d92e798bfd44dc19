"""`longstride.load`: which checkpoint, what is refused, samples, and folders of save_pretrained."""
import hashlib
import importlib.util
import io
import json
import os
import pathlib
import shutil
import struct
import time
import unittest
import warnings

from support import command, figure, need, noise, temporary_folder, write_recipe

need("torch", "numpy", "yaml")

import numpy  # noqa: E402
import torch  # noqa: E402

import longstride  # noqa: E402
from longstride import checkpoint, tensors  # noqa: E402

ATTENTION = {"integration": "merged", "parts": ["local", "column"], "stride": 8}


class Runs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.context = temporary_folder()
        cls.folder = cls.context.__enter__()
        cls.addClassCleanup(cls.context.__exit__, None, None, None)
        (cls.folder / "text.bin").write_bytes(noise(6000))
        command("prepare", "bytes", "--input", "text.bin", "--output", "x.h5", folder=cls.folder)
        data = {"kind": "bytes", "context": 64, "path": "x.h5"}
        write_recipe(cls.folder / "r.yaml", data, {"attention": ATTENTION}, steps=60, checkpoint_every=20,
                     evaluate_every=20, ema=0.8, lr=0.02)
        command("train", "r.yaml", "--run", "run", "--device", "cpu", folder=cls.folder)

    def copied(self):
        name = f"copy{len(list(self.folder.iterdir()))}"
        shutil.copytree(self.folder / "run", self.folder / name)
        return self.folder / name

    def refused(self, message, call):
        with self.assertRaises(longstride.UserError) as caught:
            call()
        self.assertIn(message, str(caught.exception))
        self.assertNotIn("\n", str(caught.exception))

    def rewrite(self, run, change, step=60):
        """Changes the state.json of a checkpoint, by default the last, and its checksum with it."""
        path = run / "checkpoints" / f"step-{step:08}" / "state.json"
        state = json.loads(path.read_text())
        del state["checksum"]
        change(state)
        text = json.dumps(state, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        state["checksum"] = hashlib.sha256(text.encode()).hexdigest()
        path.write_text(json.dumps(state))

    def test_samples_are_those_of_the_command(self):
        model = longstride.load(self.folder / "run")
        (self.folder / "prompt").write_bytes(noise(10))
        for options, more in [
            (["--temperature", 0], {"temperature": 0}),
            (["--seed", 7, "--temperature", 0.8, "--length", 50], {"seed": 7, "temperature": 0.8, "length": 50}),
            (["--seed", 7, "--top-k", 5], {"seed": 7, "top_k": 5}),
            (["--prompt", "prompt", "--top-p", 0.5], {"prompt": noise(10), "top_p": 0.5}),
        ]:
            command("sample", "run", "--device", "cpu", "--count", 3, "--output", "out", "--force", *options,
                    folder=self.folder)
            expected = [(self.folder / "out" / f"sample-00{s}.txt").read_bytes() for s in range(3)]
            self.assertEqual(model.generate(count=3, **more), expected, options)
        self.assertGreater(len(set(expected)), 1)

    def test_a_loaded_model_says_which_run_it_is(self):
        model = longstride.load(str(self.folder / "run"), checkpoint=40, weights="last")
        origin = {"run": str(self.folder / "run"), "step": 40, "weights": "last", "data": "bytes",
                  "other_weights": "average"}
        self.assertEqual(model.origin, origin)
        self.assertEqual(longstride.load(self.folder / "run", numpy.int64(40), weights="last").origin, origin)
        average = longstride.load(self.folder / "run", 40).origin
        self.assertEqual(average, {**origin, "weights": "average", "other_weights": "last"})
        self.assertFalse(model.training)
        self.assertEqual(longstride.load(self.folder / "run", dtype=torch.float64).output.weight.dtype, torch.float64)

    def test_arguments_are_refused_in_one_sentence(self):
        run = self.folder / "run"
        for options, message in [
            ({"checkpoint": 41}, f"{run}: holds no checkpoint of step 41; choose from 20, 40 and 60"),
            ({"checkpoint": "newest"}, 'checkpoint is "newest", but must be best, last, or a step such as 1000'),
            ({"checkpoint": True}, "checkpoint is true"),
            ({"checkpoint": None}, "checkpoint is null"),
            ({"weights": "mean"}, 'weights is "mean", but must be automatic, last or average'),
            ({"dtype": torch.int8}, 'dtype is "torch.int8", but must be one of torch.float32'),
            ({"device": "gpu"}, 'device is "gpu", but must be one that PyTorch has here, such as "cpu": '),
            ({"device": "hpu"}, 'device is "hpu", but must be one that PyTorch has here'),
            ({"device": "meta"}, 'device is "meta", whose tensors hold no values, but must be one that keeps the weights'),
            ({"attention": "flash"}, 'attention is "flash", but must be auto, reference or kernels'),
        ]:
            self.refused(message, lambda options=options: longstride.load(run, **options))
        self.refused("nowhere: there is no such run; give the directory of one",
                     lambda: longstride.load(self.folder / "nowhere"))
        self.refused("run is NoneType, but must be the path of a file or folder", lambda: longstride.load(None))
        self.refused(": cannot be read: File name too long", lambda: longstride.load("n" * 300))
        model = longstride.load(run)
        self.refused("folder is int, but must be the path", lambda: model.save_pretrained(5))

    def test_read_split_refuses_what_is_no_dataset(self):
        if importlib.util.find_spec("h5py") is None:
            self.skipTest("this Python has no h5py")
        for path, message in [
            (None, "path is NoneType, but must be the path of a file or folder"),
            (self.folder / "nowhere.h5", "nowhere.h5: cannot be read: No such file or directory"),
            (self.folder, ": cannot be read: Is a directory"),
            (self.folder / "text.bin", "text.bin: is damaged or not HDF5; give a dataset that `longstride"),
        ]:
            self.refused(message, lambda path=path: longstride.read_split(path))

    def test_a_run_without_an_average_has_none_to_load(self):
        data = {"kind": "bytes", "context": 64, "path": "x.h5"}
        write_recipe(self.folder / "plain.yaml", data, {"attention": ATTENTION}, steps=2, warmup=1, evaluate_every=0)
        command("train", "plain.yaml", "--run", "plain", "--device", "cpu", folder=self.folder)
        self.refused("plain: the run keeps no average of its weights (train.ema is 0)",
                     lambda: longstride.load(self.folder / "plain", weights="average"))
        origin = longstride.load(self.folder / "plain").origin
        self.assertEqual((origin["weights"], "other_weights" in origin), ("last", False))

    def test_a_damaged_last_checkpoint_gives_way_as_in_eval(self):
        for damage in (lambda p: p.write_bytes(p.read_bytes()[:-2]), lambda p: p.unlink(),
                       lambda p: p.write_bytes(p.read_bytes()[:-1] + b"\x7f")):
            for name in ("model.safetensors", "ema.safetensors", "optimizer-00000-of-00001.safetensors", "state.json"):
                run = self.copied()
                damage(run / "checkpoints" / "step-00000060" / name)
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always")
                    model = longstride.load(run)
                self.assertEqual(model.origin["step"], 40, name)
                self.assertIn("the checkpoint of step 60 is skipped: ", str(caught[0].message))
                with self.assertRaises(longstride.UserError):
                    longstride.load(run, checkpoint=60)
        self.assertEqual(json.loads(command("eval", run, "--device", "cpu", "--json", folder=self.folder))["step"], 40)
        self.refused("the checkpoint of step 60 cannot be read (", lambda: longstride.load(run, checkpoint=60))

    def test_keys_of_the_recipe_are_known_or_refused(self):
        for old, new, message in [
            ("heads: 2", "heads: 2\n  gate: true", 'model has a key "gate" that this version'),
            ("stride: 8", "stride: 8\n    spacing: 2", 'model.attention has a key "spacing"'),
            ("context: 64", "context: 64\n  objective: masked", 'data has a key "objective"'),
            ("name: \"small\"", "name: small\nobjective: masked", 'objective is "masked", but must be a map of keys'),
            ("name: \"small\"", "name: small\nobjective: {kind: masked}", "'kind' is \"masked\", but must be one of"),
            ("name: \"small\"", "name: small\ngate: true", 'has a key "gate"'),
            ("name: \"small\"", "name: [small", "the recipe is not YAML"),
            ("name: \"small\"", "name: !!python/object/apply:os.abort []", "the recipe has a tag; recipes have none"),
            ("name: \"small\"", "name: &a small\nreproduces: *a", "the recipe has an anchor or alias; recipes have none"),
            ("name: \"small\"", "name: " + "[" * 1000, "the recipe has more than 10000 values or 16 levels"),
            ("name: \"small\"", "name: [" + "1," * 20000 + "1]", "the recipe has more than 10000 values"),
            ("name: \"small\"", "name: small\nname: other", "the recipe has a key twice"),
            ("name: \"small\"", "name: " + "9" * 5000, "the recipe is not YAML"),
            ("heads: 2", "heads: 2026-99-99", "'heads' is \"2026-99-99\", but must be a whole number"),
            ("heads: 2", "heads: 1:2", "'heads' is \"1:2\", but must be a whole number"),
            ("context: 64", "context: 65", "tensor \"embedding.position.0.weight\" is torch.float32 (8, 24)"),
            ("layers: 2", "layers: 3", "does not hold each element of 'layers.2.attention_norm.weight' (24,)"),
            ("layers: 2", "layers: 1", "holds tensor \"layers.1."),
        ]:
            run = self.copied()

            def change(state, old=old, new=new):
                self.assertIn(old, state["recipe"])
                state["recipe"] = state["recipe"].replace(old, new, 1)

            self.rewrite(run, change)
            self.refused(message, lambda run=run: longstride.load(run, checkpoint=60))

    def test_what_looks_like_a_date_is_text(self):
        run = self.copied()
        self.rewrite(run, lambda state: state.update(recipe=state["recipe"].replace('"small"', "2026-99-99")))
        self.assertEqual(longstride.load(run, checkpoint=60).origin["step"], 60)
        command("eval", run, "--checkpoint", 60, "--device", "cpu", folder=self.folder)

    def test_aliases_that_multiply_are_refused_at_once(self):
        levels = "\n".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 40))
        run = self.copied()
        self.rewrite(run, lambda state: state.update(recipe="a0: &a0 [x, x]\n" + levels))
        began = time.monotonic()
        self.refused("the recipe has an anchor or alias", lambda: longstride.load(run, checkpoint=60))
        self.assertLess(time.monotonic() - began, 5)

    def test_links_and_devices_in_a_run_are_not_read(self):
        for target in ("/dev/zero", str(self.folder / "run/checkpoints/step-00000060/state.json"), "nowhere"):
            run = self.copied()
            state = run / "checkpoints/step-00000060/state.json"
            state.unlink()
            state.symlink_to(target)
            self.refused("state.json: is a link, and links within", lambda: longstride.load(run, checkpoint=60))
        state.unlink()
        os.mkfifo(state)
        self.refused("state.json: is not a regular file", lambda: longstride.load(run, checkpoint=60))
        state.unlink()
        with open(state, "wb") as file:
            file.truncate(6 << 30)
        self.refused("state.json: has more than 8388608 bytes", lambda: longstride.load(run, checkpoint=60))
        for name in ("checkpoints", "checkpoints/step-00000040", "checkpoints/step-00000020/ema.safetensors"):
            run = self.copied()
            shutil.move(run / name, run / "aside")
            (run / name).symlink_to(run / "aside")
            self.refused(": is a link, and links within", lambda: longstride.load(run, checkpoint=20))
        linked = self.folder / "linked"
        linked.symlink_to(self.folder / "run")  # the run itself may be one
        self.assertEqual(longstride.load(linked).origin["step"], 60)

    def test_tensors_of_another_step_are_refused(self):
        run = self.copied()
        name, steps = "ema.safetensors", run / "checkpoints"
        shutil.copy(steps / "step-00000020" / name, steps / "step-00000060" / name)
        content = (steps / "step-00000060" / name).read_bytes()
        digest = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        self.rewrite(run, lambda state: state["files"].update({name: digest}))
        message = "ema.safetensors: holds tensors of step"
        self.refused(message, lambda: longstride.load(run, checkpoint=60))
        self.assertIn(message, command("eval", run, "--checkpoint", 60, folder=self.folder, fails=True))

    def test_a_file_of_holes_is_refused_unread(self):
        run = self.copied()
        path = run / "checkpoints/step-00000060/optimizer-00000-of-00001.safetensors"
        with open(path, "r+b") as file:
            file.truncate(1 << 42)
        self.rewrite(run, lambda state: state["files"][path.name].update(bytes=1 << 42))
        message = "of its 4398046511104 bytes next to none are stored; copy it again"
        self.refused(message, lambda: longstride.load(run, checkpoint=60))
        self.assertIn(message, command("eval", run, "--checkpoint", 60, folder=self.folder, fails=True))

    def test_the_best_is_the_newest_of_the_lowest_losses_over_as_many_bytes_as_the_newest(self):
        for losses, sizes, best in [((2.0, 1.0, 3.0), (9, 9, 9), 40), ((1.0, 1.0, 3.0), (9, 9, 9), 40),
                                    ((1.0, 2.0, 3.0), (8, 9, 9), 40), ((None, 2.0, 1.5), (9, 9, 9), 60)]:
            run = self.copied()
            for step, loss, size in zip((20, 40, 60), losses, sizes):
                self.rewrite(run, lambda state: state.update(valid_loss=loss, valid_bytes=size), step)
            self.assertEqual(longstride.load(run, checkpoint="best").origin["step"], best, losses)
            chosen = json.loads(command("eval", run, "--checkpoint", "best", "--device", "cpu", "--json",
                                        folder=self.folder))
            self.assertEqual(chosen["step"], best, losses)
        for step in (20, 40, 60):
            self.rewrite(run, lambda state: state.pop("valid_loss"), step)
        self.refused("none of its checkpoints has a validation loss to choose the best by",
                     lambda: longstride.load(run, checkpoint="best"))

    def test_a_later_format_is_refused_even_if_an_older_checkpoint_is_there(self):
        run = self.copied()
        self.rewrite(run, lambda state: state.update(version=99, recipe=7))
        self.refused("step-00000060: is a checkpoint of a later version of Longstride", lambda: longstride.load(run))

    def test_shards_of_the_average_are_joined(self):
        run = self.copied()
        directory = run / "checkpoints" / "step-00000060"
        whole = tensors.read_tensors(directory / "ema.safetensors")
        name = "layers.0.feed_forward.inner.weight"
        flat = whole[name].reshape(-1)
        rest = {key: value for key, value in whole.items() if key != name}
        first = {f"{name}[0:100]": flat[:100], **dict(list(rest.items())[:5])}
        second = {f"{name}[100:{flat.numel()}]": flat[100:], **dict(list(rest.items())[5:])}
        (directory / "ema.safetensors").unlink()

        def change(state):
            state["files"].pop("ema.safetensors", None)
            for index, part in enumerate((first, second)):
                path = directory / f"ema-0000{index}-of-00002.safetensors"
                tensors.write_tensors(path, part, {"format": "pt"})
                state["files"][path.name] = {"bytes": path.stat().st_size,
                                             "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}

        self.rewrite(run, change)
        expected = longstride.load(self.folder / "run").state_dict()
        for key, value in longstride.load(run).state_dict().items():
            self.assertTrue(torch.equal(value, expected[key]), key)
        self.assertEqual(figure(run, folder=self.folder), figure("run", folder=self.folder))  # the command agrees
        del first[f"{name}[0:100]"]
        self.rewrite(run, change)
        self.refused(f"does not hold each element of '{name}'", lambda: longstride.load(run, checkpoint=60))

    def test_a_saved_folder_loads_as_the_run_does(self):
        model, saved = longstride.load(self.folder / "run"), self.folder / "saved"
        model.save_pretrained(saved)
        again = longstride.load(saved)
        tokens = torch.frombuffer(bytearray(noise(64)), dtype=torch.uint8)[None]
        self.assertTrue(torch.equal(again(tokens), model(tokens)))
        self.assertEqual(again.origin, {**model.origin, "run": "run"})
        self.assertEqual(again.settings.to_dict(), model.settings.to_dict())
        for dtype in (torch.float64, torch.bfloat16):
            longstride.load(self.folder / "run", dtype=dtype).save_pretrained(self.folder / str(dtype))
            state = longstride.load(self.folder / str(dtype), dtype=torch.float64).state_dict()
            for name, tensor in model.state_dict().items():
                self.assertTrue(torch.equal(state[name], tensor.to(dtype).double()), f"{dtype} {name}")
        self.refused("saved: exists already and is not an empty folder", lambda: model.save_pretrained(saved))
        self.refused("saved: is written by save_pretrained and holds one set of weights",
                     lambda: longstride.load(saved, checkpoint="best"))
        self.refused("cannot be written: ", lambda: model.save_pretrained(self.folder / "text.bin" / "inside"))
        left = [path.name for path in self.folder.iterdir() if path.name.startswith(".tmp")]
        self.assertEqual(left, [])
        for name, content, message in [("config.json", "{", "config.json: is not JSON"),
                                       ("config.json", "{}", "is not of a model that Longstride wrote"),
                                       ("config.json", '{"model_type": "longstride"}', "settings is null"),
                                       ("model.safetensors", "x", "not a valid safetensors file: it holds 1 bytes")]:
            other = self.folder / f"saved-{len(message)}"
            shutil.copytree(saved, other)
            (other / name).write_text(content)
            self.refused(message, lambda other=other: longstride.load(other))

    def test_weights_that_transformers_has_divided_between_files_are_loaded(self):
        model, saved = longstride.load(self.folder / "run"), self.folder / "divided"
        model.save_pretrained(saved)
        weights = list(tensors.read_tensors(saved / "model.safetensors").items())
        (saved / "model.safetensors").unlink()
        index = {}
        for name, part in (("one.safetensors", weights[:3]), ("two.safetensors", weights[3:])):
            tensors.write_tensors(saved / name, dict(part), {})
            index.update({key: name for key, _ in part})
        listed = saved / "model.safetensors.index.json"
        listed.write_text(json.dumps({"weight_map": index}))
        again = longstride.load(saved).state_dict()
        for name, tensor in model.state_dict().items():
            self.assertTrue(torch.equal(again[name], tensor), name)
        for content, message in [("{", "must be JSON whose 'weight_map' names a file"),
                                 ('{"weight_map": {"a": "../x"}}', "must be JSON whose 'weight_map' names a file"),
                                 ('{"weight_map": {"a": []}}', "must be JSON whose 'weight_map' names a file"),
                                 ('{"weight_map": {"a": "one.safetensors"}}', "does not hold each element of")]:
            listed.write_text(content)
            self.refused(message, lambda: longstride.load(saved))

    def test_evaluate_refuses_what_it_cannot_score(self):
        model = longstride.load(self.folder / "run")
        for call, message in [
            (lambda: longstride.evaluate(model, b"text"), "for one, write [sequence]"),
            (lambda: longstride.evaluate(model, "text"), "sequences is str, but must be a list of sequences of bytes"),
            (lambda: longstride.evaluate(model, 5), "sequences is int, but must be a list of sequences of bytes"),
            (lambda: longstride.evaluate(model, ["text"]), "a sequence is str, but must be bytes or an array of them"),
            (lambda: longstride.evaluate(model, [None]), "a sequence is NoneType, but must be bytes"),
            (lambda: longstride.evaluate(model, []), "there is no byte to score"),
            (lambda: longstride.evaluate(model, [b"text"], min_context=64), "from 0 to below the context of 64"),
            (lambda: longstride.evaluate(model, [b"text"], batch=0), "batch is 0"),
            (lambda: longstride.evaluate(model, [[0.5]]), "must have one dimension of bytes"),
            (lambda: longstride.evaluate(model, [[300]]), "must be bytes, 0 to 255"),
        ]:
            self.refused(message, call)
        one, many = (longstride.evaluate(model, [noise(200), b"", noise(65)], batch=n) for n in (1, 7))
        self.assertEqual((one.bytes, one.windows), (265, 6))
        self.assertAlmostEqual(one.bits_per_byte, many.bits_per_byte, delta=1e-6)


class Files(unittest.TestCase):
    """A reader of outside bytes survives truncation, lies and garbage."""

    def setUp(self):
        context = temporary_folder()
        self.folder = context.__enter__()
        self.addCleanup(context.__exit__, None, None, None)
        self.path = pathlib.Path(self.folder / "x.safetensors")
        self.tensors = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.tensor([1, 2], dtype=torch.uint8),
                        "c": torch.zeros(0, 4), "d": torch.ones(3, dtype=torch.bfloat16)}
        tensors.write_tensors(self.path, self.tensors, {"format": "pt"})
        self.whole = self.path.read_bytes()

    def test_what_is_written_is_read(self):
        found = tensors.read_tensors(self.path)
        for name, tensor in self.tensors.items():
            self.assertTrue(torch.equal(found[name], tensor) and found[name].dtype == tensor.dtype, name)

    def test_every_truncation_is_refused(self):
        for size in range(len(self.whole)):
            with self.assertRaises(longstride.UserError):
                tensors.parse(io.BytesIO(self.whole[:size]), self.path)

    def test_no_changed_byte_of_a_header_does_more_than_refuse(self):
        length = struct.unpack("<Q", self.whole[:8])[0]
        for at in range(8 + length):
            for value in (0, 0x22, 0x2D, 0x39, 0x5B, 0xFF):
                changed = self.whole[:at] + bytes([value]) + self.whole[at + 1:]
                try:
                    tensors.parse(io.BytesIO(changed), self.path)
                except longstride.UserError as error:
                    self.assertNotIn("\n", str(error))

    def test_lies_of_a_header_are_refused(self):
        entry = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
        for header, message in [
            ({"a": {**entry, "data_offsets": [0, 16]}}, "claims bytes 0 to 16 of 8"),
            ({"a": {**entry, "shape": [3]}}, "has 8 bytes, but its shape and dtype need 12"),
            ({"a": {**entry, "shape": [1 << 62, 1 << 62]}}, "its shape and dtype need"),
            ({"a": {**entry, "shape": [-2]}}, "must have a shape of at most 8 sizes"),
            ({"a": {**entry, "shape": [True, 2]}}, "must have a shape"),
            ({"a": {**entry, "dtype": "F8"}}, 'has dtype "F8"'),
            ({"a": {**entry, "dtype": []}}, "has dtype []"),
            ({"a": {**entry, "data_offsets": [4, 8], "shape": [1]}}, "starts at byte 4 of the data"),
            ({"a": {**entry, "data_offsets": [0, 4], "shape": [1]}}, "end at byte 4 of the data"),
            ({"a": entry, "b": entry}, "starts at byte 0 of the data, but the one before it ends at 8"),
            ({"a": {**entry, "more": 1}}, "must have exactly"),
            ({"a": 1}, "must have exactly"),
            ([], "the header is not a JSON object"),
        ]:
            text = json.dumps(header).encode()
            self.path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(8))
            with self.assertRaises(longstride.UserError) as caught:
                tensors.read_tensors(self.path)
            self.assertIn(message, str(caught.exception))
        for text in (b'{"a":1,"a":2}', b"[" * 100000, b"\xff\xfe", b'{"a":"\\ud800"'):
            self.path.write_bytes(struct.pack("<Q", len(text)) + text)
            with self.assertRaises(longstride.UserError):
                tensors.read_tensors(self.path)

    def test_a_state_of_garbage_is_refused(self):
        path = self.folder / "state.json"
        for text in (b"", b"{}", b"[]", b"[" * 100000, b"\xff", b'{"format":"longstride checkpoint"}',
                     b'{"format":"longstride checkpoint","checksum":"","x":"\\ud800"}', b'{"a":1,"a":1}'):
            path.write_bytes(text)
            with self.assertRaises(longstride.UserError):
                checkpoint.State(path)


if __name__ == "__main__":
    unittest.main()
