"""longstride.scan computes what its recurrence says, with gradients, for tensors as PyTorch has them."""
import itertools
import shutil
import unittest

import support
import torch
from longstride import scan_run
from support import device, longstride

NAMES = ("q", "k", "v", "decay", "beta", "first_state")
longstride.scan  # registers the operators


def documents(groups, batch, n):
    """Numbers of documents (batch, n), of these or of cumulative lengths; on the CPU."""
    if groups is None:
        return torch.zeros(batch, n, dtype=torch.int64)
    if groups.dim() == 2:
        return groups.cpu()
    return (torch.arange(n)[:, None] >= groups.cpu()[1:-1]).sum(1).expand(batch, n)


def recurrence(q, k, v, decay=None, beta=None, first_state=None, *, form="sum", normalise=False, groups=None,
               return_state=False, direction="past"):
    """From the definition, position by position, in the type of q."""
    batch, heads, n, key_size = q.shape
    number = documents(groups, batch, n)
    new = torch.nn.functional.pad(number[:, 1:] != number[:, :-1], (1, 0)).to(q.device)
    decay, beta, first_state = (None if x is None else x.to(q.dtype) for x in (decay, beta, first_state))
    if normalise:
        v = torch.cat([v, torch.ones_like(v[..., :1])], 3)
    state = q.new_zeros(batch, heads, key_size, v.shape[3]) if first_state is None else first_state
    if direction == "both":
        same = (number[:, :, None] == number[:, None]).to(q.device)
        sums = (same[:, None] * (q @ k.transpose(2, 3))) @ v
    else:
        sums = []
        for t in range(n):
            a = 1 if decay is None else decay[:, :, t].exp()
            a = a if decay is None or a.dim() == 3 else a[..., None]
            state = torch.where(new[:, t, None, None, None], 0, (a if decay is None else a[..., None]) * state)
            u = v[:, :, t]
            if form == "delta":
                u = beta[:, :, t, None] * (u - torch.einsum("bhkv,bhk->bhv", state, k[:, :, t]))
            state = state + k[:, :, t, :, None] * u[:, :, None]
            sums.append(torch.einsum("bhkv,bhk->bhv", state, q[:, :, t]))
        sums = torch.stack(sums, 2)
    o = sums
    if normalise:
        below = sums[..., -1:]
        o = torch.where(below == 0, 0, sums[..., :-1] / torch.where(below == 0, 1, below))
    return (o, state) if return_state else o


def by_matrices(q, k, v, decay=None, beta=None, *, form="sum"):
    """Without states: a matrix of pairs, whose decays are of all positions between; of delta by its inverse,
    u = (1 + b L)^-1 b v with L the pairs of keys before."""
    n, key_size = q.shape[2:]
    log = torch.zeros_like(q) if decay is None else decay if decay.dim() == 4 else decay[..., None].expand(q.shape)
    total = log.cumsum(2)
    between = (total[:, :, :, None] - total[:, :, None]).exp()
    seen, before = (torch.ones(n, n, dtype=torch.bool).tril(at) for at in (0, -1))
    pairs = torch.einsum("bhik,bhjk,bhijk->bhij", q, k, between) * seen
    if form != "delta":
        return pairs @ v
    keys = torch.einsum("bhik,bhjk,bhijk->bhij", k, k, between) * before
    inverse = torch.linalg.inv(torch.eye(n, dtype=q.dtype) + beta[..., None] * keys)
    return pairs @ (inverse @ (beta[..., None] * v))


def combinations():
    for form, decay, *flags in itertools.product(("sum", "gated", "delta"), (None, "head", "channel"), *4 * [(False, True)]):
        normalise, both, groups, states = flags
        if (form == "sum" and decay) or (form == "gated" and not decay) or (form == "delta" and normalise):
            continue
        if not (both and (form != "sum" or states)):
            yield form, decay, normalise, both, groups, states


