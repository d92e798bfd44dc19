"""The module against the golden files, and its parts against each other."""
import pathlib
import re
import unittest

from support import ROOT, need

need("torch", "numpy")

import hashed  # noqa: E402
import numpy  # noqa: E402
import torch  # noqa: E402
import vectors  # noqa: E402
import cases  # noqa: E402
from cases import INITIAL  # noqa: E402
from generate import parameters, summary_of, tokens_of  # noqa: E402
from reference import mask as reference_mask  # noqa: E402

from longstride.model import patterns, sampling  # noqa: E402
from longstride.model.settings import Pattern, Settings, UserError  # noqa: E402
from longstride.model.decoder import Decoder  # noqa: E402
from longstride.runs import SECTIONS  # noqa: E402

# The package has one table of tokens.
CASES = {name: case for name, case in cases.CASES.items() if "adaptive" not in case["model"]}


def model_of(config):
    data = config["data"]
    picture = [data[key] for key in ("rows", "columns", "channels") if key in data]
    return Decoder({**config["model"], "context": data["context"], "picture": picture})


class Shapes:
    """What parameters() of the generator asks of a model."""

    def __init__(self, module):
        self.module = module

    def shapes(self):
        return {name: tuple(p.shape) for name, p in self.module.named_parameters()}


def golden(name, dtype):
    module = model_of(CASES[name]).to(dtype).eval()
    module.load_state_dict(parameters(name, Shapes(module), dtype))
    return module, tokens_of(name, CASES[name])


class Golden(unittest.TestCase):
    stored = vectors.read(pathlib.Path(ROOT / "tests" / "golden" / "cases.safetensors"))

    def test_names_and_shapes_are_those_of_the_files(self):
        for name, config in CASES.items():
            shapes = {key: list(shape) for key, shape in Shapes(model_of(config)).shapes().items()}
            self.assertEqual(shapes, self.stored[name][0]["shapes"], name)

    def test_losses_and_gradients_in_double(self):
        for name in CASES:
            module, tokens = golden(name, torch.float64)
            losses = module.losses(tokens)
            expected = torch.tensor(self.stored[name][1]["losses"], dtype=torch.float64)
            self.assertLess(float((losses.detach().flatten() - expected).abs().max()), 1e-12, name)
            losses.mean().backward()
            for key, p in module.named_parameters():
                found = numpy.array(summary_of(key, p.grad))
                stored = numpy.array(self.stored[name][1][f"parameters/{key}"])
                scale = max(stored[2], 1e-9)  # the norm; with softmax, some gradients are nothing but rounding
                self.assertLess(float(numpy.abs(found - stored).max()), 1e-9 * scale + 1e-12, f"{name} {key}")

    def test_losses_in_single(self):
        for name in CASES:
            module, tokens = golden(name, torch.float32)
            found = float(module.loss(tokens).detach())
            self.assertAlmostEqual(found, self.stored[name][1]["loss"][0], delta=1e-5, msg=name)
            self.assertAlmostEqual(module.bits_per_byte(tokens), found / numpy.log(2), delta=1e-5)

    def test_initial_values_have_the_deviations_of_a_run(self):
        torch.manual_seed(1)
        for name in INITIAL:
            stored = vectors.read(ROOT / "tests" / "golden" / "initial.safetensors")[name]
            module = model_of(INITIAL[name])
            for key, p in module.named_parameters():
                norm, squares, draws = stored[1][f"parameters/{key}"][2], 0.0, 50
                for _ in range(draws):
                    module.initialise()
                    squares += float((p.detach() ** 2).sum()) / draws
                spread = 0.5 if key == "embedding.start" else 0.15  # share of the stored norm, that of one draw
                self.assertAlmostEqual(squares ** 0.5, norm, delta=spread * norm, msg=f"{name} {key}")


