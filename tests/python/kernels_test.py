"""Modules whose attention is Longstride's kernels: the golden files, eval's figures, and what is refused."""
import importlib.util
import os
import unittest

from support import DEVICE, need, need_kernels

need("torch", "numpy")
need_kernels()

import torch  # noqa: E402

from longstride.kernels import Kernels, attention_of, use_attention  # noqa: E402

import model_test  # noqa: E402
from longstride.model.settings import UserError  # noqa: E402
from longstride.model.decoder import Decoder  # noqa: E402


if os.environ.get("LONGSTRIDE_COMMAND") and all(importlib.util.find_spec(name) for name in ("yaml", "h5py")):
    import families_test

    class FiguresWithKernels(families_test.Families):
        attention = "kernels"
else:
    print("skipped: figures of eval, which need LONGSTRIDE_COMMAND, PyYAML and h5py")


class GoldenWithKernels(unittest.TestCase):
    def test_losses_and_gradients(self):
        dtype, most = (torch.float64, 1e-12) if DEVICE == "cpu" else (torch.float32, 1e-5)
        for name in model_test.CASES:
            found = []
            for attention in ("kernels", "reference"):
                module, tokens = model_test.golden(name, dtype)
                use_attention(module.to(DEVICE), attention)
                losses = module.losses(tokens.to(DEVICE))
                losses.mean().backward()
                found.append([losses.detach(), *(p.grad for p in module.parameters())])
            for a, b in zip(*found):
                self.assertLess(float((a - b).norm()), most * max(1, float(b.norm())), name)
            self.assertEqual(found[0][0].shape, found[1][0].shape)

    def test_sinks(self):
        dtype, most = (torch.float64, 1e-12) if DEVICE == "cpu" else (torch.float32, 1e-5)
        module = Decoder(model_test.settings(attention={"sink": "learned"})).to(DEVICE, dtype).eval()
        torch.nn.init.normal_(module.output.weight)
        torch.nn.init.normal_(module.layers[0].attention.sink)
        found = []
        for attention in ("kernels", "reference"):
            use_attention(module, attention)
            module.zero_grad()
            module.loss(torch.arange(16, device=DEVICE)[None]).backward()
            found.append([p.grad.clone() for p in module.parameters()])
        self.assertGreater(float(module.layers[0].attention.sink.grad.norm()), 1e-3)
        for a, b in zip(*found):
            self.assertLess(float((a - b).norm()), most * max(1, float(b.norm())))

    def test_the_kernels_are_called_and_steps_of_generation_are_not(self):
        module = Decoder(model_test.settings()).to(DEVICE).eval()
        use_attention(module, "auto")
        self.assertEqual(attention_of(module), "kernels")
        kernels, calls = module.layers[0].attention.attend.__self__, []
        attention = kernels.attention
        kernels.attention = lambda q, *rest, **given: calls.append(q.shape[2]) or attention(q, *rest, **given)
        samples = module.generate(b"abcd", length=16, seed=2)
        self.assertEqual(calls, [5])  # the prompt and the start
        use_attention(module, "reference")
        self.assertEqual(attention_of(module), "reference")
        self.assertEqual(module.generate(b"abcd", length=16, seed=2), samples)

    def test_what_they_do_not_compute_is_refused_or_left_to_the_reference(self):
        strict, lenient = Kernels(strict=True), Kernels(strict=False)
        q = torch.zeros(1, 2, 3, 4, device="meta")
        pattern = Decoder(model_test.settings()).settings.pattern
        with self.assertRaises(UserError) as caught:
            strict.attend(q, q, q, pattern, 0)
        self.assertEqual(str(caught.exception), 'attention is "kernels", but the library of kernels has none for meta')
        for attention, expected in (("auto", "reference"), ("kernels", "kernels")):
            module = Decoder(model_test.settings()).to("meta")
            use_attention(module, attention)
            self.assertEqual(attention_of(module), expected)
        large = torch.zeros(1, 2, 3, 130)
        for kernels, device in ((strict, "cpu"), (lenient, "cpu")):
            found = kernels.attend(*[large.to(device)] * 3, pattern, 0)
            self.assertEqual(tuple(found.shape), (1, 2, 3, 130))
        if DEVICE == "cuda" and strict.has_cuda:
            for q, message in [(large, "at most 128"), (large[..., :64].double(), "torch.float64 on the CPU alone")]:
                with self.assertRaises(UserError) as caught:
                    strict.attend(*[q.cuda()] * 3, pattern, 0)
                self.assertIn(message, str(caught.exception))
                self.assertEqual(lenient.attend(*[q.cuda()] * 3, pattern, 0).shape, q.shape)


if __name__ == "__main__":
    unittest.main()
