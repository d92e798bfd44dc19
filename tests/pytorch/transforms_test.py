"""Derivatives of the operators by torch.func, in batches and in forward mode: right, or refused."""
import unittest

import support
import torch
from support import longstride
from torch.autograd import forward_ad

longstride.attention, longstride.distance_attention, longstride.scan  # registers the operators
pattern = longstride.Pattern(parts=["local"], stride=4)
q, k, v, dout = support.inputs(1, 2, 6, 4, 4, torch.float32)
tangent, document = torch.ones_like(q), torch.tensor([0, 6], device=q.device)


def by_operator(q, k, v):
    return torch.ops.longstride.attention(q, k, v, pattern.text, 0.0)[0]


FUNCTIONS = {
    "attention": lambda q, k, v: longstride.attention(q, k, v, pattern),
    "operator": by_operator,
    "attention in a document": lambda q, k, v: longstride.attention(q, k, v, pattern, groups=document),
    "distance_attention": lambda q, k, v: longstride.distance_attention(q, k, v, window=5),
    "scan": lambda q, k, v: longstride.scan(q, k, v),
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
        with self.assertRaisesRegex(NotImplementedError, "in reverse mode only .* a derivative in forward mode"):
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


def naive(q, k, v):
    return support.naive(q, k, v, support.allowed(pattern, q.shape[1], q.shape[2]).to(q.device))


def naive_of(attend):
    return (lambda q, k, v: (q @ k.transpose(2, 3)).tril() @ v) if attend is FUNCTIONS["scan"] else naive


class Batches(unittest.TestCase):
    """Many gradients at once are those one by one."""

    @each
    def test_batched_gradients(self, attend):
        tensors = [x.detach().requires_grad_() for x in (q, k, v)]
        douts = torch.stack([dout, 2 * dout, torch.ones_like(dout)])
        found = torch.autograd.grad(attend(*tensors), tensors, douts, is_grads_batched=True)
        for at, each_dout in enumerate(douts):
            for x, y in zip(support.results(attend, q, k, v, each_dout)[1:], found):
                self.assertTrue(torch.equal(x, y[at]))

    @each
    def test_jacobians(self, attend):
        right = torch.autograd.functional.jacobian(attend, (q, k, v))
        for found in (torch.autograd.functional.jacobian(attend, (q, k, v), vectorize=True),
                      torch.func.jacrev(attend, argnums=(0, 1, 2))(q, k, v)):
            for x, y in zip(right, found):
                self.assertTrue(torch.equal(x, y))


class Functions(unittest.TestCase):
    @each
    def test_vjp_has_the_bits_of_backward(self, attend):
        _, pull = torch.func.vjp(attend, q, k, v)
        for x, y in zip(support.results(attend, q, k, v, dout)[1:], pull(dout)):
            self.assertTrue(torch.equal(x, y))

    @each
    def test_gradients_of_each_of_many(self, attend):
        many = torch.stack([q, 2 * q, -q])
        gradient = torch.func.grad(lambda x: attend(x, k, v).square().sum())
        right = torch.stack([gradient(x) for x in many])
        self.assertGreater(right.abs().max(), 0)
        self.assertTrue(torch.equal(torch.func.vmap(gradient)(many), right))
        within = torch.func.grad(lambda xs: torch.func.vmap(lambda x: attend(x, k, v))(xs).square().sum())(many)
        self.assertTrue(torch.equal(within, right))

    @each
    def test_an_outer_transform_differentiates_what_an_inner_one_does_not(self, attend):
        def nested(attend):
            def outer(b):
                return torch.func.grad(lambda a: attend(q, b, v).square().sum() * a)(torch.ones((), device=q.device))

            return torch.func.grad(outer)(k)

        torch.testing.assert_close(nested(attend), nested(naive_of(attend)))

    @each
    def test_autograd_outside_of_a_transform_goes_on(self, attend):
        def gradient(attend):
            b = k.detach().requires_grad_()
            inner = torch.func.grad(lambda a: (attend(q, b, v) * a).sum())(q)
            return torch.autograd.grad(inner.sum(), b)[0]

        torch.testing.assert_close(gradient(attend), gradient(naive_of(attend)))

    @each
    def test_a_second_derivative_is_refused(self, attend):
        def first(x):
            return torch.func.grad(lambda y: attend(y, k, v).square().sum())(x).sum()

        with self.assertRaisesRegex(RuntimeError, "has gradients of the first order only"):
            torch.func.grad(first)(q)


if __name__ == "__main__":
    unittest.main()
