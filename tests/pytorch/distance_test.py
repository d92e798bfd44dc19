"""longstride.distance_attention computes what its definition says, with gradients, for tensors as PyTorch has them."""
import math
import unittest

import support
import torch
from support import device, longstride

ARGUMENTS = ("q", "k", "v", "table", "content_bias", "position_bias", "span")


def naive(*tensors, **settings):
    return parts(*tensors, **settings)[0]


def parts(q, k, v, table=None, content_bias=None, position_bias=None, span=None, first_key=None, *, window=0,
          dilation=(), include_self=True, longest_span=0, ramp=32, scale=None):
    """From the definition, in the type of its arguments: the output, probabilities, their weights and scores."""
    heads, n, keys = q.shape[1], q.shape[2], k.shape[2]
    t = torch.arange(keys - n, keys, device=q.device)[:, None] - torch.arange(keys, device=q.device)[None, :]
    u, w = (0 if b is None else b[:, None].to(q.dtype) for b in (content_bias, position_bias))
    bias = None
    if table is not None:
        rows = (table[:, None].expand(-1, heads, -1) if table.dim() == 2 else table).to(q.dtype)
        near = rows[t.clamp(0, len(rows) - 1)]  # (n, keys, heads, size)
        bias = torch.einsum("bhid,ijhd->bhij", q + w, near)
    steps = torch.tensor(dilation or [1] * heads, device=q.device)[:, None, None]
    allowed = (t >= (0 if include_self else 1) * steps) & (t % steps == 0)
    if window > 0:
        allowed = allowed & (t < window * steps)
    allowed = allowed[None]
    if first_key is not None:
        allowed = allowed & (torch.arange(keys, device=q.device) >= first_key[:, None])[:, None, None]
    weights = torch.ones((), dtype=q.dtype, device=q.device)
    if span is not None:
        weights = ((ramp + span[:, None, None].to(q.dtype) * longest_span - t) / ramp).clamp(max=1)
        allowed = allowed & (weights >= 1 / 1024)
    o, p, scores = support.attend(q + u, k, v, allowed, bias, weights, scale)
    return o, p, weights, scores


def span_rounding(tensors, settings, dout):
    """What a gradient of spans may be off by if log-sum-exps have the relative rounding 1. It is the sum over the pairs
    on a ramp of exp(score - lse) (dP - D) longest_span / ramp."""
    o, p, w, scores = parts(**{name: x.double() for name, x in tensors.items()}, **settings)
    dout = dout.double()
    slope = dout @ tensors["v"].double().transpose(2, 3) - (dout * o).sum(-1, keepdim=True)
    terms = p / w.clamp(min=1 / 1024) * slope
    size = scores.abs().max() + math.log(p.shape[-1])
    return (size * terms.abs()[(w < 1).expand_as(p)].sum() * settings["longest_span"] / settings["ramp"]).item()


