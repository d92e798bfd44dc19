"""longstride.attention with labels of pairs."""
import unittest

import support
import torch
from support import device, longstride

P, Labels = longstride.Pattern, longstride.Labels
BATCH, HEADS, N, SIZES = 2, 4, 70, (16, 24)
DENSE, WINDOW = P(direction="both"), P(["local"], window=21, direction="both")
STRIDED = P(["local", "column"], integration="merged", stride=7)


def numbers(rows, seed):
    return torch.randint(0, 3, (BATCH, rows), generator=torch.Generator().manual_seed(seed)).to(device)


def table(rows, dtype, shared=False, seed=9):
    shape = (rows, SIZES[0]) if shared else (rows, HEADS, SIZES[0])
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype).to(device)


def defined(allowed, labels):
    """(batch or 1, heads or 1, rows of q, n): numbers of labels. Patterns have one part where they count from the end."""
    queries, n = allowed.shape[-2:]
    i, j = torch.arange(queries, device=device)[:, None], torch.arange(n, device=device)
    of_set = len(labels.table) // (1 if labels.groups is None else 2)
    found = (j - i).clamp(-labels.clip, labels.clip)[None, None] + labels.clip
    if labels.from_end:
        counted = allowed.long().flip(-1).cumsum(-1).flip(-1) - allowed.long()
        found = counted.clamp(0, of_set - 1)
    if labels.groups is None:
        return found
    of_queries = labels.groups if labels.query_groups is None else labels.query_groups
    return found + of_set * (of_queries[:, None, :, None] != labels.groups[:, None, None, :]).long()


