"""PyTorch's own checks of the operators, and torch.compile: the same bits as without it."""
import shutil
import subprocess
import sys
import tempfile
import unittest

import support
import torch
from longstride import distance_op
from support import device, longstride

P = longstride.Pattern
longstride.attention  # registers the operators
fixed = P(parts=["fixed_block", "fixed_summary"], integration="merged", stride=16, summary=4)


class Operators(unittest.TestCase):
    def test_opcheck(self):
        forward, backward = torch.ops.longstride.attention, torch.ops.longstride.attention_backward
        for dtype in support.dtypes:
            for *shape, key_heads in ((2, 4, 37, 16, 24, 4), (1, 2, 1, 16, 16, 2), (2, 4, 37, 16, 24, 2)):
                q, k, v, dout = support.inputs(*shape, dtype)
                k, v = (x[:, :key_heads].clone() for x in (k, v))
                with self.subTest(dtype=dtype, shape=shape, key_heads=key_heads):
                    o, lse = forward(q, k, v, fixed.text, 0.0)
                    torch.library.opcheck(backward, (dout, q, k, v, o, lse, fixed.text, 0.0))
                    torch.library.opcheck(forward, (q, k, v, fixed.text, 0.0))
                    q, k, v = (x.requires_grad_() for x in (q, k, v))
                    torch.library.opcheck(forward, (q, k, v, fixed.text, 0.5))
                    columns = q.transpose(1, 2).contiguous().transpose(1, 2)
                    torch.library.opcheck(forward, (columns, k, v, fixed.text, 0.5))

    def test_fake_tensors_have_the_shapes_and_strides_of_real_ones(self):
        from torch._subclasses.fake_tensor import FakeTensorMode

        q, k, v, _ = support.inputs(2, 4, 37, 16, 24, torch.float32)
        real = torch.ops.longstride.attention(q, k, v, fixed.text, 0.0)
        with FakeTensorMode() as mode:
            fake = torch.ops.longstride.attention(*(mode.from_tensor(x) for x in (q, k, v)), fixed.text, 0.0)
        for x, y in zip(real, fake):
            self.assertEqual((x.shape, x.stride(), x.dtype), (y.shape, y.stride(), y.dtype))
        with self.assertRaises(ValueError) as caught, FakeTensorMode() as mode:
            longstride.attention(*(mode.from_tensor(x) for x in (q, v, v)), fixed)
        self.assertIn("but must be (batch, heads, n_q, key size)", str(caught.exception))


class Backward(unittest.TestCase):
    """The operators of backward take what forward makes, and refuse other shapes, types and devices."""

    def setUp(self):
        q, k, v, dout = support.inputs(2, 4, 37, 16, 24, support.dtypes[0])
        o, lse = torch.ops.longstride.attention(q, k, v, fixed.text, 0.0)
        self.tensors = {"dout": dout, "q": q, "k": k, "v": v, "o": o, "lse": lse}

    def runs(self):
        """Both operators, as functions of dictionaries of tensors."""
        settings = distance_op._settings(0, (), True, False, 0, 32)

        def with_distances(dout, q, k, v, o, lse):
            return torch.ops.longstride.distance_attention_backward(dout, q, k, v, *[None] * 5, o, lse, settings, 0.0)

        def plain(dout, q, k, v, o, lse):
            return torch.ops.longstride.attention_backward(dout, q, k, v, o, lse, fixed.text, 0.0)

        return plain, with_distances

    def test_mistakes(self):
        from torch._subclasses.fake_tensor import FakeTensorMode

        for name, change in [("dout", lambda x: x[:, :, :1]), ("dout", lambda x: x.double()),
                             ("o", lambda x: x[..., :1]), ("o", lambda x: x.bfloat16()), ("lse", lambda x: x[:1]),
                             ("lse", lambda x: x.double()), ("lse", lambda x: x.flatten()),
                             ("dout", lambda x: x.to("meta"))]:
            given = {**self.tensors, name: change(self.tensors[name])}
            for run in self.runs():
                with self.assertRaisesRegex(ValueError, f"^{name} is .*, but must be \\(2, 4, 37"):
                    run(**given)
                if given[name].device.type != "meta":
                    with FakeTensorMode() as mode, self.assertRaisesRegex(ValueError, f"^{name} is "):
                        run(**{key: mode.from_tensor(x) for key, x in given.items()})
        for run in self.runs():
            with self.assertRaisesRegex(ValueError, "^q, k and v are .*, but must be"):
                run(**{**self.tensors, "k": self.tensors["k"][..., :3]})

    def test_lse_may_have_any_strides(self):
        lse = self.tensors["lse"]
        apart = lse.transpose(0, 2).contiguous().transpose(0, 2)
        self.assertFalse(apart.is_contiguous())
        for run in self.runs():
            for x, y in zip(run(**self.tensors), run(**{**self.tensors, "lse": apart})):
                self.assertTrue(torch.equal(x, y))


