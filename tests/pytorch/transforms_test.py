"""Derivatives of longstride.attention by torch.func, in batches and in forward mode: right, or refused in a sentence."""
import unittest

import support
import torch
from support import longstride
from torch.autograd import forward_ad

longstride.attention, longstride.distance_attention  # registers the operators
pattern = longstride.Pattern(parts=["local"], stride=4)
q, k, v, dout = support.inputs(1, 2, 6, 4, 4, torch.float32)
tangent = torch.ones_like(q)


def by_operator(q, k, v):
    return torch.ops.longstride.attention(q, k, v, pattern.text, 0.0)[0]


FUNCTIONS = {
    "attention": lambda q, k, v: longstride.attention(q, k, v, pattern),
    "operator": by_operator,
    "distance_attention": lambda q, k, v: longstride.distance_attention(q, k, v, window=5),
}


def each(test):
    """The test of every function of q, k and v."""

    def run(self):
        for name, attend in FUNCTIONS.items():
            with self.subTest(function=name):
                test(self, attend)

    return run


class ForwardMode(unittest.TestCase):
    def refuses(self, run):
        with self.assertRaisesRegex(NotImplementedError, "gradients in reverse mode only .* but a derivative in forward"):
            run()

    @each
    def test_jvp_and_jacfwd_are_refused(self, attend):
        for at, x in enumerate((q, k, v)):
            def of_one(y, at=at):
                return attend(*(y if i == at else z for i, z in enumerate((q, k, v))))

            self.refuses(lambda: torch.func.jvp(of_one, (x,), (tangent,)))
            self.refuses(lambda: torch.func.jacfwd(of_one)(x))
            self.refuses(lambda: torch.func.jvp(lambda y: torch.func.vmap(of_one)(y[None]), (x,), (tangent,)))

    @each
    def test_a_dual_tensor_is_refused(self, attend):
        for x in (q, q.detach().requires_grad_()):
            with forward_ad.dual_level():
                self.refuses(lambda: attend(forward_ad.make_dual(x, tangent), k, v))
                self.assertTrue(torch.equal(attend(x, k, v), attend(q, k, v)))

    def test_a_dual_gradient_is_refused(self):
        x = q.detach().requires_grad_()
        for attend in FUNCTIONS.values():
            o = attend(x, k, v)
            with forward_ad.dual_level():
                self.refuses(lambda: torch.autograd.grad(o, x, forward_ad.make_dual(dout, tangent)))

    @each
    def test_a_level_without_duals_changes_nothing(self, attend):
        right = support.results(attend, q, k, v, dout)
        with forward_ad.dual_level():
            for x, y in zip(right, support.results(attend, q, k, v, dout)):
                self.assertTrue(torch.equal(x, y))


if __name__ == "__main__":
    unittest.main()
