"""Models with distances and memories in launch/python.

Losses, gradients and memories of the golden files, figures of `longstride eval` and samples of `longstride sample`.
"""
import math
import unittest

from support import DEVICE, ROOT, command, figure, need, noise, temporary_folder, write_dataset, write_recipe

need("torch", "numpy", "yaml", "h5py")

import numpy  # noqa: E402
import torch  # noqa: E402
import vectors  # noqa: E402
from generate import parameters, summary_of, tokens_of  # noqa: E402
import memory_cases  # noqa: E402
from memory_cases import ADAPTIVE_SPAN, LONGFORMER, SINUSOID, TRANSFORMER_XL  # noqa: E402

import longstride  # noqa: E402
from longstride.kernels import DistanceKernels, use_attention  # noqa: E402
from longstride.model import patterns  # noqa: E402
from longstride.model.decoder import Decoder  # noqa: E402

# The package has one table of tokens.
MEMORY = {name: case for name, case in memory_cases.MEMORY.items() if "adaptive" not in case["model"]}


class Shapes:
    """What parameters() of the generator asks of a model."""

    def __init__(self, config, module):
        self.span, self.module = config["model"]["distance"].get("span"), module

    def shapes(self):
        return {name: tuple(p.shape) for name, p in self.module.named_parameters()}


def golden(name, dtype):
    config = MEMORY[name]
    module = Decoder({**config["model"], "context": config["data"]["context"]}).to(dtype).eval()
    module.load_state_dict(parameters(name, Shapes(config, module), dtype))
    tokens = tokens_of(name, {**config, "positions": config["segments"] * config["positions"]}).long()
    return module, tokens


def segments(name, module, tokens):
    """Losses of every segment of the streams, what they add to the training loss, and the stream afterwards."""
    config = MEMORY[name]
    n, stream = config["positions"], module.cache(config["batch"], config["positions"])
    for s in range(config["segments"]):
        starts = torch.tensor([s == 0 or [s, row] in config["restarts"] for row in range(config["batch"])])
        if module.settings.memory is None:
            stream = module.cache(config["batch"], n)
        stream.begin(starts)
        before = torch.where(starts, 256, tokens[:, s * n - 1])
        yield s, module.losses(tokens[:, s * n:(s + 1) * n], stream, before), stream