class Compiled(unittest.TestCase):
    def check(self, backend, pattern, **options):
        torch._dynamo.reset()

        def run(q, k, v):
            return longstride.attention(q * 2, k, v, pattern) + 1

        compiled = torch.compile(run, fullgraph=True, backend=backend, **options)
        for n in (37, 53, 130):
            tensors = support.inputs(2, 4, n, 16, 24, torch.float32, seed=n)
            for x, y in zip(support.results(run, *tensors), support.results(compiled, *tensors)):
                self.assertTrue(torch.equal(x, y), f"n {n}")

    def test_one_graph_of_fixed_shapes(self):
        self.check("aot_eager", fixed, dynamic=False)

    def test_one_graph_of_any_shape(self):
        self.check("aot_eager", fixed, dynamic=True)

    @unittest.skipIf(device.type == "cpu" and shutil.which("g++") is None, "there is no g++")
    def test_inductor(self):
        self.check("inductor", fixed)

    @unittest.skipIf(device.type != "cuda", "of a GPU")
    def test_inductor_with_cuda_graphs(self):
        self.check("inductor", fixed, mode="reduce-overhead")


class Module(torch.nn.Module):
    """Attention of a layer, as a user writes it."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.packed = torch.nn.Linear(width, 3 * width)
        self.output = torch.nn.Linear(width, width)

    def forward(self, x):
        batch, n, width = x.shape
        q, k, v = self.packed(x).view(batch, n, 3, self.heads, width // self.heads).transpose(1, 3).unbind(2)
        return self.output(longstride.attention(q, k, v, fixed).transpose(1, 2).reshape(batch, n, width))


class Modules(unittest.TestCase):
    def test_a_compiled_module_learns_as_the_module_does(self):
        losses = {}
        for compiled in (False, True):
            torch._dynamo.reset()
            torch.manual_seed(1)
            module = Module(32, 2).to(device)
            run = torch.compile(module, fullgraph=True, backend="aot_eager") if compiled else module
            optimizer = torch.optim.SGD(module.parameters(), lr=0.5)
            x = torch.randn(2, 50, 32).to(device)
            losses[compiled] = []
            for _ in range(5):
                loss = (run(x) - x.roll(1, 1)).square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses[compiled].append(loss.item())
        self.assertLess(losses[False][-1], losses[False][0])
        for x, y in zip(losses[False], losses[True]):
            self.assertAlmostEqual(x, y, delta=1e-5)

    def test_it_is_exported(self):
        module = Module(32, 2).to(device)
        x = torch.randn(2, 50, 32).to(device)
        exported = torch.export.export(module, (x,))
        torch.testing.assert_close(exported.module()(x), module(x))

    def test_an_exported_program_is_loaded_by_a_process_that_only_imports(self):
        class Both(torch.nn.Module):
            def forward(self, q, k, v):
                return longstride.attention(q, k, v, fixed) + longstride.distance_attention(q, k, v)

        tensors = tuple(support.inputs(1, 2, 20, 8, 8, torch.float32)[:3])
        with tempfile.TemporaryDirectory() as folder:
            path, inputs = f"{folder}/both.pt2", f"{folder}/inputs"
            torch.export.save(torch.export.export(Both(), tensors), path)
            torch.save(tensors, inputs)
            code = ("import torch, longstride\n"
                    f"print(torch.export.load({path!r}).module()(*torch.load({inputs!r})))")
            run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual(run.stdout.strip(), str(Both()(*tensors)))


if __name__ == "__main__":
    unittest.main()