class Patterns(unittest.TestCase):
    def test_masks_are_those_of_the_reference(self):
        for name, config in CASES.items():
            attention, heads, n = config["model"]["attention"], config["model"]["heads"], config["positions"]
            pattern, i = Pattern(attention, heads), torch.arange(n)
            for layer in range(config["model"]["layers"]):
                found = patterns.mask(pattern, layer, n, i, i).expand(heads, n, n)
                for head in range(heads):
                    expected = torch.from_numpy(reference_mask(attention, layer, head, heads, n))
                    self.assertTrue(torch.equal(found[head], expected), f"{name} {layer} {head}")

    def test_pieces_of_the_queries_change_nothing(self):
        whole = patterns.MOST_SCORES
        for name in ("fixed_merged_distinct", "strided_multihead_ragged", "fixed_interleaved_ragged", "image_cycle"):
            found = []
            for most in (whole, 700):
                patterns.MOST_SCORES = most
                try:
                    module, tokens = golden(name, torch.float64)
                    module.loss(tokens).backward()
                    found.append(torch.cat([p.grad.flatten() for p in module.parameters()]))
                finally:
                    patterns.MOST_SCORES = whole
            self.assertLess(float((found[0] - found[1]).abs().max()), 1e-12, name)

    def test_a_later_byte_changes_no_earlier_logit(self):
        for name in CASES:
            module, tokens = golden(name, torch.float64)
            with torch.no_grad():
                before = module(tokens)
                tokens[:, -1] ^= 1
                self.assertTrue(torch.equal(before, module(tokens)), name)
                if tokens.shape[1] > 1:
                    tokens[:, -2] ^= 1
                    self.assertFalse(torch.equal(before, module(tokens)), name)


class Sinks(unittest.TestCase):
    def test_are_keys_of_the_score_zero_plus_their_logit_whose_value_is_zero(self):
        torch.manual_seed(1)
        pattern = Pattern({"integration": "merged", "parts": ["local", "first"], "window": 3, "first": 2,
                           "sink": "learned"}, 2)
        q, k, v, sink = (torch.randn(*shape, dtype=torch.float64, requires_grad=True)
                         for shape in [(2, 2, 9, 4)] * 3 + [(2,)])

        def defined(q, k, v, sink):
            scores = torch.exp(q @ k.transpose(-1, -2) / 2) * patterns.mask(pattern, 0, 9, *[torch.arange(9)] * 2)
            return scores @ v / (scores.sum(-1, keepdim=True) + torch.exp(sink)[:, None, None])

        found, expected = patterns.attend(q, k, v, pattern, 0, 0, sink), defined(q, k, v, sink)
        dout = torch.randn_like(expected)
        for a, b in zip((found, *torch.autograd.grad(found, (q, k, v, sink), dout)),
                        (expected, *torch.autograd.grad(expected, (q, k, v, sink), dout))):
            self.assertLess(float((a - b).detach().abs().max()), 1e-12)

    def test_steps_of_generation_read_them(self):
        module = Decoder(settings(attention={"sink": "learned"})).double().eval()
        torch.nn.init.normal_(module.output.weight)
        with torch.no_grad():
            module.layers[0].attention.sink.copy_(torch.tensor([1.0, -2.0]))
            tokens = torch.arange(16)[None]
            slots, whole = module.previous(tokens), module(tokens)
            cache = module.cache(1, 16)
            rows = torch.cat([module.slots(slots[:, i:i + 1], i, cache) for i in range(16)], 1)
            self.assertLess(float((rows - whole).abs().max()), 1e-12)
            module.layers[0].attention.sink.zero_()
            self.assertGreater(float((module(tokens) - whole).abs().max()), 1e-3)