class Golden(unittest.TestCase):
    stored = vectors.read(ROOT / "tests" / "golden" / "memory.safetensors")

    def test_names_and_shapes_are_those_of_the_files(self):
        for name in MEMORY:
            module, _ = golden(name, torch.float64)
            shapes = {key: list(p.shape) for key, p in module.named_parameters()}
            self.assertEqual(shapes, self.stored[name][0]["shapes"], name)

    def close(self, found, stored, message):
        found, stored = numpy.array(found), numpy.array(stored)
        scale = max(abs(stored[2]), 1e-9)  # the norm
        self.assertLess(float(numpy.abs(found - stored).max()), 1e-9 * scale + 1e-12, message)

    def test_losses_gradients_and_memories_in_double(self):
        for name in MEMORY:
            module, tokens = golden(name, torch.float64)
            numbers = self.stored[name][1]
            for s, losses, stream in segments(name, module, tokens):
                expected = torch.tensor(numbers[f"losses/{s}"], dtype=torch.float64)
                self.assertLess(float((losses.detach().flatten() - expected).abs().max()), 1e-11, f"{name} {s}")
                stream.reconstruction, stream.ended = 0.0, 0
                module.zero_grad()
                (losses.mean() + stream.auxiliary_loss()).backward()
                for key, p in module.named_parameters():
                    found = torch.zeros_like(p) if p.grad is None else p.grad
                    self.close(summary_of(key, found), numbers[f"segments/{s}/{key}"], f"{name} {s} {key}")
            for kind, rows in self.memories(stream):
                for layer, found in enumerate(rows):
                    key = f"layers.{layer}.attention.{kind}"
                    self.close(summary_of(key, found), numbers[f"states/{key}"], f"{name} {key}")

    @staticmethod
    def memories(stream):
        memory = stream.memory
        if memory is None:
            return []
        both = [("memory", memory.rows), ("compressed_memory", memory.compressed)]
        return [(kind, rows) for kind, rows in both if rows[0].numel() > 0]

    def test_pieces_of_the_queries_change_nothing(self):
        whole = patterns.MOST_SCORES
        for name in MEMORY:
            found = []
            for most in (whole, 300):
                patterns.MOST_SCORES = most
                try:
                    module, tokens = golden(name, torch.float64)
                    tokens = tokens if module.settings.memory else tokens[:, :MEMORY[name]["positions"]]
                    module.loss(tokens).backward()
                    gradients = [p.grad.flatten() for p in module.parameters() if p.grad is not None]
                    found.append(torch.cat(gradients))
                finally:
                    patterns.MOST_SCORES = whole
            self.assertLess(float((found[0] - found[1]).abs().max()), 1e-12, name)

    def test_positions_one_by_one_give_the_logits_of_the_whole(self):
        for name in MEMORY:
            module, tokens = golden(name, torch.float64)
            tokens = tokens if module.settings.memory else tokens[:, :MEMORY[name]["positions"]]
            with torch.no_grad():
                expected, previous = module(tokens), module.previous(tokens)
                cache, found, at = module.cache(len(tokens), tokens.shape[1]), [], 0
                for count in [3, *[1] * tokens.shape[1]]:
                    if at < tokens.shape[1]:
                        found.append(module.slots(previous[:, at:at + count], at, cache))
                    at += count
            self.assertLess(float((torch.cat(found, 1) - expected).abs().max()), 1e-12, name)

    def test_positions_one_by_one_share_their_table_of_distances(self):
        """Made anew for every position, it would cost more than all else."""
        module, _ = golden("transformer_xl", torch.float32)
        context, made = module.settings.context, []
        module.layers[0].attention.distance.register_forward_hook(lambda *_: made.append(1))
        module.generate(length=4 * context)
        self.assertLessEqual(len(made), 8)  # segments twice, since a table may have to grow

    def test_a_later_byte_changes_no_earlier_logit(self):
        for name in MEMORY:
            module, tokens = golden(name, torch.float64)
            tokens = tokens if module.settings.memory else tokens[:, :MEMORY[name]["positions"]]
            with torch.no_grad():
                before = module(tokens)
                tokens[:, -1] ^= 1
                self.assertTrue(torch.equal(before, module(tokens)), name)
                tokens[:, -2] ^= 1
                self.assertFalse(torch.equal(before, module(tokens)), name)

    def test_spans_that_an_optimizer_takes_out_of_their_range_are_clamped(self):
        """As after every update of a run; those far below 0 would see no key and never grow again."""
        for value, bound in (-3.0, 0.0), (2.0, 1.0):
            losses = []
            for start in (value, bound):
                module, tokens = golden("adaptive_span", torch.float64)
                with torch.no_grad():
                    for layer in module.layers:
                        layer.attention.span.fill_(start)
                loss = module.loss(tokens) + module.loss(tokens)
                loss.backward()
                losses.append(float(loss.detach()))
                self.assertTrue(all(bool((layer.attention.span == bound).all()) for layer in module.layers))
            self.assertEqual(losses[0], losses[1])

    def test_a_span_that_is_not_finite_shows_in_the_loss(self):
        module, tokens = golden("adaptive_span", torch.float64)
        with torch.no_grad():
            module.layers[0].attention.span.fill_(math.nan)
            self.assertTrue(math.isnan(float(module.loss(tokens))))

    def test_compressors_learn_in_half_precision(self):
        settings = {"kind": "decoder", "context": 8, "layers": 2, "width": 16, "heads": 2, "positions": "none",
                    "query_key_norm": True, "distance": SINUSOID, "memory": {"length": 8, "compressed": 4, "rate": 2}}
        tokens, found = torch.tensor([list(noise(40))]), []
        for dtype in (torch.float64, torch.bfloat16):
            torch.manual_seed(1)
            module = Decoder(settings).to(dtype)
            module.loss(tokens).backward()
            found.append(module.layers[0].attention.compress.weight.grad.double())
        self.assertLess(float((found[0] - found[1]).norm()), 0.05 * float(found[0].norm()))

    def test_initial_values_follow_the_recipe(self):
        for name in MEMORY:
            torch.manual_seed(1)
            module, _ = golden(name, torch.float32)
            module.initialise()
            for key, p in module.named_parameters():
                if key.endswith("bias"):
                    self.assertFalse(bool(p.any()), key)
                elif key.endswith(".span"):
                    self.assertTrue(bool((p == module.settings.distance.span.initial).all()), key)
                elif "distance." in key or "compress." in key:
                    fan_in = p.shape[-1] if key.endswith("weight") else module.settings.width
                    spread = float(p.detach().std()) / math.sqrt(0.125 / fan_in)
                    self.assertTrue(0.8 < spread < 1.25, f"{name} {key} {spread}")

    def test_a_table_of_distances_may_start_with_a_deviation_of_its_own(self):
        settings = {"kind": "decoder", "context": 8, "layers": 1, "width": 16, "heads": 2, "positions": "none",
                    "distance": {"table": "learned", "distances": 200}, "init_deviation": 0.02,
                    "init_deviations": {"distance_table": 1}}
        torch.manual_seed(1)
        for key, p in Decoder(settings).named_parameters():
            if key.endswith(("distance.table", "token.weight")):
                spread = float(p.detach().std()) / (1 if key.endswith("table") else 0.02)
                self.assertTrue(0.9 < spread < 1.1, f"{key} {spread}")


