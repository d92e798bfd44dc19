"""The sparse peer that `run.py steps` times has the recipes' masks and sizes. Its kernels are tried without a GPU."""
import pathlib
import sys
import unittest

from support import need

need("torch", "yaml")

import torch  # noqa: E402
import yaml  # noqa: E402

if tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 6):
    print(f"skipped: PyTorch {torch.__version__} has no FlexAttention with block lists; needs 2.6")
    sys.exit(77)

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/peers"))
from attention import flex  # noqa: E402
from systems import sparse  # noqa: E402

RECIPES = {"enwik8_fixed": "table1/enwik8-fixed", "cifar_strided": "table1/cifar10-strided",
           "imagenet64": "table1/imagenet64-strided", "audio65k": "table4/audio-65k", "audio262k": "table4/audio-262k",
           "audio1m": "table4/audio-1m", "text_8min": "beyond/text-8min", "small_fixed": "../tests/peers/recipes/fixed",
           "small_strided": "../tests/peers/recipes/strided", "small_dense": "../tests/peers/recipes/dense"}


def merged(base, more):
    return {**base, **{key: merged(base[key], value) if isinstance(value, dict) and isinstance(base.get(key), dict) else value
                       for key, value in more.items()}}


def recipe_of(path):
    settings = yaml.safe_load(path.read_text())
    base = settings.pop("base", None)
    return merged(recipe_of(path.parent / base), settings) if base else settings


def pairs_of(mask, n):
    """The pairs that a block mask allows, as an n x n matrix: full blocks, and partial ones with the function."""
    position = torch.arange(n)
    by_function = mask.mask_mod(0, 0, position[:, None], position[None])
    allowed, block = torch.zeros(n, n, dtype=torch.bool), flex.BLOCK
    for counts, indices, full in ((mask.kv_num_blocks, mask.kv_indices, False),
                                  (mask.full_kv_num_blocks, mask.full_kv_indices, True)):
        for query in range(n // block):
            for key in indices[0, 0, query, :counts[0, 0, query]].tolist():
                pair = slice(query * block, (query + 1) * block), slice(key * block, (key + 1) * block)
                allowed[pair] = True if full else by_function[pair]
    return allowed


class Peer(unittest.TestCase):
    def test_local_masks_hold_the_pairs_of_the_window(self):
        for n, l in ((1024, 128), (1024, 96), (2048, 256), (2048, 512), (1024, 1), (1024, 100)):
            distance = torch.arange(n)[:, None] - torch.arange(n)
            self.assertTrue(torch.equal(pairs_of(sparse.window_mask(n, l, torch.device("cpu")), n), (distance >= 0) & (distance <= l)),
                            f"n {n}, l {l}")

    def test_gathered_summaries_are_the_fixed_pattern(self):
        n, l, c, heads = 512, 128, 32, 2
        torch.manual_seed(1)
        q, k, v = (torch.randn(1, heads, n, 16) for _ in range(3))
        mask = sparse.fixed_mask(n, l, c, torch.device("cpu"))
        keys, values = (sparse.with_summaries(t, l, c, False) for t in (k, v))
        found = flex.flex_attention(q, keys, values, block_mask=mask)
        i, j = torch.arange(n)[:, None], torch.arange(n)[None]
        allowed = (j <= i) & ((i // l == j // l) | (j % l >= l - c))
        expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=allowed)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)

    def test_the_models_are_those_of_the_recipes(self):
        for name, recipe in RECIPES.items():
            settings = recipe_of(ROOT / f"recipes/{recipe}.yaml")
            model, found = settings["model"], {"feed_forward": 4, "keys": 1, **sparse.MODELS[name]}
            pattern = found["pattern"]
            with self.subTest(name):
                self.assertEqual(found["context"], settings["data"]["context"])
                for key in ("layers", "width", "heads"):
                    self.assertEqual(found[key], model[key])
                self.assertEqual(found["feed_forward"], model.get("feed_forward_ratio", 4))
                self.assertEqual(found["keys"], model.get("key_ratio", 1))
                self.assertEqual(found.get("rotary", 0), model.get("rotary_base", 0))
                for key in ("parts", "integration", "stride"):
                    self.assertEqual(pattern[key], model["attention"][key])
                self.assertEqual(pattern.get("summary"), model["attention"].get("summary"))


if __name__ == "__main__":
    unittest.main()