def problem(combination, dtype, n, key_size, value_size, batch=2, heads=3):
    """Tensors by name, settings, and the gradients of results. Keys are such that delta erases, rather than overshoots."""
    form, decay, normalise, both, groups, states = combination
    random = torch.Generator().manual_seed(n + key_size)
    exact = scan_run.exact_type(dtype)

    def draw(*shape):
        return torch.randn(*shape, generator=random, dtype=torch.float64)

    rows, state = (batch, heads, n), (batch, heads, key_size, value_size + normalise)
    q, k, v = draw(*rows, key_size), draw(*rows, key_size) / key_size**0.5, draw(*rows, value_size)
    if normalise:
        q, k = q.abs() + 0.1, k.abs()
    tensors = {name: x.to(dtype) for name, x in (("q", q), ("k", k), ("v", v))}
    if decay:
        tensors["decay"] = (-0.3 * draw(*rows, *([key_size] if decay == "channel" else [])).square()).to(exact)
    if form == "delta":
        tensors["beta"] = (2 * torch.rand(*rows, generator=random)).to(exact)
    settings = {"form": form, "normalise": normalise, "direction": "both" if both else "past", "return_state": states}
    if groups:
        settings["groups"] = (torch.tensor([0, n]) if n == 1 else torch.tensor([[0] * (n // 3) + [2] * (n - n // 3),
                                                                               [1] + [5] * (n - 1)])).to(device)
    if states:
        tensors["first_state"] = draw(*state).abs().to(exact)
    douts = [draw(*rows, value_size).to(dtype), draw(*state).to(exact)][:1 + states]
    return {name: x.to(device) for name, x in tensors.items()}, settings, [x.to(device) for x in douts]


def results(run, tensors, settings, douts):
    """Results, and gradients by name."""
    given = {name: x.detach().requires_grad_() for name, x in tensors.items()}
    found = run(**given, **settings)
    found = found if settings.get("return_state") else (found,)
    gradients = torch.autograd.grad(found, list(given.values()), [d.to(x.dtype) for d, x in zip(douts, found)])
    return {**dict(zip(("o", "last state"), (x.detach() for x in found))), **dict(zip(given, gradients))}


class Results(unittest.TestCase):
    def check(self, combination, dtype, *sizes):
        """An error may be twice the largest of the recurrence in the type, and the rounding of a few terms."""
        tensors, settings, douts = problem(combination, dtype, *sizes)
        right = results(recurrence, {name: x.double() for name, x in tensors.items()}, settings, douts)
        plain = results(recurrence, tensors, settings, douts)
        found = results(longstride.scan, tensors, settings, douts)
        exact = torch.finfo(scan_run.exact_type(dtype)).eps
        for name, x in right.items():
            size = max(1.0, x.abs().max().item())
            most = 2 * (plain[name].double() - x).abs().max().item() + 4 * exact * sum(sizes[1:]) * size
            most += 2 * torch.finfo(dtype).eps * size
            error = (found[name].double() - x).abs().max().item()
            self.assertLessEqual(error, most, f"{name} of {combination}, {sizes}, {dtype}")
            self.assertLess(most, 0.4 * size, f"{name} of {combination}, {sizes}, {dtype}")

    def test_every_combination_at_ragged_lengths(self):
        count = 0
        for combination in combinations():
            count += 1
            for sizes in ((1, 8, 8), (19, 33, 7), (150, 16, 24)):
                for dtype in support.dtypes:
                    with self.subTest(combination=combination, sizes=sizes, dtype=dtype):
                        self.check(combination, dtype, *sizes)
        self.assertEqual(count, 12 + 16 + 12)

    def test_the_recurrence_is_what_matrices_say(self):
        for form, decay in (("sum", None), ("gated", "head"), ("gated", "channel"), ("delta", None), ("delta", "head"),
                            ("delta", "channel")):
            tensors, _, _ = problem((form, decay, False, False, False, False), torch.float64, 21, 6, 5)
            tensors = {name: x.cpu() for name, x in tensors.items()}
            torch.testing.assert_close(recurrence(**tensors, form=form), by_matrices(**tensors, form=form))

    def test_finite_differences(self):
        if device.type != "cpu":
            self.skipTest("a GPU has no float64")
        for combination in combinations():
            tensors, settings, _ = problem(combination, torch.float64, 6, 3, 2)
            names = list(tensors)

            def run(*values):
                return longstride.scan(**dict(zip(names, values)), **settings)

            given = [x.requires_grad_() for x in tensors.values()]
            with self.subTest(combination=combination):
                self.assertTrue(torch.autograd.gradcheck(run, given))


FULL = ("delta", "head", False, False, True, True)
# Between them, these have everything.
SOME = (FULL, ("gated", "channel", True, False, True, True), ("sum", None, True, True, True, False),
        ("sum", None, False, True, False, False), ("gated", "head", False, False, False, False))


class Tensors(unittest.TestCase):
    def same(self, right, found):
        for name, x in right.items():
            self.assertTrue(torch.equal(x, found[name]), name)

    def test_strides_change_nothing(self):
        for combination in (FULL, ("gated", "channel", True, False, True, True)):
            tensors, settings, douts = problem(combination, support.dtypes[0], 40, 16, 16)
            right = results(longstride.scan, tensors, settings, douts)
            by_position = {name: x if name == "first_state" else x.transpose(1, 2).contiguous().transpose(1, 2)
                           for name, x in tensors.items()}
            self.same(right, results(longstride.scan, by_position, settings, douts))
            apart = {name: x.transpose(-2, -1).contiguous().transpose(-2, -1) for name, x in tensors.items()}
            self.same(right, results(longstride.scan, apart, settings, douts))

    def test_transposes_of_positions_are_not_copied(self):
        decay, beta = torch.zeros(2, 9, 3, 8, device=device), torch.zeros(2, 9, 3, device=device)
        _, addresses = scan_run._arrays(decay.transpose(1, 2), beta.transpose(1, 2), None)
        self.assertEqual(addresses, [decay.data_ptr(), beta.data_ptr(), 0])

    def test_decays_of_another_type(self):
        tensors, settings, douts = problem(FULL, torch.bfloat16, 20, 8, 8)
        half = {**tensors, "decay": tensors["decay"].bfloat16(), "beta": tensors["beta"].bfloat16()}
        exact = {**half, "decay": half["decay"].float(), "beta": half["beta"].float()}
        right, found = (results(longstride.scan, x, settings, douts) for x in (exact, half))
        self.assertEqual((found["decay"].dtype, found["last state"].dtype), (torch.bfloat16, torch.float32))
        self.same({name: x.to(found[name].dtype) for name, x in right.items()}, found)

    def test_cumulative_lengths_are_documents(self):
        tensors, settings, douts = problem(FULL, torch.float32, 20, 8, 8)
        settings["groups"] = torch.tensor([[0] * 7 + [1] * 13] * 2, device=device)
        right = results(longstride.scan, tensors, settings, douts)
        settings["groups"] = torch.tensor([0, 7, 20], device=device)
        self.same(right, results(longstride.scan, tensors, settings, douts))

    def test_a_state_continues_a_sequence(self):
        for combination in (("gated", "channel", True, False, False, True), ("delta", "head", False, False, False, True)):
            tensors, settings, _ = problem(combination, support.dtypes[0], 256, 16, 16)
            state = tensors.pop("first_state")
            whole, last = longstride.scan(**tensors, first_state=state, **settings)
            parts = []
            for part in (slice(0, 128), slice(128, 256)):
                o, state = longstride.scan(**{name: x[:, :, part] for name, x in tensors.items()}, first_state=state,
                                           **settings)
                parts.append(o)
            torch.testing.assert_close(torch.cat(parts, 2), whole)
            torch.testing.assert_close(state, last)

    def test_without_gradients_nothing_is_kept(self):
        tensors, settings, douts = problem(FULL, torch.float32, 20, 8, 8)
        right = results(longstride.scan, tensors, settings, douts)
        with torch.no_grad():
            o, last_state = longstride.scan(**tensors, **settings)
        self.same({"o": right["o"], "last state": right["last state"]}, {"o": o, "last state": last_state})
        found = torch.ops.longstride.scan(*(tensors[name] for name in NAMES), None, text(FULL))
        self.assertEqual(found[1].numel(), 0)

    def test_no_sequences(self):
        tensors, settings, douts = problem(FULL, torch.float32, 20, 8, 8)
        none = {name: x[:0] for name, x in tensors.items()}
        settings["groups"] = torch.tensor([0, 20], device=device)
        for name, x in results(longstride.scan, none, settings, [x[:0] for x in douts]).items():
            self.assertEqual(x.numel(), 0, name)


def text(combination, keep="false"):
    """Settings as the operators take them."""
    form, _, normalise, both, _, states = combination
    return (f'{{"form": "{form}", "normalise": {int(normalise)}, "both": {int(both)}, "return_state": {int(states)}, '
            f'"keep": {keep}}}')


class Operators(unittest.TestCase):
    def test_opcheck(self):
        forward, backward = torch.ops.longstride.scan, torch.ops.longstride.scan_backward
        for combination, dtype in zip(SOME, itertools.cycle(support.dtypes)):
            tensors, settings, douts = problem(combination, dtype, 37, 16, 24)
            begin = None
            if settings.get("groups") is not None:
                begin, _ = torch.ops.longstride.document_bounds(settings["groups"], 2, 37)
            args = [*(tensors.get(name) for name in NAMES), begin]
            with self.subTest(combination=combination, dtype=dtype):
                torch.library.opcheck(forward, (*args, text(combination)))
                o, kept, last_state = forward(*args, text(combination, "true"))
                douts = [*douts, torch.zeros_like(last_state)][:2]
                torch.library.opcheck(backward, (*douts, *args, o, kept, text(combination, "true")))
                given = [x if x is None or not x.is_floating_point() else x.requires_grad_() for x in args]
                torch.library.opcheck(forward, (*given, text(combination)))

    def test_backward_refuses_what_forward_does_not_make(self):
        tensors, _, (dout, dlast_state) = problem(FULL, torch.float32, 20, 8, 8)
        args = [*(tensors[name] for name in NAMES), None]
        o, kept, _ = torch.ops.longstride.scan(*args, text(FULL, "true"))
        good = {"dout": dout, "dlast_state": dlast_state, "o": o, "kept": kept}
        for name, change in [("dout", lambda x: x[:, :, :1]), ("dlast_state", lambda x: x.double()),
                             ("kept", lambda x: x[:64]), ("o", lambda x: x[..., :3])]:
            given = {**good, name: change(good[name])}
            with self.assertRaisesRegex(ValueError, f"^{name} is .*, but must be "):
                torch.ops.longstride.scan_backward(given["dout"], given["dlast_state"], *args, given["o"], given["kept"],
                                                   text(FULL, "true"))

    def test_gradients_of_the_second_order_are_refused(self):
        tensors, settings, _ = problem(FULL, torch.float32, 9, 8, 8)
        q = tensors["q"].requires_grad_()
        o, _ = longstride.scan(**tensors, **settings)
        (dq,) = torch.autograd.grad(o.sum(), q, create_graph=True)
        with self.assertRaisesRegex(RuntimeError, "gradients of the first order only"):
            dq.sum().backward()


class Compiled(unittest.TestCase):
    def check(self, backend, **options):
        def run(q, **given):
            found = longstride.scan(q * 2, **given)
            return (found[0] + 1, found[1]) if given["return_state"] else found + 1

        for combination in (FULL, ("gated", "channel", True, False, False, False), ("sum", None, False, True, True, False)):
            torch._dynamo.reset()
            compiled = torch.compile(run, fullgraph=True, backend=backend, **options)
            for n in (37, 53, 130):
                tensors, settings, douts = problem(combination, torch.float32, n, 16, 24)
                right, found = (results(x, tensors, settings, douts) for x in (run, compiled))
                for name, x in right.items():
                    torch.testing.assert_close(found[name], x, msg=lambda s: f"{name} of {combination}, n {n}: {s}")
                with torch.no_grad():
                    torch.testing.assert_close(compiled(**tensors, **settings), run(**tensors, **settings))

    def test_one_graph_of_fixed_shapes(self):
        self.check("aot_eager", dynamic=False)

    def test_one_graph_of_any_shape(self):
        self.check("aot_eager", dynamic=True)

    @unittest.skipIf(device.type == "cpu" and shutil.which("g++") is None, "there is no g++")
    def test_inductor(self):
        self.check("inductor")

    @unittest.skipIf(device.type != "cuda", "of a GPU")
    def test_inductor_with_cuda_graphs(self):
        self.check("inductor", mode="reduce-overhead")

    @unittest.skipIf(device.type != "cuda", "of a GPU")
    def test_a_cuda_graph_replays_it(self):
        tensors, settings, douts = problem(FULL, torch.bfloat16, 150, 64, 64)
        right = results(longstride.scan, tensors, settings, douts)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found = results(longstride.scan, tensors, settings, douts)
        graph.replay()
        torch.cuda.synchronize()
        for name, x in right.items():
            self.assertTrue(torch.equal(x, found[name]), name)

    def test_it_is_exported(self):
        class Module(torch.nn.Module):
            def forward(self, q, k, v, decay):
                return longstride.scan(q, k, v, decay=decay, form="gated")

        tensors, _, _ = problem(("gated", "head", False, False, False, False), torch.float32, 20, 8, 8)
        args = tuple(tensors[name] for name in NAMES[:4])
        torch.testing.assert_close(torch.export.export(Module(), args).module()(*args), Module()(*args))


class Mistakes(unittest.TestCase):
    def refused(self, tensors, settings, changes):
        for change, sentence in changes:
            with self.assertRaises(ValueError) as caught:
                longstride.scan(**{**tensors, **settings, **change})
            self.assertIn(sentence, str(caught.exception))

    def test_each_is_one_sentence(self):
        tensors, settings, _ = problem(FULL, torch.float32, 9, 8, 8)
        settings = {**settings, "return_state": False}
        q, beta, decay, state = (tensors[name] for name in ("q", "beta", "decay", "first_state"))
        self.refused(tensors, settings, [
            ({"q": None}, "q is NoneType, but must be a tensor"),
            ({"decay": 1.0}, "decay is float, but must be a tensor"),
            ({"q": q[:, :2]}, "but must be (batch, heads, n, key size) twice and (batch, heads, n, value size)"),
            ({"v": q[:, :, :2], "groups": None}, "but must be (batch, heads, n, key size) twice"),
            ({"k": q.double()}, "q, k and v are torch.float32, torch.float64 and torch.float32, but must be of one"),
            ({"q": q.to_sparse()}, "q is torch.sparse_coo, but must be a dense tensor; make it one by q.to_dense()"),
            ({"q": q.to("meta")}, "but must be on one device"),
            ({"beta": beta.to_sparse()}, "beta is torch.sparse_coo, but must be a dense tensor"),
            ({"decay": decay[..., None]}, "decay is (2, 3, 9, 1), torch.float32, on"),
            ({"decay": decay.to(torch.complex64)}, "decay is torch.complex64, but must be of real numbers"),
            ({"beta": beta[:, :1]}, "beta is (2, 1, 9), torch.float32, on"),
            ({"first_state": state[..., :5]}, "first_state is (2, 3, 8, 5), torch.float32, on"),
            ({"form": "ssd"}, "form is 'ssd', but must be 'sum', 'gated' or 'delta'"),
            ({"form": "sum", "beta": None}, "decay is given, but the form 'sum' takes none; use the form 'gated'"),
            ({"form": "gated", "decay": None}, "decay is None, but the form 'gated' needs one"),
            ({"form": "gated"}, "beta is given, but the form 'gated' does not take one"),
            ({"beta": None}, "beta is None, but the form 'delta' needs one"),
            ({"normalise": True}, "normalise is True, but the form 'delta' cannot be normalised"),
            ({"normalise": 1}, "normalise is 1, but must be True or False"),
            ({"return_state": None}, "return_state is None, but must be True or False"),
            ({"direction": "future"}, "direction is 'future', but must be 'past' or 'both'"),
            ({"direction": "both"}, "direction is 'both', but the form 'delta' has only the past"),
            ({"groups": torch.zeros(3, 9, dtype=torch.int32, device=device)}, "groups is (3, 9), but must be cumulative"),
            ({"groups": [0, 9]}, "groups is list, but must be a tensor"),
        ])

    def test_both_directions_have_no_states(self):
        tensors, settings, _ = problem(("sum", None, True, False, False, True), torch.float32, 9, 8, 8)
        settings["direction"] = "both"
        self.refused(tensors, settings, [
            ({}, "return_state is True, but direction 'both' has no states"),
            ({"return_state": False}, "first_state is given, but direction 'both' has no states"),
        ])
        settings.update(direction="past")
        state = tensors["first_state"][..., :8]
        self.refused(tensors, settings, [({"first_state": state}, "first_state is (2, 3, 8, 8), but must be (2, 3, 8, 9)")])

    @unittest.skipIf(device.type != "cpu", "a GPU does not check numbers")
    def test_numbers(self):
        tensors, settings, _ = problem(FULL, torch.float32, 9, 8, 8)
        at = torch.zeros(2, 3, 9, dtype=torch.bool)
        at[1, 0, 2] = True  # element (1 * 9 + 2) * 3 of (batch, n, heads)
        self.refused(tensors, settings, [
            ({"decay": tensors["decay"].masked_fill(at, 0.5)},
             "decay is 0.5 at element 33, but must be a logarithm of at most 0"),
            ({"decay": tensors["decay"].masked_fill(at, float("nan"))}, "decay is nan at element 33, but must be"),
            ({"beta": tensors["beta"].masked_fill(at, 2.5)}, "beta is 2.5 at element 33, but must be from 0 to 2"),
        ])


if __name__ == "__main__":
    unittest.main()