class Results(unittest.TestCase):
    def check(self, pattern, rows, shared=False, queries=None, mask=True, sink=None, extras=(), **how):
        allowed = (support.allowed(pattern, HEADS, N, queries).to(device) & mask).expand(BATCH, -1, -1, -1)
        for dtype in support.dtypes:
            tensors = support.inputs(BATCH, HEADS, N, *SIZES, dtype, queries=queries)

            def run(q, k, v, table):
                return longstride.attention(q, k, v, pattern, labels=Labels(table, **how), sink=sink, **dict(extras))

            def define(q, k, v, table):
                vectors = table[:, None].expand(-1, HEADS, -1) if table.dim() == 2 else table
                found = defined(allowed, Labels(table, **how)).expand(BATCH, HEADS, -1, -1)
                bias = torch.einsum("bhid,lhd->bhil", q, vectors).gather(3, found)
                return support.attend(q, k, v, allowed, bias, sink=sink)[0]

            parameters = table(rows, dtype, shared)
            right = support.results(define, *(x.double() for x in [*tensors, parameters]))
            naive, found = support.results(define, *tensors, parameters), support.results(run, *tensors, parameters)
            for what, x, y, z in zip(("o", "dq", "dk", "dv", "dtable"), right, naive, found):
                most = support.largest_error(x, y, dtype, SIZES)
                self.assertLessEqual((z.double() - x).abs().max().item(), most, f"{what}, {dtype}")
                self.assertLess(most, 0.3 * max(1, x.abs().max().item()))

    def test_distances(self):
        self.check(STRIDED, 9, clip=4)
        self.check(DENSE, 1, True)

    def test_distances_and_groups_with_a_sink(self):
        self.check(WINDOW, 10, clip=2, groups=numbers(N, 1).int(),
                   sink=torch.randn(HEADS, generator=torch.Generator().manual_seed(3)).to(device))

    def test_groups_of_other_queries_than_keys(self):
        self.check(DENSE, 14, True, 33, clip=3, groups=numbers(N, 1), query_groups=numbers(33, 2))

    def test_numbers_of_groups_may_be_large(self):
        q, k, v, _ = support.inputs(BATCH, HEADS, N, *SIZES, torch.float32)
        vectors, groups = table(14, torch.float32), numbers(N, 1)
        small = longstride.attention(q, k, v, WINDOW, labels=Labels(vectors, 3, groups))
        large = (groups.long() - 1) * 2**40  # equal in the low half
        for labels in (Labels(vectors, 3, large), Labels(vectors, 3, large, large.clone())):
            self.assertTrue(torch.equal(longstride.attention(q, k, v, WINDOW, labels=labels), small))

    def test_places_from_the_end(self):
        self.check(WINDOW, 12, from_end=True)
        documents = (torch.arange(N, device=device) // 30).expand(BATCH, N)
        self.check(P(), 16, True, mask=(documents[:, None, :, None] == documents[:, None, None, :]), from_end=True,
                   groups=numbers(N, 1), extras=dict(groups=documents))


class Operators(unittest.TestCase):
    def test_opcheck(self):
        forward, backward = torch.ops.longstride.bounded_attention, torch.ops.longstride.bounded_attention_backward
        for dtype in support.dtypes:
            q, k, v, dout = support.inputs(BATCH, HEADS, N, *SIZES, dtype)
            labels = Labels(table(6, dtype), clip=1, groups=numbers(N, 1))
            vectors, *groups = labels.tensors()
            text = labels.added_to(WINDOW.text)
            extras = (None, vectors, *4 * [None], *groups)
            o, lse = forward(q, k, v, *extras, text, 0.0)
            torch.library.opcheck(backward, (dout, q, k, v, *extras, o, lse, text, 0.0))
            given = [x.detach().requires_grad_() for x in (q, k, v, vectors)]
            torch.library.opcheck(forward, (*given[:3], None, given[3], *4 * [None], *groups, text, 0.5))

    def test_compiled_code_has_the_same_bits_in_one_graph(self):
        tensors = [*support.inputs(BATCH, HEADS, N, *SIZES, torch.float32), table(14, torch.float32)]
        groups = numbers(N, 1)

        def run(q, k, v, vectors):
            return longstride.attention(q * 2, k, v, WINDOW, labels=Labels(vectors, 3, groups)) + 1

        for dynamic in (False, True):
            torch._dynamo.reset()
            compiled = torch.compile(run, fullgraph=True, backend="aot_eager", dynamic=dynamic)
            for x, y in zip(support.results(run, *tensors), support.results(compiled, *tensors)):
                self.assertTrue(torch.equal(x, y))


class Mistakes(unittest.TestCase):
    def test_labels(self):
        q, k, v, _ = support.inputs(2, 2, 8, 16, 16, torch.float32)
        vectors, groups = torch.zeros(3, 2, 16, device=device), torch.zeros(2, 8, dtype=torch.int32, device=device)
        for labels, sentence in [
            (vectors, "labels is Tensor, but must be longstride.Labels"),
            (Labels([1]), "table of labels is list, but must be a tensor"),
            (Labels(vectors, 2), "labels is 3, but must be 5 with clip 2 and no groups"),
            (Labels(vectors, 1, groups), "labels is 3, but must be 6 with clip 1 and groups"),
            (Labels(vectors, groups=groups, from_end=True), "labels is 3, but must be a positive multiple of 2"),
            (Labels(vectors, 1, from_end=True), "clip is 1, but must be from 0 to 0"),
            (Labels(vectors, -1), "clip of labels is -1, but must be a whole number of positions"),
            (Labels(vectors, 1, from_end=1), "from_end of labels is 1, but must be True or False"),
            (Labels(vectors[:, :1], 1), "table is (3, 1, 16), torch.float32, on"),
            (Labels(vectors.half(), 1), "table is (3, 2, 16), torch.float16, on"),
            (Labels(vectors, 0, groups[:, :7]), "query_groups is (2, 7), torch.int32, on"),
            (Labels(vectors, 0, groups[:1], groups), "key_groups is (1, 8), torch.int32, on"),
            (Labels(vectors, 0, groups.float()), "groups of labels is torch.float32, but must be a tensor of"),
            (Labels(vectors, 0, None, groups), "query_groups of labels is given without groups"),
        ]:
            with self.subTest(sentence=sentence), self.assertRaises(ValueError) as caught:
                longstride.attention(q, k, v, DENSE, labels=labels)
            self.assertIn(sentence, str(caught.exception))


if __name__ == "__main__":
    unittest.main()