class Runs(unittest.TestCase):
    """What the command has trained, once for both kinds of attention."""

    attention = "reference"
    folder = None
    said = {}  # by the command, for the same arguments

    @classmethod
    def setUpClass(cls):
        if Runs.folder is not None:
            return
        context = temporary_folder()
        Runs.folder = context.__enter__()
        unittest.addModuleCleanup(context.__exit__, None, None, None)
        splits = {split: numpy.frombuffer(noise(n, seed=n), dtype=numpy.uint8)
                  for split, n in (("train", 3000), ("valid", 300), ("test", 700))}
        write_dataset(Runs.folder / "text.h5", "bytes", splits)

    def once(self, call, *arguments):
        key = (call.__name__, *arguments)
        if key not in self.said:
            self.said[key] = call(*arguments, folder=self.folder)
        return self.said[key]

    def trained(self, name, model, order="streams", **train):
        data = {"kind": "bytes", "context": 24, "path": "text.h5", "order": order}
        write_recipe(self.folder / f"{name}.yaml", data, {"positions": "none", **model}, **train)
        self.once(command, "train", f"{name}.yaml", "--run", name, "--device", "cpu")
        return longstride.load(self.folder / name, device=DEVICE, attention=self.attention)

    def compare(self, name, model, *choices, length=60, order="streams", **train):
        """The figures of `eval` and a sample; every choice is options of it and arguments of `evaluate`."""
        loaded = self.trained(name, model, order, **train)
        self.assertEqual(loaded.attention, self.attention)
        split, figures = longstride.read_split(self.folder / "text.h5", "test"), []
        for options, arguments in (([], {}), *choices):
            figures.append(self.once(figure, name, *options))
            found = longstride.evaluate(loaded, split, **arguments)
            self.assertAlmostEqual(found.bits_per_byte, figures[-1], delta=1e-6, msg=f"{name} {options}")
            self.assertEqual(found.bytes, 700)
        self.check_saved(name, loaded, figures[0])
        self.check_reach(name, loaded, split)
        self.assertLess(figures[0], 7.98, name)  # it has learnt something, so the weights matter
        self.assertEqual(len(set(figures)), len(figures), name)  # so a wrong choice would show
        self.once(command, "sample", name, "--device", "cpu", "--count", 2, "--length", length, "--seed", 5, "--output",
                  f"{name}-samples")
        expected = [(self.folder / f"{name}-samples" / f"sample-00{s}.txt").read_bytes() for s in range(2)]
        self.assertEqual(loaded.generate(count=2, length=length, seed=5), expected, name)

    def check_saved(self, name, loaded, expected):
        """The folders that the command and this package write are one to both."""
        self.once(command, "export", name, "--hf", f"{name}-hf")
        if not (self.folder / f"{name}-saved").exists():
            loaded.save_pretrained(self.folder / f"{name}-saved")
        self.assertEqual(longstride.load(self.folder / f"{name}-hf").settings.to_dict(), loaded.settings.to_dict())
        for folder in (f"{name}-hf", f"{name}-saved"):
            self.assertAlmostEqual(self.once(figure, folder, "--data", "text.h5"), expected, delta=1e-6, msg=folder)

    def check_reach(self, name, loaded, split):
        """More context than can change a figure is refused, as by the command."""
        s = loaded.settings
        reach = s.memory.reach(s.context, s.layers) if s.memory else math.inf
        if reach == math.inf:
            return
        longstride.evaluate(loaded, split, min_context=reach)
        with self.assertRaisesRegex(longstride.UserError, f"must be from 0 to {reach}, the bytes that this model"):
            longstride.evaluate(loaded, split, min_context=reach + 1)
        said = command("eval", name, "--device", "cpu", "--min-context", reach + 1, folder=self.folder, fails=True)
        self.assertIn(f"looks back {reach} bytes at most", said)

    STREAMS = (["--batch", 3], {"batch": 3})
    WARM = (["--batch", 3, "--min-context", 24], {"batch": 3, "min_context": 24})

    def test_transformer_xl(self):
        self.compare("xl", {**TRANSFORMER_XL, "dropout": 0.1, "distance": {**SINUSOID, "table_dropout": 0.1},
                            "memory": {"length": 40}}, self.STREAMS, self.WARM)

    def test_adaptive_span(self):
        span = {"longest": 32, "ramp": 4, "initial": 0.3, "loss": 1e-4}
        self.compare("adaptive", {
            **ADAPTIVE_SPAN, "memory": {"length": 32, "start": "zeros"},
            "distance": {"table": "learned", "shared_table": True, "distances": 32, "biases": "none", "self": False,
                         "window": 33, "span": span}}, self.STREAMS)

    def test_longformer(self):
        distance = {**SINUSOID, "window": [4, 6], "dilation": [1, 2], "dilated_heads": 1}
        self.compare("longformer", {**LONGFORMER, "distance": distance}, (["--min-context", 10], {"min_context": 10}),
                     length=24, order="windows")

    def test_a_checkpoint_has_the_windows_of_its_stage(self):
        stages = [{"until": 6, "window": 20}, {"until": 10, "window": [9, 17]}]
        self.trained("stages", {"distance": {**SINUSOID, "window": 3}, "memory": {"length": 24}}, stages=stages, keep=3)
        split = longstride.read_split(self.folder / "text.h5", "test")
        for step, windows in (4, [20]), (8, [9, 17]), (12, [3]):
            loaded = longstride.load(self.folder / "stages", checkpoint=step, device=DEVICE)
            self.assertEqual(loaded.settings.distance.window, windows)
            expected = self.once(figure, "stages", "--checkpoint", step)
            self.assertAlmostEqual(longstride.evaluate(loaded, split).bits_per_byte, expected, delta=1e-6)

    def test_a_compressed_memory_of_every_kind(self):
        for kind in ("mean", "max", "convolution", "dilated", "most_used"):
            if kind == "most_used" and self.attention == "kernels":
                self.refuse_kernels(kind)
                continue
            memory = {"length": 24, "compressed": 12, "rate": 4, "compress": kind}
            self.compare(kind, {**TRANSFORMER_XL, "distance": SINUSOID, "memory": memory}, self.STREAMS, length=130)

    def refuse_kernels(self, kind):
        with self.assertRaisesRegex(longstride.UserError, "most_used, which needs probabilities"):
            use_attention(Decoder({**MEMORY[f"compressive_{kind}"]["model"], "context": 8}), "kernels")

    def test_rotated_queries_and_keys_next_to_a_memory(self):
        distance, memory = {"table": "none", "biases": "none", "window": 20}, {"length": 24, "compressed": 8, "rate": 4}
        self.compare("rotary", {"rotary_base": 10000, "query_key_norm": True, "attention_bias": False,
                                "distance": distance, "memory": memory}, self.WARM, length=100)

    def test_sequences_begin_without_what_precedes_them(self):
        """The command joins files to one stream; sequences given apart are each a stream of their own."""
        loaded = self.trained("apart", {**TRANSFORMER_XL, "distance": SINUSOID, "memory": {"length": 24}})
        data = noise(100)
        parts = [data[:50], data[50:]]
        apart = longstride.evaluate(loaded, parts)
        self.assertAlmostEqual(apart.nats, sum(longstride.evaluate(loaded, [part]).nats for part in parts), delta=1e-4)
        self.assertNotAlmostEqual(apart.nats, longstride.evaluate(loaded, [data]).nats, delta=1e-2)
        tokens = torch.tensor([list(data)], device=DEVICE)
        whole = longstride.evaluate(loaded, [data])
        self.assertAlmostEqual(loaded.bits_per_byte(tokens), whole.bits_per_byte, delta=1e-6)

    def test_what_does_not_fit_is_refused(self):
        remembers = self.trained("refused", {"distance": SINUSOID, "memory": {"length": 24}})
        forgets = Decoder({"kind": "decoder", "context": 8, "layers": 1, "width": 8, "heads": 2, "positions": "none",
                           "distance": SINUSOID})
        for message, call in [
            ("a sequence is torch.bool (3,), but must have one dimension of bytes",
             lambda: longstride.evaluate(remembers, [[True, False, True]])),
            ("min_context is -1, but must be from 0 to 49, the bytes that this model looks back at most",
             lambda: longstride.evaluate(remembers, [b"ab"], -1)),
            ("tokens are list, but must be a tensor of whole numbers", lambda: remembers.loss([1, 2])),
            ("the model was given 9 positions, but must be given from 1 to its context, 8",
             lambda: forgets(torch.zeros(1, 9, dtype=torch.long))),
            ("length is 9, but the model's context is 8", lambda: forgets.generate(length=9)),
        ]:
            with self.assertRaises(longstride.UserError) as caught:
                call()
            self.assertIn(message, str(caught.exception))

    def test_half_precision_stays_near_single(self):
        single = self.trained("half", {**TRANSFORMER_XL, "distance": SINUSOID, "memory": {"length": 24}})
        tokens = torch.tensor([list(noise(100))], device=DEVICE)
        for dtype in (torch.bfloat16, torch.float16):
            try:
                torch.nn.functional.linear(*torch.zeros(2, 1, 1, device=DEVICE, dtype=dtype))
            except RuntimeError:
                continue  # early PyTorch has no products of this type on the CPU
            half = longstride.load(self.folder / "half", device=DEVICE, dtype=dtype)
            self.assertAlmostEqual(half.bits_per_byte(tokens), single.bits_per_byte(tokens), delta=0.05)


class RunsByKernels(Runs):
    """The same figures and samples by longstride.distance_attention."""

    attention = "kernels"

    @classmethod
    def setUpClass(cls):
        try:
            DistanceKernels(strict=True)
        except ImportError as error:
            raise unittest.SkipTest(str(error))
        super().setUpClass()

    def test_losses_and_gradients_are_the_references(self):
        for name in MEMORY:
            if name == "compressive_most_used":
                continue
            found = []
            for attention in ("reference", "kernels"):
                module, tokens = golden(name, torch.float64)
                use_attention(module, attention)
                tokens = tokens if module.settings.memory else tokens[:, :MEMORY[name]["positions"]]
                loss = module.loss(tokens)
                loss.backward()
                gradients = [p.grad.flatten() for p in module.parameters() if p.grad is not None]
                found.append(torch.cat([loss.detach().reshape(1), *gradients]))
            self.assertLess(float((found[0] - found[1]).abs().max()), 1e-11, name)
            self.assertFalse(torch.equal(*found), name)  # so they were computed in two ways


if __name__ == "__main__":
    unittest.main()