def problem(form, dtype, queries, keys, key_size, value_size, heads=3, batch=2):
    """Tensors by name, settings, and the gradient of the output."""
    random = torch.Generator().manual_seed(queries + keys)

    def draw(*shape):
        return torch.randn(*shape, generator=random, dtype=torch.float64).to(dtype).to(device)

    exact = torch.float64 if dtype == torch.float64 else torch.float32
    tensors, settings = {"q": draw(batch, heads, queries, key_size), "k": draw(batch, heads, keys, key_size),
                         "v": draw(batch, heads, keys, value_size)}, {}
    if form in ("table", "mixture"):
        tensors["table"] = draw(keys // 2 + 1, heads, key_size)
        tensors["content_bias"], tensors["position_bias"] = (draw(heads, key_size).to(exact) for _ in range(2))
        settings["first_key"] = torch.tensor([0, keys // 3], dtype=torch.int32, device=device)
    if form == "span":
        tensors["table"] = draw(keys, key_size)
        settings.update(include_self=False)
    if form in ("span", "mixture"):  # no distance at the end of a ramp, where a weight has a kink
        tensors["span"] = ((torch.arange(heads) * 3 + 2.37) / 40).to(exact).to(device)
        settings.update(longest_span=40, ramp=5)
    if form in ("dilated", "mixture"):
        settings.update(window=6, dilation=(1, 3, 2))
    return tensors, settings, draw(batch, heads, queries, value_size)


def results(run, tensors, settings, dout):
    given = {name: x.detach().requires_grad_() for name, x in tensors.items()}
    o = run(**given, **settings)
    return [o.detach(), *torch.autograd.grad(o, list(given.values()), dout.to(o.dtype))]


class Results(unittest.TestCase):
    def check(self, form, dtype, *sizes):
        """An error may be twice the largest of a naive computation in the type, and the rounding of a few terms."""
        tensors, settings, dout = problem(form, dtype, *sizes)
        right = results(naive, {name: x.double() for name, x in tensors.items()}, settings, dout)
        plain = results(naive, tensors, settings, dout)
        errors = [(y.double() - x).nan_to_num().abs().max().item() for x, y in zip(right, plain)]
        found = results(longstride.distance_attention, tensors, settings, dout)
        exact = torch.finfo(torch.float64 if dtype == torch.float64 else torch.float32).eps
        for what, x, y, z in zip(("o", *tensors), right, errors, found):
            least = 4 * exact * sum(sizes) + 2 * torch.finfo(dtype).eps * x.abs().max().item()
            if what == "span":
                least += exact * span_rounding(tensors, settings, dout)
            most = 2 * y + least
            error = (z.double() - x).abs().max().item()
            self.assertLessEqual(error, most, f"{what} of {form}, {sizes}, {dtype}")
            self.assertLess(most, 0.4 * max(1.0, x.abs().max().item()))

    def test_every_form_type_and_size_of_heads_at_ragged_lengths(self):
        for form in ("plain", "table", "span", "dilated", "mixture"):
            for sizes in ((9, 9, 16, 16), (37, 70, 64, 64), (64, 130, 24, 40), (1, 20, 33, 7), (130, 130, 128, 128)):
                for dtype in support.dtypes:
                    with self.subTest(form=form, sizes=sizes, dtype=dtype):
                        self.check(form, dtype, *sizes)

    def test_finite_differences(self):
        if device.type != "cpu":
            self.skipTest("a GPU has no float64")
        tensors, settings, _ = problem("mixture", torch.float64, 6, 11, 4, 3)
        names = list(tensors)

        def run(*values):
            return longstride.distance_attention(**dict(zip(names, values)), **settings)

        given = [x.requires_grad_() for x in tensors.values()]
        self.assertTrue(torch.autograd.gradcheck(run, given))


class Tensors(unittest.TestCase):
    def test_strides_types_of_parameters_and_scale(self):
        tensors, settings, dout = problem("table", support.dtypes[0], 37, 70, 16, 16)
        right = results(longstride.distance_attention, tensors, settings, dout)
        apart = {name: x.transpose(-2, -1).contiguous().transpose(-2, -1) for name, x in tensors.items()}
        for x, y in zip(right, results(longstride.distance_attention, apart, settings, dout)):
            self.assertTrue(torch.equal(x, y))
        half = {**tensors, "content_bias": tensors["content_bias"].bfloat16()}
        self.assertEqual(results(longstride.distance_attention, half, settings, dout)[5].dtype, torch.bfloat16)
        self.assertTrue(torch.equal(right[0], longstride.distance_attention(**tensors, **settings, scale=0.25)))
        self.assertFalse(torch.equal(right[0], longstride.distance_attention(**tensors, **settings, scale=0.5)))

    def test_views_with_the_other_sign(self):
        tensors, settings, dout = problem("table", support.dtypes[0], 9, 17, 16, 16)
        negated = {name: torch._neg_view(-x) for name, x in tensors.items()}
        right = results(longstride.distance_attention, tensors, settings, dout)
        for x, y in zip(right, results(longstride.distance_attention, negated, settings, torch._neg_view(-dout))):
            self.assertTrue(torch.equal(x, y))

    def test_no_sequences(self):
        tensors, settings, dout = problem("mixture", support.dtypes[0], 9, 17, 16, 16)
        empty = {name: x[:0] if name in "qkv" else x for name, x in tensors.items()}
        settings["first_key"] = settings["first_key"][:0]
        for x, given in zip(results(longstride.distance_attention, empty, settings, dout[:0])[1:], empty.values()):
            self.assertEqual(x.shape, given.shape)
            self.assertEqual(x.count_nonzero().item(), 0)

    def test_numbers_of_other_libraries(self):
        tensors, settings, _ = problem("dilated", support.dtypes[0], 9, 17, 16, 16)
        other = {"window": support.Whole(6), "dilation": [support.Whole(x) for x in (1, 3, 2)]}
        self.assertTrue(torch.equal(longstride.distance_attention(**tensors, **settings),
                                    longstride.distance_attention(**tensors, **{**settings, **other})))

    def test_a_first_key_beyond_32_bits_hides_all_keys(self):
        tensors, settings, _ = problem("table", support.dtypes[0], 9, 17, 16, 16)
        settings["first_key"] = torch.tensor([-2**40, 2**40], device=device)
        o = longstride.distance_attention(**tensors, **settings)
        settings["first_key"] = torch.tensor([0, 17], dtype=torch.int32, device=device)
        self.assertTrue(torch.equal(o, longstride.distance_attention(**tensors, **settings)))
        self.assertEqual(o[1].abs().max().item(), 0)

    def test_a_query_without_a_key_is_zero(self):
        tensors, settings, dout = problem("span", support.dtypes[0], 9, 9, 16, 16)
        o, dq, *_ = results(longstride.distance_attention, tensors, settings, dout)
        self.assertEqual(o[:, :, 0].abs().max().item(), 0)
        self.assertEqual(dq[:, :, 0].abs().max().item(), 0)

    def test_the_same_bits_each_time(self):
        tensors, settings, dout = problem("mixture", support.dtypes[-1], 64, 130, 64, 64)
        first, second = (results(longstride.distance_attention, tensors, settings, dout) for _ in range(2))
        for x, y in zip(first, second):
            self.assertTrue(torch.equal(x, y))

    def test_opcheck(self):
        tensors, settings, _ = problem("mixture", torch.float32, 9, 17, 8, 8)
        from longstride import distance_op
        text = distance_op._settings(settings["window"], settings["dilation"], True, True, 40, 5)
        args = [tensors[name].requires_grad_() for name in ARGUMENTS]
        torch.library.opcheck(torch.ops.longstride.distance_attention, (*args, settings["first_key"], text, 0.0))
        without = distance_op._settings(0, (), True, False, 0, 32)
        torch.library.opcheck(torch.ops.longstride.distance_attention, (*args[:3], *[None] * 5, without, 0.0))

    def test_compiled_in_one_graph(self):
        tensors, settings, dout = problem("mixture", torch.float32, 16, 33, 8, 8)
        first_key = settings.pop("first_key")

        def run(**given):
            return longstride.distance_attention(**given, first_key=first_key, **settings) * 2

        compiled = torch.compile(run, fullgraph=True, backend="aot_eager")
        for x, y in zip(results(run, tensors, {}, dout), results(compiled, tensors, {}, dout)):
            torch.testing.assert_close(x, y)

    def test_a_cuda_graph_replays_it(self):
        if device.type != "cuda":
            self.skipTest("needs a GPU")
        tensors, settings, dout = problem("mixture", torch.bfloat16, 64, 130, 64, 64)
        right = results(longstride.distance_attention, tensors, settings, dout)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found = results(longstride.distance_attention, tensors, settings, dout)
        graph.replay()
        torch.cuda.synchronize()
        for x, y in zip(right, found):
            self.assertTrue(torch.equal(x, y))

    def test_gradients_of_the_second_order_are_refused(self):
        tensors, settings, _ = problem("plain", torch.float32, 9, 9, 8, 8)
        q = tensors["q"].requires_grad_()
        o = longstride.distance_attention(**tensors, **settings)
        (dq,) = torch.autograd.grad(o.sum(), q, create_graph=True)
        with self.assertRaisesRegex(RuntimeError, "gradients of the first order only"):
            dq.sum().backward()


class Mistakes(unittest.TestCase):
    def test_each_is_one_sentence(self):
        tensors, settings, _ = problem("table", torch.float32, 9, 17, 8, 8)
        q, table = tensors["q"], tensors["table"]
        for change, sentence in [
            ({"q": None}, "q is NoneType, but must be a tensor"),
            ({"q": q[:, :2]}, "but must be (batch, heads, queries, key size)"),
            ({"q": torch.cat([q, q], 2)}, "with no more queries than keys"),
            ({"q": q.double()}, "q, k and v are torch.float64, torch.float32 and torch.float32, but must be of"),
            ({"q": q.half()}, "q, k and v are torch.float16, torch.float32 and torch.float32, but must be of"),
            ({"q": q.to_sparse()}, "q is torch.sparse_coo, but must be a dense tensor; make it one by q.to_dense()"),
            ({"table": table.to(torch.complex64)}, "a table, bias or span is torch.complex64, but must be of real"),
            ({"table": table.to_sparse()}, "table is torch.sparse_coo, but must be a dense tensor"),
            ({"table": table[:, :2]}, "table is (9, 2, 8), but must be (distances, 8) or (distances, 3, 8)"),
            ({"content_bias": q[0, 0]}, "content_bias is (9, 8), but must be (3, 8)"),
            ({"first_key": torch.zeros(3, dtype=torch.int32, device=device)}, "first_key is (3,), but must be (2,)"),
            ({"first_key": torch.zeros(2, device=device)}, "first_key is torch.float32, but must be of whole numbers"),
            ({"table": None}, "position_bias is given, but no table, without which it has no effect"),
            ({"table": table[:0]}, "but must be (distances, 8) or (distances, 3, 8), with a distance"),
            ({"longest_span": 9}, "longest_span is 9, but there is no span; give one per head"),
            ({"window": 2.0}, "window is 2.0, but must be a whole number"),
            ({"window": True}, "window is True, but must be a whole number"),
            ({"window": -1}, "window is -1, but must be from 0 to 16777215"),
            ({"dilation": (2, 1)}, "dilation has 2 steps, but must have none, or one for each of 3 heads"),
            ({"dilation": 2}, "dilation is 2, but must be a list of steps, one for each head"),
            ({"dilation": (2, 1, 0)}, "dilation is 0, but must be from 1 to 16777215"),
            ({"include_self": 1}, "include_self is 1, but must be True or False"),
            ({"scale": 10**400}, f"scale is {10**400}, but must be a positive number, or None"),
            ({"span": torch.ones(3, device=device), "longest_span": 10**400}, "but must be a positive number"),
            ({"window": support.Whole(-1)}, "window is -1, but must be from 0 to 16777215"),
            ({"scale": -1}, "scale is -1, but must be a positive number, or None"),
            ({"span": torch.ones(3, device=device), "longest_span": 4, "ramp": 0}, "ramp is 0, but must be a positive"),
        ]:
            with self.assertRaises(ValueError) as caught:
                longstride.distance_attention(**{**tensors, **settings, **change})
            self.assertIn(sentence, str(caught.exception))


if __name__ == "__main__":
    unittest.main()