class Sampling(unittest.TestCase):
    def test_numbers_are_those_of_the_random123_distribution(self):
        self.assertEqual(sampling.philox(0, 0, 0, 0), 0x6627E8D5)
        self.assertEqual(sampling.philox(2**64 - 1, 2**64 - 1, 2**32 - 1, 2**32 - 1), 0x408F276D)

    def test_logits_with_kept_keys_are_those_without(self):
        for name in CASES:
            module, tokens = golden(name, torch.float64)
            slots = torch.cat([torch.full((2, 1), 256), tokens[:, :-1].long()], 1)
            with torch.no_grad():
                whole, n = module(tokens), tokens.shape[1]
                cache = sampling.Cache(module.settings, 2, n, whole)
                rows = [module.slots(slots[:, :n // 3 + 1], 0, cache)]
                rows += [module.slots(slots[:, i:i + 1], i, cache) for i in range(n // 3 + 1, n)]
            self.assertLess(float((torch.cat(rows, 1) - whole).abs().max()), 1e-11, name)

    def test_draws_follow_their_definition(self):
        ties = numpy.round(hashed.units("draws", 40 * 256).reshape(40, 256) * 8)
        logits = torch.from_numpy(ties).double()
        for temperature, top_k, top_p in [(1, 0, 1), (0.7, 0, 1), (0, 0, 1), (1, 3, 1), (1.5, 0, 0.5), (1, 9, 0.8),
                                          (1, 300, 1), (1, 0, 0), (1, 1, 1)]:
            request = sampling.Request(b"", None, 40, temperature, top_k, top_p, 2**40 + 3)
            for row, found in enumerate(request.draw(logits, 77).tolist()):
                expected = self.drawn(logits[row].tolist(), temperature, top_k, top_p,
                                      sampling.uniform(2**40 + 3, row, 77))
                self.assertEqual(found, expected, (temperature, top_k, top_p, row))

    def test_top_p_keeps_no_more_than_reach_it(self):
        logits = torch.full((1, 256), -1e9, dtype=torch.float64)
        logits[0, [3, 9]] = 0  # half of the probability each
        drawn = {int(sampling.Request(b"", None, 1, 1, 0, 0.5, seed).draw(logits, 0)) for seed in range(40)}
        self.assertEqual(drawn, {3})
        drawn = {int(sampling.Request(b"", None, 1, 1, 0, 0.6, seed).draw(logits, 0)) for seed in range(40)}
        self.assertEqual(drawn, {3, 9})

    def test_a_step_computes_one_slot(self):
        module, computed = Decoder(settings()).eval(), []
        slots = module.slots
        module.slots = lambda previous, *rest: computed.append(previous.shape[1]) or slots(previous, *rest)
        module.generate(b"abc", length=8)
        self.assertEqual(computed, [4, 1, 1, 1, 1])

    @staticmethod
    def drawn(logits, temperature, top_k, top_p, number):
        """docs/develop/numerics.md, byte by byte."""
        order = sorted(range(256), key=lambda v: -logits[v])
        if temperature == 0:
            return order[0]
        weights = [float(numpy.exp((x - logits[order[0]]) / temperature)) for x in logits]
        kept = order[:top_k or 256]
        total, share, fewest = sum(weights[v] for v in kept), 0.0, []
        for v in kept:
            if fewest and top_p < 1 and share >= top_p * total:
                break
            fewest.append(v)
            share += weights[v]
        left = number * sum(weights[v] for v in fewest)
        for v in sorted(fewest):
            left -= weights[v]
            if left < 0:
                return v
        return order[0]


def settings(**changes):
    made = {"kind": "decoder", "context": 16, "layers": 1, "width": 8, "heads": 2,
            "attention": {"integration": "interleaved", "parts": ["dense"], "stride": 4}}
    attention = {**made["attention"], **changes.pop("attention", {})}
    return {**made, "attention": attention, **changes}


class Refusals(unittest.TestCase):
    def refused(self, message, call):
        with self.assertRaises(UserError) as caught:
            call()
        self.assertIn(message, str(caught.exception))
        self.assertNotIn("\n", str(caught.exception))

    def test_every_key_is_known_or_refused(self):
        for changes, message in [
            ({"tied": True}, 'model has a key "tied" that this version of the longstride package does not know'),
            ({"attention": {"spacing": 2}}, 'model.attention has a key "spacing"'),
            ({"kind": "hierarchy"}, "'kind' is \"hierarchy\", but must be one of decoder, sparse_transformer, encoder"),
            ({"embedding_norm": True}, "'embedding_norm' is true, but must be false for a decoder"),
            ({"heads": 3}, "'heads' is 3, but must be a divisor of the width 8"),
            ({"layers": True}, "'layers' is true, but must be a whole number"),
            ({"layers": 1 << 13}, "'layers' is 8192, but must be a whole number from 1 to 4096"),
            ({"positions": "data"}, "'positions' is \"data\", but must be attention or none, except for pictures"),
            ({"rotary_base": 1}, "'rotary_base' is 1.0, but must be 0, or above 1"),
            ({"width": 6, "rotary_base": 100}, "with keys of an even number of elements, not 3"),
            ({"picture": [2, 2, 3]}, "rows, columns and channels of 16 bytes"),
            ({"norm": "layer"}, "'norm' is \"layer\", but must be one of pre, post"),
            ({"activation": "swish"}, "must be one of sigmoid_gelu, relu, gelu, geglu"),
            ({"tied_output": 1}, "'tied_output' is 1, but must be true or false"),
            ({"query_key_norm": 1}, "'query_key_norm' is 1, but must be true or false"),
            ({"dropout": float("nan")}, "'dropout' is NaN, but must be a number"),
            ({"attention": {"parts": ["ring"]}}, "'parts' is [\"ring\"], but must be a list of dense, local"),
            ({"attention": {"parts": []}}, "'parts' is [], but must be a list of"),
            ({"attention": {"parts": ["column"], "stride": 0}}, "'stride' is 0, but must be a positive number"),
            ({"attention": {"parts": ["fixed_summary"], "summary": 5}}, "'summary' is [5], but must be one width"),
            ({"attention": {"parts": ["fixed_summary"], "summary": [1, 2, 3]}}, "one for each of 2 heads"),
            ({"attention": {"integration": "merged", "parts": ["dense", "local"]}}, "one of local and fixed_block"),
            ({"attention": {"integration": "multihead", "parts": ["dense"] * 3}}, "at most one per head"),
            ({"attention": {"sink": "zero"}}, "'sink' is \"zero\", but must be one of none, learned"),
            ({"attention": {"stride": 0}}, "'positions' is \"attention\", but must be none"),
        ]:
            self.refused(message, lambda changes=changes: Settings(settings(**changes)))
        missing = settings()
        del missing["width"]
        self.refused("model has no key 'width', which the model needs", lambda: Settings(missing))
        self.refused("model is [], but must be a map of keys", lambda: Settings([]))

    def test_every_section_of_a_recipe_is_known(self):
        _, page = (ROOT / "docs" / "guide" / "recipes.md").read_text().split("\n## Keys\n")
        page = page.split("\n## ")[0]
        self.assertEqual(set(re.findall(r"^\| `([a-z]+)(?:\.[a-z_]+)*` \|", page, re.M)), SECTIONS)

    def test_settings_survive_their_own_form(self):
        for name, config in CASES.items():
            made = model_of(config).settings.to_dict()
            self.assertEqual(Settings(made).to_dict(), made, name)
        # YAML 1.1 takes a number without a point for text.
        self.assertEqual(Settings(settings(rotary_base="1e+04", key_ratio="5e-01")).rotary_base, 10000)

    def test_tokens_must_be_bytes_in_two_dimensions(self):
        module = Decoder(settings())
        for tokens, message in [
            (torch.zeros(1, 17, dtype=torch.uint8), "was given 17 positions, but must be given from 1 to its"),
            (torch.zeros(4, dtype=torch.long), "tokens are torch.int64 (4,), but must be a tensor of whole numbers"),
            (torch.zeros(1, 4), "tokens are torch.float32 (1, 4)"),
            (b"abc", "tokens are bytes, but must be a tensor"),
            (torch.tensor([[0, 256]]), "tokens go from 0 to 256, but must be bytes"),
            (torch.tensor([[-1, 3]]), "tokens go from -1 to 3"),
            (torch.zeros(1, 0, dtype=torch.long), "tokens are torch.int64 (1, 0), but must be"),
        ]:
            self.refused(message, lambda tokens=tokens: module(tokens))
        if hasattr(torch, "uint16"):
            tokens = torch.tensor([[7, 255]], dtype=torch.uint16)
            self.assertTrue(torch.equal(module(tokens), module(tokens.long())))
            self.refused("tokens go from 7 to 300", lambda: module(torch.tensor([[7, 300]], dtype=torch.uint16)))

    def test_generate_refuses_what_the_command_refuses(self):
        module = Decoder(settings())
        for options, message in [
            ({"length": 17}, "length is 17, but the model's context is 16"),
            ({"length": 0}, "length is 0, but must be a whole number of at least 1"),
            ({"prompt": b"x" * 16}, "the prompt has 16 bytes, but must be shorter than the 16 bytes of a sample"),
            ({"prompt": "text"}, "prompt is \"text\", but must be bytes"),
            ({"prompt": [b"a", b"b"], "count": 3}, "a list of bytes for each of 3 sequences"),
            ({"prompt": [b"a", b"bc"], "count": 2}, "the prompts differ in length"),
            ({"temperature": -1}, "temperature is -1, but must be a number from 0 to 100"),
            ({"top_p": 1.5}, "top_p is 1.5, but must be a number from 0 to 1"),
            ({"top_k": -1}, "top_k is -1, but must be a whole number of at least 0"),
            ({"seed": 1 << 64}, "seed is 18446744073709551616, but must be"),
            ({"count": 0}, "count is 0"),
        ]:
            self.refused(message, lambda options=options: module.generate(**options))

    def test_what_counts_as_a_whole_number_is_one(self):
        module, number = Decoder(settings()), torch.tensor
        torch.nn.init.normal_(module.output.weight)
        self.assertEqual(module.generate(b"a", length=number(9), count=number(2), top_k=number(5), seed=number(3)),
                         module.generate(b"a", length=9, count=2, top_k=5, seed=3))
        self.refused('count is "tensor(2.)", but must be', lambda: module.generate(count=number(2.0)))


class Modes(unittest.TestCase):
    def test_dropout_acts_in_training_alone_and_modes_are_kept(self):
        for key in ("dropout", "embedding_dropout", "inner_dropout", "output_dropout"):
            with self.subTest(key):
                self.dropout_acts_in_training_alone(key)

    def dropout_acts_in_training_alone(self, key):
        torch.manual_seed(1)
        module = Decoder(settings(**{key: 0.5}))
        torch.nn.init.normal_(module.output.weight)
        tokens = torch.arange(16)[None]
        self.assertFalse(torch.equal(module(tokens), module(tokens)))
        self.assertEqual(module.bits_per_byte(tokens), module.bits_per_byte(tokens))
        self.assertEqual(module.generate(b"a", count=2, seed=3), module.generate(b"a", count=2, seed=3))
        self.assertNotEqual(module.generate(b"a", seed=3), module.generate(b"a", seed=4))
        self.assertTrue(module.training)
        module.eval()
        self.assertTrue(torch.equal(module(tokens), module(tokens)))

    def test_bfloat16_is_near_single(self):
        for name in ("fixed_merged", "beyond_strided_merged"):
            module, tokens = golden(name, torch.float32)
            with torch.no_grad():
                single, half = float(module.loss(tokens)), module.bfloat16().loss(tokens)
            self.assertEqual(half.dtype, torch.float32)
            self.assertAlmostEqual(float(half), single, delta=0.05 * single)
            self.assertNotEqual(float(half), single)


if __name__ == "__main__":
    unittest.main()
