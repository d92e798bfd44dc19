"""Modules whose attention is Longstride's kernels, compiled by torch.compile."""
import importlib.util
import sys
import unittest

from support import DEVICE, SKIPPED, need, need_kernels

need("torch", "numpy")
need_kernels()

import torch  # noqa: E402

from longstride.kernels import use_attention  # noqa: E402

if importlib.util.find_spec("torch._dynamo") is None:
    print("skipped: this PyTorch does not compile")
    sys.exit(SKIPPED)

import model_test  # noqa: E402


class Compiled(unittest.TestCase):
    def test_training_compiles_to_the_same_gradients(self):
        module, tokens = model_test.golden("fixed_merged", torch.float32)
        use_attention(module.to(DEVICE), "kernels")
        found = []
        for run in (module, torch.compile(module, backend="aot_eager")):
            module.zero_grad()
            logits = run(tokens.to(DEVICE))
            torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens.to(DEVICE).long().flatten()).backward()
            found.append([logits.detach(), *(p.grad.clone() for p in module.parameters())])
        for a, b in zip(*found):
            self.assertLess(float((a - b).norm()), 1e-5 * max(1, float(b.norm())))

    def test_a_compiled_model_is_one_graph(self):
        module, tokens = model_test.golden("fixed_merged", torch.float32)
        use_attention(module.to(DEVICE).eval(), "kernels")
        tokens = tokens.to(DEVICE).long()
        with torch.no_grad():
            found = torch.compile(module, backend="aot_eager", fullgraph=True)(tokens)
            self.assertLess(float((found - module(tokens)).abs().max()), 1e-5)


if __name__ == "__main__":
    unittest.main()
