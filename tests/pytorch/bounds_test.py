"""longstride.attention within documents and intervals, of listed blocks, with sinks, and with other queries than keys."""
import unittest
from types import SimpleNamespace
from unittest import mock

import support
import torch
from support import device, longstride

P = longstride.Pattern
before_block_masks = tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 6)
BATCH, HEADS, N, SIZES = 2, 4, 70, (16, 24)
ENDS = torch.tensor([0, 1, 1, 34, 64, N])  # one document is empty
PATTERNS = {
    "dense": P(),
    "dense, both": P(direction="both"),
    "window, both": P(parts=["local"], window=11, direction="both"),
    "strided": P(parts=["local", "column"], integration="merged", stride=7),
    "fixed, both": P(parts=["fixed_block", "fixed_summary"], integration="merged", stride=16, summary=4,
                     direction="both"),
    "window and first": P(parts=["local", "first"], integration="merged", window=11, first=4),
}


def numbers_of(ends, batch):
    """A number for every document, the second row with other documents than the first."""
    numbers = torch.searchsorted(ends, torch.arange(N), right=True)
    return torch.stack([3 * numbers + row * (torch.arange(N) // 50) for row in range(batch)])


def mask_of_numbers(numbers):
    return (numbers[:, None, :, None] == numbers[:, None, None, :]).to(device)


def drawn_bounds(heads, queries, n, seed):
    """Intervals whose ends never fall, some empty."""
    random = torch.Generator().manual_seed(seed)
    begin, end = (torch.randint(0, n + 1, (BATCH, heads, queries), generator=random).sort().values for _ in range(2))
    return begin.to(torch.int32).to(device), end.to(torch.int32).to(device)


def mask_of_bounds(begin, end, n):
    j = torch.arange(n, device=device)
    return (begin[..., None] <= j) & (j < end[..., None])


def drawn_lists(heads, queries, n, batch=1, seed=4):
    """BlockLists of 64 with about half of the blocks, of which some see none, and the mask of their pairs."""
    random = torch.Generator().manual_seed(seed)
    listed = torch.rand(batch, heads, -(-queries // 64), -(-n // 64), generator=random) < 0.6
    key_begin = torch.nn.functional.pad(listed.sum(3).cumsum(2), (1, 0)).int()
    keys = torch.full((batch, heads, key_begin.max()), -1, dtype=torch.int32)
    for unit in torch.cartesian_prod(torch.arange(batch), torch.arange(heads)).tolist():
        found = listed[tuple(unit)].nonzero()[:, 1]
        keys[(*unit, slice(len(found)))] = found.int()
    i, j = torch.arange(queries) // 64, torch.arange(n) // 64
    mask = listed[..., i[:, None], j]
    return longstride.BlockLists(64, key_begin.to(device), keys.to(device)), mask.to(device)


def drawn_sink(seed=3):
    return torch.randn(HEADS, generator=torch.Generator().manual_seed(seed)).to(device)


class Results(unittest.TestCase):
    def check(self, pattern, mask=True, sink=None, queries=None, dtypes=support.dtypes, n=N, **given):
        """Against the definition with a mask (batch, heads, queries, n), forward and all gradients."""
        allowed = support.allowed(pattern, HEADS, n, queries).to(device) & mask
        for dtype in dtypes:
            exact = torch.float64 if dtype == torch.float64 else torch.float32
            sinks = [] if sink is None else [sink.to(exact)]
            tensors = support.inputs(BATCH, HEADS, n, *SIZES, dtype, queries=queries)

            def run(q, k, v, sink=None):
                return longstride.attention(q, k, v, pattern, sink=sink, **given)

            def define(q, k, v, sink=None):
                return support.naive(q, k, v, allowed, sink)

            right = support.results(define, *(x.double() for x in [*tensors, *sinks]))
            naive, found = support.results(define, *tensors, *sinks), support.results(run, *tensors, *sinks)
            for what, x, y, z in zip(("o", "dq", "dk", "dv", "dsink"), right, naive, found):
                most = support.largest_error(x, y, dtype, SIZES)
                self.assertLessEqual((z.double() - x).abs().max().item(), most, f"{what}, {dtype}")
                self.assertLess(most, 0.3 * max(1, x.abs().max().item()))

    def each(self, **given):
        for name, pattern in PATTERNS.items():
            with self.subTest(pattern=name):
                self.check(pattern, **given)

    def test_groups_of_cumulative_lengths(self):
        mask = mask_of_numbers(torch.searchsorted(ENDS, torch.arange(N), right=True)[None])
        for dtype in (torch.int32, torch.int64):
            self.each(mask=mask, groups=ENDS.to(dtype).to(device), dtypes=support.dtypes[:1])

    def test_groups_of_document_numbers(self):
        numbers = numbers_of(ENDS, BATCH)
        for dtype in (torch.int32, torch.int64):
            self.each(mask=mask_of_numbers(numbers), groups=numbers.to(dtype).to(device))

    def test_bounds(self):
        for heads in (1, HEADS):
            begin, end = drawn_bounds(heads, N, N, heads)
            self.each(mask=mask_of_bounds(begin, end, N), bounds=(begin, end))

    def test_lists(self):
        begin, end = drawn_bounds(1, 200, 200, 6)
        within = mask_of_bounds(begin, end, 200)
        groups = torch.arange(200, device=device).expand(BATCH, 200) // 77
        for direction in ("past", "both"):
            pattern = P(direction=direction)
            for batch, heads in ((1, 1), (BATCH, HEADS)):
                lists, mask = drawn_lists(heads, 200, 200, batch)
                with self.subTest(direction=direction, heads=heads):
                    self.check(pattern, mask, n=200, lists=lists)
                    self.check(pattern, mask & within, drawn_sink(), n=200, lists=lists, bounds=(begin, end))
                    self.check(pattern, mask & (groups[0, :, None] == groups[0]), n=200, lists=lists, groups=groups)
        lists, mask = drawn_lists(HEADS, 90, 200)
        self.check(pattern, mask, drawn_sink(), queries=90, n=200, lists=lists)

    def test_sinks(self):
        self.each(sink=drawn_sink())

    def test_sinks_and_groups(self):
        numbers = numbers_of(ENDS, BATCH)
        self.each(mask=mask_of_numbers(numbers), groups=numbers.to(device), sink=drawn_sink())

    def test_other_queries_than_keys(self):
        for queries in (1, 33, 150):
            begin, end = drawn_bounds(HEADS, queries, N, queries)
            for name, pattern in PATTERNS.items():
                if pattern.direction == "both":
                    with self.subTest(pattern=name, queries=queries):
                        self.check(pattern, queries=queries)
                        self.check(pattern, mask_of_bounds(begin, end, N), drawn_sink(), queries, bounds=(begin, end))

    def test_a_sink_of_another_type_has_a_gradient_of_its_own(self):
        tensors = support.inputs(1, HEADS, N, *SIZES, torch.float32)
        right, found = (support.results(lambda q, k, v, s: longstride.attention(q, k, v, P(), sink=s), *tensors,
                                        drawn_sink().to(dtype)) for dtype in (torch.float32, torch.bfloat16))
        self.assertEqual(found[-1].dtype, torch.bfloat16)
        torch.testing.assert_close(found[-1].float(), right[-1], rtol=0.02, atol=0.02)

    def test_sinks_are_those_of_gpt_oss(self):
        try:
            from transformers.models.gpt_oss.modeling_gpt_oss import eager_attention_forward
        except ImportError:
            self.skipTest("this Python has no transformers with gpt_oss")
        layer = SimpleNamespace(num_key_value_groups=1, training=False)
        for name in ("dense", "window and first", "window"):
            pattern = P(parts=["local"], window=11) if name == "window" else PATTERNS[name]
            hidden = ~support.allowed(pattern, HEADS, N).to(device)
            mask = torch.zeros(hidden.shape, device=device).masked_fill(hidden, torch.finfo(torch.float32).min)

            def theirs(q, k, v, sink):
                layer.sinks = sink
                return eager_attention_forward(layer, q, k, v, mask, q.shape[-1] ** -0.5)[0].transpose(1, 2)

            tensors = [*support.inputs(BATCH, HEADS, N, *SIZES, torch.float32), drawn_sink()]
            found = support.results(lambda q, k, v, s: longstride.attention(q, k, v, pattern, sink=s), *tensors)
            for x, y in zip(found, support.results(theirs, *tensors)):
                torch.testing.assert_close(x, y, rtol=1e-5, atol=1e-5, msg=lambda m: f"{name}: {m}")

    def test_documents_alone_have_the_results_of_a_row(self):
        tensors = support.inputs(1, HEADS, N, *SIZES, torch.float32)
        pattern = PATTERNS["strided"]  # neither part depends on where the document is
        row = support.results(lambda q, k, v: longstride.attention(q, k, v, pattern, groups=ENDS.to(device)), *tensors)
        for begin, end in zip(ENDS[:-1], ENDS[1:]):
            if end > begin:
                alone = support.results(lambda q, k, v: longstride.attention(q, k, v, pattern),
                                        *(x[:, :, begin:end] for x in tensors))
                for x, y in zip(row, alone):
                    torch.testing.assert_close(x[:, :, begin:end], y)


class Operators(unittest.TestCase):
    def setUp(self):
        self.groups, self.sink = numbers_of(ENDS, BATCH).to(device), drawn_sink()
        self.bounds, (self.lists, _) = drawn_bounds(HEADS, N, N, 5), drawn_lists(HEADS, N, N)

    def test_opcheck(self):
        forward, backward = torch.ops.longstride.bounded_attention, torch.ops.longstride.bounded_attention_backward
        window = PATTERNS["window, both"].text
        for dtype in support.dtypes:
            q, k, v, dout = support.inputs(BATCH, HEADS, N, *SIZES, dtype)
            sink = self.sink.to(torch.float64 if dtype == torch.float64 else torch.float32)
            lists, dense = drawn_lists(HEADS, N, N)[0][1:3], P().text[:-1] + ', "block": 64}'
            for text, sink_or_none, *rest in (
                    (window, sink, *self.bounds, None, None), (window, None, *self.bounds, None, None),
                    (window, sink, None, None, None, None), (dense, None, *self.bounds, *lists),
                    (dense, sink, None, None, *lists)):
                extras = (sink_or_none, None, *rest, None, None)
                o, lse = forward(q, k, v, *extras, text, 0.0)
                torch.library.opcheck(backward, (dout, q, k, v, *extras, o, lse, text, 0.0))
                torch.library.opcheck(forward, (*(x.detach().requires_grad_() for x in (q, k, v)), *extras, text, 0.5))
        for groups in (self.groups, ENDS.to(device)):
            torch.library.opcheck(torch.ops.longstride.document_bounds, (groups, BATCH, N))

    def run_all(self, q, k, v, sink):
        pattern = PATTERNS["window, both"]
        o = longstride.attention(q * 2, k, v, pattern, groups=self.groups, sink=sink)
        o = o + longstride.attention(q, k, v, PATTERNS["dense"], lists=self.lists)
        return o + longstride.attention(q, k, v, pattern, bounds=self.bounds) + 1

    def test_compiled_code_has_the_same_bits_in_one_graph(self):
        tensors = [*support.inputs(BATCH, HEADS, N, *SIZES, torch.float32), self.sink]
        for dynamic in (False, True):
            torch._dynamo.reset()
            compiled = torch.compile(self.run_all, fullgraph=True, backend="aot_eager", dynamic=dynamic)
            for x, y in zip(support.results(self.run_all, *tensors), support.results(compiled, *tensors)):
                self.assertTrue(torch.equal(x, y))

    @unittest.skipIf(device.type != "cuda", "of a GPU")
    def test_a_cuda_graph_replays_with_other_groups(self):
        tensors = [*support.inputs(BATCH, HEADS, N, *SIZES, torch.bfloat16), self.sink]
        right, groups = support.results(self.run_all, *tensors), self.groups.clone()
        self.groups.zero_()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            support.results(self.run_all, *tensors)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found = support.results(self.run_all, *tensors)
        self.groups.copy_(groups)
        graph.replay()
        for x, y in zip(right, found):
            self.assertTrue(torch.equal(x, y))

    def test_calls_without_them_need_no_bounded_operator(self):
        q, k, v, dout = support.inputs(1, HEADS, N, *SIZES, torch.float32)
        with mock.patch("longstride.attention_op._bounded_attention", side_effect=AssertionError):
            support.results(lambda q, k, v: longstride.attention(q, k, v, P()), q, k, v, dout)


def block_mask(mask_mod, batch, heads, queries=N, n=N, block=16):
    from torch.nn.attention.flex_attention import create_block_mask

    return create_block_mask(mask_mod, batch, heads, queries, n, device=device, BLOCK_SIZE=block)


@unittest.skipIf(before_block_masks, "FlexAttention has no block lists before PyTorch 2.6")
class BlockMasks(unittest.TestCase):
    MASKS = {
        "causal": lambda b, h, i, j: i >= j,
        "window": lambda b, h, i, j: (i - j).abs() <= 5 + h,
        "documents": lambda b, h, i, j: i // 30 == j // 30,
        "causal documents of a sequence": lambda b, h, i, j: (i >= j) & (i // (20 + b) == j // (20 + b)),
        "some see nothing": lambda b, h, i, j: (i - j >= 9) & (i - j < 12),
        "all": lambda b, h, i, j: i >= 0,
    }

    def test_a_block_mask_means_the_same_as_to_flex_attention(self):
        from torch.nn.attention.flex_attention import flex_attention

        pattern = P(direction="both")
        for name, mask_mod in self.MASKS.items():
            for queries in (N, 33):
                mask = block_mask(mask_mod, BATCH, HEADS, queries)
                q, k, v, _ = support.inputs(BATCH, HEADS, N, 16, 16, torch.float32, queries=queries)
                with self.subTest(mask=name, queries=queries), mock.patch("longstride.bounds.MOST_PAIRS", 9 * N * 8):
                    bounds = longstride.bounds_of(mask)
                    right = flex_attention(q, k, v, block_mask=mask)  # which has no gradients on the CPU
                    torch.testing.assert_close(longstride.attention(q, k, v, pattern, bounds=bounds), right)

    def test_one_mask_of_all_sequences_and_heads(self):
        bounds = longstride.bounds_of(block_mask(self.MASKS["documents"], None, None))
        self.assertEqual(bounds[0].shape, (1, 1, N))
        q, k, v, _ = support.inputs(BATCH, HEADS, N, 16, 16, torch.float32)
        groups = (torch.arange(N, device=device) // 30).expand(BATCH, N)
        self.assertTrue(torch.equal(longstride.attention(q, k, v, P(), bounds=bounds),
                                    longstride.attention(q, k, v, P(), groups=groups)))

    def test_masks_that_are_no_intervals_are_refused(self):
        for mask_mod, sentence in [
            (lambda b, h, i, j: (i >= j) & (((i - j) % 2 == 0) | (h == 0)),
             "query 2 of head 1 of sequence 0 sees 2 keys from 0 to 3, but must see an interval; a Pattern with "
             "several parts may say what the mask does"),
            (lambda b, h, i, j: (j - i).abs() < 3 + 5 * (i == 20),
             "query 20 of head 0 of sequence 0 sees keys from 13 to 28, and the query before it from 17 to 22, but "
             "neither end may fall"),
        ]:
            with self.assertRaises(ValueError) as caught:
                longstride.bounds_of(block_mask(mask_mod, 1, 2))
            self.assertEqual(str(caught.exception), sentence)
        with self.assertRaisesRegex(ValueError, "^block_mask is Tensor, but must be a BlockMask$"):
            longstride.bounds_of(torch.zeros(1))

    n = 400
    seen = torch.rand(1, HEADS, 7, 7, generator=torch.Generator().manual_seed(8)).to(device) < 0.4
    document = torch.arange(n, device=device) // 150
    # Whole blocks, and keys of them within bounds, of which partial blocks are made: a mask_mod, and if it has bounds.
    LISTED = {
        "blocks": (lambda b, h, i, j: BlockMasks.seen[0, h, i // 64, j // 64], False),
        "the past of blocks": (lambda b, h, i, j: BlockMasks.seen[0, h, i // 64, j // 64] & (i >= j), True),
        "a window of blocks": (lambda b, h, i, j: BlockMasks.seen[0, h, i // 64, j // 64] & (i - j < 70 + 9 * b), True),
        "blocks of a document": (lambda b, h, i, j: BlockMasks.seen[0, h, i // 64, j // 64]
                                 & (BlockMasks.document[i] == BlockMasks.document[j]), True),
        "first keys and a window": (lambda b, h, i, j: (i >= j) & ((j < 64) | (i // 64 - j // 64 < 2)), True),
        "some see nothing": (lambda b, h, i, j: BlockMasks.seen[0, h, i // 64, j // 64] & (i > 190), True),
    }

    def test_lists_mean_the_same_as_to_flex_attention(self):
        from torch.nn.attention.flex_attention import flex_attention

        pattern = P(direction="both")
        for name, (mask_mod, has_bounds) in self.LISTED.items():
            for queries, most in ((self.n, 2**26), (131, 64 * 64 * 2)):
                mask = block_mask(mask_mod, BATCH, HEADS, queries, self.n, 64)
                q, k, v, _ = support.inputs(BATCH, HEADS, self.n, 16, 16, torch.float32, queries=queries)
                with self.subTest(mask=name, queries=queries), mock.patch("longstride.bounds.MOST_PAIRS", most):
                    lists = longstride.lists_of(mask)
                    self.assertEqual(lists.bounds is not None, has_bounds)
                    right = flex_attention(q, k, v, block_mask=mask)
                    for given in (lists, mask):
                        torch.testing.assert_close(longstride.attention(q, k, v, pattern, lists=given), right)

    def test_masks_of_intervals_are_bounds_alone(self):
        for mask_mod in self.MASKS.values():
            mask = block_mask(mask_mod, BATCH, HEADS)
            lists = longstride.lists_of(mask)
            self.assertEqual(lists[:3], (0, None, None))
            for x, y in zip(lists.bounds, longstride.bounds_of(mask)):
                self.assertTrue(torch.equal(x, y))
            q, k, v, _ = support.inputs(BATCH, HEADS, N, 16, 16, torch.float32)
            self.assertTrue(torch.equal(longstride.attention(q, k, v, P(), bounds=lists.bounds),
                                        longstride.attention(q, k, v, P(), lists=mask)))

    def test_only_partial_blocks_are_read(self):
        from torch.nn.attention import flex_attention

        mask = block_mask(self.MASKS["causal"], 1, 1, 256, 256, 64)
        with mock.patch.object(flex_attention, "create_mask", side_effect=flex_attention.create_mask) as create_mask:
            longstride.bounds_of(mask)
        self.assertEqual([call.args[1:5] for call in create_mask.call_args_list], [(4, 1, 64, 64)])

    def test_masks_that_no_lists_and_bounds_are_are_refused(self):
        blocks = self.LISTED["blocks"][0]
        for mask_mod, block, sentence in [
            (lambda b, h, i, j: blocks(b, h, i, j) & (j % 3 != 1), 64,
             "but must see an interval of the keys of its blocks"),
            (lambda b, h, i, j: ((i // 64 != 1) & (j < 64) & (j >= 99 - i)) | ((i // 64 != 1) & (j // 64 == 3)), 64,
             "of its blocks, but neither end may fall from the query before it"),
            (blocks, 32, "block_mask has blocks of 32 queries and 32 keys, but must have a multiple of 64 of both, the "
             "same; give BLOCK_SIZE to create_block_mask"),
            (blocks, (64, 128), "block_mask has blocks of 64 queries and 128 keys"),
        ]:
            with self.assertRaises(ValueError) as caught:
                longstride.lists_of(block_mask(mask_mod, 1, 2, self.n, self.n, block))
            self.assertIn(sentence, str(caught.exception))
        with self.assertRaisesRegex(ValueError, "^lists is int, but must be BlockLists or a BlockMask of FlexAttention$"):
            longstride.attention(*support.inputs(1, 1, 8, 8, 8, torch.float32)[:3], P(), lists=64)
        made_for_others = block_mask(blocks, 1, 2, 8, 250, 64)
        if hasattr(made_for_others, "seq_lengths"):
            with self.assertRaisesRegex(ValueError, "^lists is a BlockMask of 8 queries and 250 keys, but q has 8 rows"):
                longstride.attention(*support.inputs(1, 2, 8, 8, 8, torch.float32)[:3], P(), lists=made_for_others)


class Mistakes(unittest.TestCase):
    def refuses(self, sentence, pattern=P(direction="both"), queries=8, on_gpus=True, **given):
        if not on_gpus and device.type != "cpu":
            return  # numbers on a GPU are not read
        q, k, v, _ = support.inputs(2, 2, 8, 16, 16, torch.float32)
        q = q[:, :, :queries]
        with self.assertRaises(ValueError) as caught:
            longstride.attention(q, k, v, pattern, **given)
        self.assertIn(sentence, str(caught.exception))

    def test_groups(self):
        def tensor(*numbers, dtype=torch.int64):
            return torch.tensor(numbers, dtype=dtype, device=device)

        row = (0, 0, 0, 2, 2, 3, 3, 3)
        self.refuses("groups falls from 5 to 3 at [2], but must never fall along a row", groups=tensor(0, 5, 3, 8),
                     on_gpus=False)
        self.refuses("groups falls from 3 to 1 at [1, 6], but must never fall along a row", on_gpus=False,
                     groups=tensor(row, (0, 0, 0, 2, 2, 3, 1, 3)))
        for numbers in ((0, 5, 7), (1, 8), (0, 9)):
            self.refuses(f"groups goes from {numbers[0]} to {numbers[-1]}, but cumulative lengths must go from 0 to 8",
                         groups=tensor(*numbers), on_gpus=False)
        self.refuses("groups is (1, 8), but must be cumulative lengths (documents + 1), or numbers of documents (2, 8)",
                     groups=tensor(row))
        self.refuses("groups is (2, 7), but must be", groups=tensor(row[:7], row[:7]))
        self.refuses("groups is (1,), but must be", groups=tensor(0))
        self.refuses("groups is torch.float32, but must be torch.int32 or torch.int64",
                     groups=tensor(0, 8, dtype=torch.float32))
        self.refuses("groups is list, but must be a tensor", groups=[0, 8])
        self.refuses("groups is given, but q has 5 rows and k 8; give bounds instead", queries=5, groups=tensor(0, 8))
        begin = torch.zeros(2, 1, 8, dtype=torch.int32, device=device)
        self.refuses("groups and bounds are given, but only one may be", groups=tensor(0, 8), bounds=(begin, begin))

    def test_bounds(self):
        begin, end = (torch.full((2, 1, 8), x, dtype=torch.int32, device=device) for x in (0, 8))
        fallen, beyond = end.clone(), end.clone()
        fallen[1, 0, 4], beyond[0, 0, 7] = 7, 9
        for wrong, said in ((fallen, "row 12 (query 4) are 0 and 7"), (beyond, "row 7 (query 7) are 0 and 9")):
            self.refuses(f"begin and end of {said}, but must be from 0 to 8 and at least those of the query before it",
                         bounds=(begin, wrong), on_gpus=False)
        self.refuses("bounds is Tensor, but must be two tensors, begin and end", bounds=begin)
        self.refuses("begin is (2, 1, 8), torch.int64", bounds=(begin.long(), end))
        self.refuses("end is (2, 1, 7), torch.int32, on ", bounds=(begin, end[..., :7]))
        self.refuses("begin is (2, 1, 8) and end (2, 2, 8), but both must be of one shape, or None",
                     bounds=(begin, end.expand(2, 2, 8)))

    def test_lists(self):
        def lists(begin=(0, 1), keys=(0,), block=64, dtype=torch.int32):
            return longstride.BlockLists(block, *(torch.tensor([[x]], dtype=dtype, device=device) for x in (begin, keys)))

        self.refuses("key_begin is (1, 1, 3), but must have 2 numbers for 1 blocks of 64 of 8 queries",
                     lists=lists((0, 1, 1)))
        self.refuses("key_begin is (1, 1, 2), torch.int64, on ", lists=lists(dtype=torch.int64))
        self.refuses("the list of query block 0 of head 0 of sequence 0 has key block 1, but must be increasing numbers "
                     "from 0 to 0", lists=lists(keys=(1,)), on_gpus=False)
        for block in (96, 64.0, 2**64 + 64):
            self.refuses(f"block is {block}, but must be a positive multiple of 64", lists=lists(block=block))
        self.refuses("keys of lists is list, but must be a tensor of torch.int32", lists=lists()._replace(keys=[0]))
        self.refuses("block is 64, but lists restrict a pattern of one part, dense", P(["local"], window=3),
                     lists=lists())
        begin = torch.zeros(2, 1, 8, dtype=torch.int32, device=device)
        self.refuses("lists has bounds, so groups and bounds must be None", bounds=(begin, begin),
                     lists=lists()._replace(bounds=(begin, begin)))

    def test_sinks(self):
        sink = torch.zeros(2, device=device)
        for number in (float("inf"), float("-inf"), float("nan")):
            self.refuses(f"sink of head 1 is {number}, but must be finite", on_gpus=False,
                         sink=torch.tensor([0, number], device=device))
        self.refuses("sink is (3,), torch.float32, on ", sink=torch.zeros(3, device=device))
        self.refuses("sink is (2, 1), torch.float32, on ", sink=sink[:, None])
        self.refuses("sink is torch.int64, but must be a tensor of a logit per head", sink=sink.long())
        self.refuses("sink is float, but must be a tensor of a logit per head", sink=0.5)

    def test_patterns(self):
        self.refuses("window is 4, but direction both needs an odd number of keys",
                     P(["local"], window=4, direction="both"))
        self.refuses("queries is 5, but a pattern of the past has as many queries as keys, 8, or 1, the last: "
                     "set direction to both",
                     P(), queries=5)
        self.refuses("q has no rows, but must have one or more next to the 8 of k", queries=0)
        self.refuses("direction is 'ahead', but must be past or both", P(direction="ahead"))
        self.refuses("first is 0, but the part first needs a positive number of keys", P(["first"]))
        with self.assertRaisesRegex(ValueError, "direction is None, but must be past or both"):
            P(direction=None)


if __name__ == "__main__":
    unittest.main()
