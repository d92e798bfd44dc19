"""longstride.attention computes what the pattern defines, with gradients, for tensors as PyTorch has them."""
import math
import subprocess
import sys
import threading
import unittest
from unittest import mock

import support
import torch
from longstride import attention_run
from support import device, longstride

P = longstride.Pattern
strided = P(parts=["local", "column"], integration="merged", stride=7)


class Results(unittest.TestCase):
    def check(self, name, pattern, heads, n, sizes, dtype):
        tensors = support.inputs(2, heads, n, *sizes, dtype)
        mask = support.allowed(pattern, heads, n).to(device)
        right = support.results(lambda q, k, v: support.naive(q, k, v, mask), *(x.double() for x in tensors))
        naive = support.results(lambda q, k, v: support.naive(q, k, v, mask), *tensors)
        found = support.results(lambda q, k, v: longstride.attention(q, k, v, pattern), *tensors)
        for what, x, y, z in zip(("o", "dq", "dk", "dv"), right, naive, found):
            most = support.largest_error(x, y, dtype, sizes)
            error = (z.double() - x).abs().max().item()
            self.assertLessEqual(error, most, f"{what} of {name}, {heads} heads, n {n}, sizes {sizes}, {dtype}")
            self.assertLess(most, 0.3 * max(1, x.abs().max().item()))

    def test_every_pattern_type_and_size_of_heads_at_ragged_lengths(self):
        cases = 0
        sizes = [(16, 16), (64, 64), (24, 40), (128, 128), (33, 7)]
        for name, pattern in support.patterns(4):
            for n in (1, 37, 130):
                for dtype in support.dtypes:
                    with self.subTest(pattern=name, n=n, dtype=dtype):
                        self.check(name, pattern, 4, n, sizes[cases % len(sizes)], dtype)
                    cases += 1
        self.assertGreater(cases, 80 * len(support.dtypes))

    def test_a_long_sequence(self):
        pattern = P(parts=["fixed_block", "fixed_summary"], integration="merged", stride=128, summary=32)
        self.check("fixed", pattern, 2, 1500, (64, 64), support.dtypes[0])

    def test_a_row_that_may_attend_to_nothing_is_zero_without_gradient(self):
        pattern = P(parts=["fixed_summary"], stride=16, summary=4)
        tensors = support.inputs(1, 2, 40, 16, 16, torch.float32)
        o, dq, _, _ = support.results(lambda q, k, v: longstride.attention(q, k, v, pattern), *tensors)
        self.assertEqual(o[:, :, :12].abs().max().item(), 0)
        self.assertEqual(dq[:, :, :12].abs().max().item(), 0)
        self.assertGreater(o[:, :, 12:].abs().min().item(), 0)

    def test_the_scale_is_as_given(self):
        q, k, v, _ = support.inputs(1, 2, 40, 16, 16, torch.float32)
        same = longstride.attention(q, k, v, strided, scale=0.25)
        self.assertTrue(torch.equal(longstride.attention(q, k, v, strided), same))
        other = longstride.attention(2 * q, k, v, strided, scale=0.125)
        torch.testing.assert_close(other, same)
        self.assertFalse(torch.equal(longstride.attention(q, k, v, strided, scale=0.125), same))


class SharedKeys(unittest.TestCase):
    """k and v of fewer heads, next to expanded ones, and one query next to all keys."""

    def check(self, name, pattern, heads, key_heads, n, sizes, dtype, queries=None):
        q, k, v, dout = support.inputs(2, heads, n, *sizes, dtype, queries=queries)
        tensors = (q, k[:, :key_heads], v[:, :key_heads], dout)
        mask = support.allowed(pattern, heads, n)[:, -q.shape[2]:].to(device)

        def expanded(q, k, v):
            return support.naive(q, *(x.repeat_interleave(heads // key_heads, 1) for x in (k, v)), mask)

        right = support.results(expanded, *(x.double() for x in tensors))
        naive = support.results(expanded, *tensors)
        found = support.results(lambda q, k, v: longstride.attention(q, k, v, pattern), *tensors)
        for what, x, y, z in zip(("o", "dq", "dk", "dv"), right, naive, found):
            self.assertEqual(x.shape, z.shape)
            most = support.largest_error(x, y, dtype, sizes)
            error = (z.double() - x).abs().max().item()
            self.assertLessEqual(error, most, f"{what} of {name}, {heads} heads on {key_heads}, n {n}, {sizes}, {dtype}")

    def test_every_pattern_type_and_size_of_groups(self):
        sizes = [(16, 16), (64, 64), (24, 40), (33, 7)]
        for cases, (name, pattern) in enumerate(support.patterns(4)):
            for key_heads in (1, 2):
                with self.subTest(pattern=name, key_heads=key_heads):
                    self.check(name, pattern, 4, key_heads, (37, 130)[cases % 2], sizes[cases % 4],
                               support.dtypes[cases % len(support.dtypes)])
        for key_heads in (1, 2, 3, 4, 6, 12):
            self.check("strided", strided, 12, key_heads, 100, (32, 32), torch.float32)

    def test_one_query_is_the_last_position_of_every_pattern(self):
        past = [(name, p) for name, p in support.patterns(4) if p.direction == "past"]
        for cases, (name, pattern) in enumerate(past):
            dtype = support.dtypes[cases % len(support.dtypes)]
            for n in (1, 2, 38, 130):
                with self.subTest(pattern=name, n=n):
                    self.check(name, pattern, 4, (4, 2, 1)[n % 3], n, (16, 24), dtype, queries=1)

    def test_steps_with_a_cache_equal_the_whole(self):
        sink = torch.randn(4, device=device)
        q, k, v, _ = support.inputs(2, 4, 60, 16, 16, torch.float32)
        k, v = k[:, :2], v[:, :2]
        whole = longstride.attention(q, k, v, strided, sink=sink)
        for n in range(1, 61):
            step = longstride.attention(q[:, :, n - 1:n], k[:, :, :n], v[:, :, :n], strided, sink=sink)
            torch.testing.assert_close(step, whole[:, :, n - 1:n])

    def test_heads_that_do_not_divide_are_refused(self):
        q, k, v, _ = support.inputs(1, 4, 8, 16, 16, torch.float32)
        for heads in (3, 0):
            with self.assertRaisesRegex(ValueError, f"q has 4 heads and k and v have {heads}, but theirs must divide"):
                longstride.attention(q, k[:, :heads], v[:, :heads], strided)
        with self.assertRaisesRegex(ValueError, "labels is 3, but queries is 1, which has no distances to keys"):
            longstride.attention(q[:, :, :1], k, v, strided,
                                 labels=longstride.Labels(torch.zeros(3, 16, device=device), clip=1))


class Autocast(unittest.TestCase):
    def test_tensors_are_cast_by_call_and_by_operator(self):
        q, k, v, dout = support.inputs(2, 4, 37, 16, 16, torch.float32)
        cast = [x.bfloat16() for x in (q, k, v)]
        right = support.results(lambda q, k, v: longstride.attention(q, k, v, strided), *cast, dout.bfloat16())
        with torch.autocast(device.type, torch.bfloat16):
            o = longstride.attention(q, cast[1], v, strided)
            direct = torch.ops.longstride.attention(q, k, v, strided.text, 0.0)[0]
            wide = longstride.attention(q.double(), k.double(), v.double(), strided) if device.type == "cpu" else None
            sink = longstride.attention(q, k, v, strided, sink=torch.zeros(4, device=device),
                                        labels=longstride.Labels(torch.zeros(3, 16, device=device), clip=1))
            found = support.results(lambda q, k, v: longstride.attention(q, k, v, strided), q, k, v, dout.bfloat16())
        self.assertEqual((o.dtype, sink.dtype), (torch.bfloat16, torch.bfloat16))
        self.assertTrue(torch.equal(o, right[0]) and torch.equal(direct, right[0]))
        self.assertTrue(wide is None or wide.dtype == torch.float64)
        self.assertEqual([x.dtype for x in found[1:]], 3 * [torch.float32])
        for x, y in zip(right[1:], found[1:]):
            self.assertTrue(torch.equal(x.float(), y))

    def test_compiled_code_is_cast_alike(self):
        q, k, v, _ = support.inputs(2, 4, 37, 16, 16, torch.float32)
        compiled = torch.compile(lambda *x: longstride.attention(*x, strided), fullgraph=True, backend="aot_eager")
        with torch.autocast(device.type, torch.bfloat16):
            self.assertTrue(torch.equal(compiled(q, k, v), longstride.attention(q, k, v, strided)))


class Tensors(unittest.TestCase):
    def setUp(self):
        self.tensors = support.inputs(2, 4, 37, 16, 16, torch.float32)
        self.right = support.results(self.run_strided, *self.tensors)

    @staticmethod
    def run_strided(q, k, v):
        return longstride.attention(q, k, v, strided)

    def assert_same(self, found):
        for x, y in zip(self.right, found):
            self.assertTrue(torch.equal(x, y))

    def test_strides_do_not_matter(self):
        packed = torch.stack([x.transpose(1, 2) for x in self.tensors[:3]], 2)  # (batch, n, 3, heads, size)
        q, k, v = (x.transpose(1, 2) for x in packed.unbind(2))
        self.assertFalse(q.is_contiguous())
        self.assert_same(support.results(self.run_strided, q, k, v, self.tensors[3]))
        columns = [x.transpose(2, 3).contiguous().transpose(2, 3) for x in self.tensors]
        self.assertNotEqual(columns[0].stride(3), 1)
        self.assert_same(support.results(self.run_strided, *columns))

    def test_a_gradient_may_be_one_element_for_all(self):
        q, k, v, dout = self.tensors
        ones = support.results(self.run_strided, q, k, v, torch.ones_like(dout))
        expanded = support.results(self.run_strided, q, k, v, torch.ones(1, device=device)[0].expand(dout.shape))
        for x, y in zip(ones, expanded):
            self.assertTrue(torch.equal(x, y))

    def test_keys_may_be_one_head_for_all(self):
        q, k, v, dout = self.tensors
        expanded = k[:, :1].expand(k.shape)
        found = support.results(self.run_strided, q, expanded, v, dout)
        right = support.results(self.run_strided, q, expanded.contiguous(), v, dout)
        for x, y in zip(right, found):
            torch.testing.assert_close(x, y)

    def test_the_result_is_in_memory_as_the_next_layer_reads_it(self):
        o = self.run_strided(*self.tensors[:3])
        self.assertTrue(o.transpose(1, 2).is_contiguous())

    def test_no_sequences(self):
        for x in support.results(self.run_strided, *(x[:0] for x in self.tensors)):
            self.assertEqual(x.shape, (0, 4, 37, 16))

    def test_only_some_gradients(self):
        q, k, v, dout = self.tensors
        v = v.detach().requires_grad_()
        self.assertTrue(torch.equal(torch.autograd.grad(self.run_strided(q, k, v), v, dout)[0], self.right[3]))

    def test_without_gradients(self):
        q, k, v, _ = (x.detach().requires_grad_() for x in self.tensors)
        for mode in (torch.no_grad, torch.inference_mode):
            with mode():
                o = self.run_strided(q, k, v)
            self.assertFalse(o.requires_grad)
            self.assertTrue(torch.equal(o, self.right[0]))

    def test_modes_and_profilers_see_the_operators(self):
        from torch.utils._python_dispatch import TorchDispatchMode

        seen = []

        class Names(TorchDispatchMode):
            def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
                seen.append(str(operator))
                return operator(*args, **(kwargs or {}))

        with Names():
            self.assert_same(support.results(self.run_strided, *self.tensors))
        with torch.profiler.profile() as profile:
            self.assert_same(support.results(self.run_strided, *self.tensors))
        names = [event.name for event in profile.events()]
        for name in ("attention", "attention_backward"):
            self.assertEqual(seen.count(f"longstride.{name}.default"), 1)
            self.assertIn(f"longstride::{name}", names)

    def test_a_subclass_of_tensors_sees_the_operator(self):
        class Named(torch.Tensor):
            pass

        q, k, v = (x.as_subclass(Named) for x in self.tensors[:3])
        o = self.run_strided(q, k, v)
        self.assertIs(type(o), Named)
        self.assertTrue(torch.equal(o, self.right[0]))

    def test_a_tensor_that_outlives_a_transform(self):
        kept = []
        torch.func.grad(lambda x: (kept.append(x), x.sum())[1])(self.tensors[1])
        self.assertTrue(torch._C._functorch.is_functorch_wrapped_tensor(kept[0]))
        q, k, v, dout = self.tensors
        q = q.detach().requires_grad_()
        o = self.run_strided(q, kept[0], v)
        self.assertTrue(torch.equal(o, self.right[0]))
        self.assertTrue(torch.equal(torch.autograd.grad(o, q, dout)[0], self.right[1]))

    def test_views_with_the_other_sign(self):
        q, k, v, _ = self.tensors
        negated = [torch._neg_view(-x) for x in self.tensors]
        for at in range(4):
            self.assert_same(support.results(self.run_strided, *self.tensors[:at], negated[at], *self.tensors[at + 1:]))
        imaginary = torch.complex(v, -v).conj().imag
        self.assertTrue(torch.equal(self.run_strided(q, k, imaginary), self.right[0]))

    def test_memory_is_as_empty_strided_gives_it(self):
        shape, strides = (2, 3, 5, 8), (120, 8, 24, 1)
        for dtype in (torch.float32, torch.bfloat16, torch.uint8):
            found = attention_run.allocator(torch.device(device))(shape, strides, dtype)
            right = torch.empty_strided(shape, strides, dtype=dtype, device=device)
            for x in (found, right):
                x.zero_()
            self.assertTrue(torch.equal(found, right))
            self.assertEqual((found.stride(), found.dtype, found.device), (right.stride(), right.dtype, right.device))

    def test_a_pytorch_without_the_faster_allocation(self):
        tensors = support.inputs(1, 2, 37, 16, 16, torch.float32)
        right = support.results(lambda q, k, v: longstride.attention(q, k, v, strided), *tensors)
        with mock.patch.object(torch._C._dynamo, "guards", None):
            attention_run.allocator.cache_clear()
            attention_run._plan.cache_clear()
            found = support.results(lambda q, k, v: longstride.attention(q, k, v, strided), *tensors)
        attention_run.allocator.cache_clear()
        attention_run._plan.cache_clear()
        for x, y in zip(right, found):
            self.assertTrue(torch.equal(x, y))

    def test_threads_share_a_plan(self):
        found = [None] * 4

        def work(i):
            found[i] = support.results(self.run_strided, *self.tensors)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(len(found))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for results in found:
            self.assert_same(results)

    def test_a_thread_may_begin_with_attention(self):
        """On a GPU such a thread has no context of CUDA's driver yet: what PyTorch allocates comes from its cache."""
        tensors = support.inputs(2, 4, 256, 64, 64, torch.bfloat16)
        q, k, v = (x.requires_grad_() for x in tensors[:3])
        right = support.results(self.run_strided, *tensors)
        found = []
        thread = threading.Thread(target=lambda: found.append(self.run_strided(q, k, v)))
        thread.start()
        thread.join()
        self.assertTrue(torch.equal(found[0], right[0]))
        for x, y in zip(torch.autograd.grad(found[0], (q, k, v), tensors[3]), right[1:]):
            self.assertTrue(torch.equal(x, y))

    @unittest.skipIf(device.type != "cpu", "of the CPU")
    def test_the_number_of_threads_may_change(self):
        before = torch.get_num_threads()
        try:
            for threads in (1, 5):
                torch.set_num_threads(threads)
                self.assert_same(support.results(self.run_strided, *self.tensors))
        finally:
            torch.set_num_threads(before)

    @unittest.skipIf(device.type != "cuda", "of a GPU")
    def test_work_is_on_the_current_stream(self):
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            torch.cuda._sleep(50_000_000)
            tensors = [x.clone() for x in self.tensors]  # not written before the sleep ends
            found = support.results(self.run_strided, *tensors)
        torch.cuda.current_stream().wait_stream(stream)
        self.assert_same(found)

    @unittest.skipIf(device.type != "cuda", "of a GPU")
    def test_a_cuda_graph_replays_both_directions(self):
        q, k, v, dout = (torch.zeros_like(x) for x in self.tensors)
        for x in (q, k, v):
            x.requires_grad_()
        graph = torch.cuda.CUDAGraph()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.autograd.grad(self.run_strided(q, k, v), (q, k, v), dout)
        torch.cuda.current_stream().wait_stream(side)
        with torch.cuda.graph(graph):
            o = self.run_strided(q, k, v)
            gradients = torch.autograd.grad(o, (q, k, v), dout)
        with torch.no_grad():
            for x, given in zip((q, k, v, dout), self.tensors):
                x.copy_(given)
        graph.replay()
        self.assert_same([o.detach(), *gradients])


class Mistakes(unittest.TestCase):
    def setUp(self):
        self.q, self.k, self.v, _ = support.inputs(1, 2, 8, 16, 16, torch.float32)

    def refuses(self, sentence, q=None, k=None, v=None, pattern=strided, error=ValueError, **settings):
        q, k, v = (x if y is None else y for x, y in zip((self.q, self.k, self.v), (q, k, v)))
        with self.assertRaises(error) as caught:
            longstride.attention(q, k, v, pattern, **settings)
        self.assertIn(sentence, str(caught.exception))

    def test_patterns(self):
        self.refuses("parts has 'diagonal', but must name dense, local, column, fixed_block, fixed_summary, first, "
                     "block_window, dilated or shifted_block",
                     pattern=P(parts=["diagonal"]))
        self.refuses("integration is 'both', but must be one of interleaved, merged, multihead",
                     pattern=P(integration="both"))
        self.refuses("stride is 0, but column needs a positive number of positions", pattern=P(parts=["column"]))
        self.refuses("layer is 9223372036854775807, but must be from 0 to 2147483647", pattern=P(layer=2**63 - 1))
        self.refuses("summary has 4 widths, but must have none, one, or one for each of 2 heads",
                     pattern=P(parts=["fixed_summary"], stride=8, summary=[1, 2, 1, 2]))
        self.refuses("parts has 5000 names, but must have at most 4096", pattern=P(parts=["dense"] * 5000))
        self.refuses("pattern is 'dense', but must be a longstride.Pattern", pattern="dense")
        for sentence, names in [
            ("parts is 'local', but must be a list of names: ['local']", dict(parts="local")),
            ("parts is None, but must be a list of names", dict(parts=None)),
            ("integration is 'interleaved' and parts ['local\\x00dense'], but must be names",
             dict(parts=["local\0dense"], stride=1)),
            ("integration is 'interleaved' and parts ['\\ud800'], but must be names", dict(parts=["\ud800"])),
            ("stride is '7', but must be a whole number below 2^63", dict(parts=["column"], stride="7")),
            ("summary is [2.5], but must be a whole number below 2^63", dict(summary=[2.5])),
            ("distinct_heads is 1, but must be True or False", dict(distinct_heads=1)),
            ("window is 9223372036854775808, but must be a whole number below 2^63", dict(window=2**63)),
            ("integration is None and parts ['dense'], but must be names", dict(integration=None)),
        ]:
            with self.assertRaises(ValueError) as caught:
                P(**names)
            self.assertEqual(str(caught.exception), sentence)

    def test_numbers_of_other_libraries_are_whole_numbers(self):
        one, two, eight = (support.Whole(x) for x in (1, 2, 8))
        of_others = P(parts=["fixed_summary"], stride=eight, summary=[two], layer=one)
        self.assertEqual(of_others, P(parts=["fixed_summary"], stride=8, summary=[2], layer=1))
        self.assertEqual(P(parts=["fixed_summary"], stride=8, summary=support.Whole(2)).summary, (2,))

    def test_tensors(self):
        self.refuses("q, k and v are (1, 2, 8, 16), (1, 2, 7, 16) and (1, 2, 8, 16), but must be (batch, heads, "
                     "n_q, key size), (batch, key heads, n, key size) and (batch, key heads, n, value size)",
                     k=self.k[:, :, :7])
        self.refuses("q, k and v are torch.float32, torch.float32 and torch.bfloat16, but must be of one type",
                     v=self.v.bfloat16())
        for k, v in ((self.k, self.v), (self.k, self.v.bfloat16()), (self.k.bfloat16(), self.v)):
            self.refuses(f"q, k and v are torch.bfloat16, {k.dtype} and {v.dtype}, but must be of one type",
                         self.q.bfloat16(), k, v)
        self.refuses("q, k and v are on ", v=self.v.to("meta"))
        ints = self.q.int()
        self.refuses("q, k and v are torch.int32, torch.int32 and torch.int32, but must be of one type", ints, ints,
                     ints)
        for scale in (-1.0, 0, math.nan, math.inf, 10**400, True, "1"):
            self.refuses(f"scale is {scale!r}, but must be a positive number, or None for 1 / sqrt(key size)",
                         scale=scale)
        self.refuses("q, k and v are ndarray, Tensor and Tensor, but must be tensors", self.q.cpu().numpy())
        with self.assertRaisesRegex(ValueError, "^q, k and v are NoneType, Tensor and Tensor, but must be tensors$"):
            longstride.attention(None, self.k, self.v, strided)
        self.refuses("n is 0, but must be from 1 to 16777216", self.q[:, :, :0], self.k[:, :, :0], self.v[:, :, :0])

    def test_tensors_that_are_not_one_array(self):
        self.refuses("q is torch.sparse_coo, but must be a dense tensor; make it one by q.to_dense()", self.q.to_sparse())
        self.refuses("v is torch.sparse_coo", v=self.v.to_sparse())
        for layout in (torch.strided, torch.jagged):
            nested = torch.nested.nested_tensor([self.k[0], self.k[0]], layout=layout)
            self.refuses("k is nested, but must be a dense tensor; make it one by k.to_padded_tensor(0)", k=nested)
        for dtype in (torch.bfloat16, torch.float32):
            q, k, v = (x.to(dtype) for x in (self.q, self.k, self.v))
            self.refuses("k is torch.sparse_coo", q, k.to_sparse(), v)
            self.refuses("k is torch.sparse_coo", q.requires_grad_(), k.to_sparse(), v)

    @unittest.skipIf(device.type != "cuda", "of a GPU")
    def test_limits_of_gpus(self):
        large = torch.zeros(1, 1, 8, 136, device=device)
        self.refuses("key_size is 136, but must be from 1 to 128", large, large, large)
        double = self.q.double()
        self.refuses("dtype is f64, but a GPU computes in f32, bf16 and f16", double, double, double)

    def test_a_second_derivative_is_refused(self):
        q = self.q.requires_grad_()
        o = longstride.attention(q, self.k, self.v, strided)
        (dq,) = torch.autograd.grad(o.sum(), q, create_graph=True)
        with self.assertRaisesRegex(RuntimeError, "longstride.attention has gradients of the first order only"):
            torch.autograd.grad(dq.sum(), q)

    def test_a_library_that_is_missing(self):
        for modules in ("longstride", "torch, longstride"):
            code = f"import {modules}; longstride.load; print('loaded'); longstride.attention"
            run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                                 env={**support.os.environ, "LONGSTRIDE_ATTENTION_LIBRARY": "/none.so"})
            self.assertNotEqual(run.returncode, 0)
            self.assertEqual(run.stdout, "loaded\n")
            self.assertIn("ImportError: the library /none.so cannot be loaded", run.stderr)
            self.assertIn("install the package with pip from Longstride's source tree", run.stderr)

    def test_a_library_of_cuda_that_is_missing(self):
        run = subprocess.run([sys.executable, "-c", "import longstride; longstride.attention"], capture_output=True,
                             text=True, env={**support.os.environ, "LONGSTRIDE_ATTENTION_LIBRARY": "libcudart.so.0.none"})
        self.assertNotEqual(run.returncode, 0)
        self.assertIn("it was built for GPUs: install a PyTorch that brings this library of CUDA", run.stderr)


if __name__ == "__main__":
    unittest.main()
