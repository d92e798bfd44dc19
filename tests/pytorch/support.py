"""Shared by the tests of longstride.attention: the device, every pattern, and attention from its definition."""
import math
import os
import re
import sys

least = (2, 4)


def skip(why):
    print(f"skipped: {why}")
    sys.exit(77)


try:
    import torch
except ImportError:
    skip("this Python has no PyTorch")
if tuple(int(x) for x in re.match(r"(\d+)\.(\d+)", torch.__version__).groups()) < least:
    skip(f"PyTorch is {torch.__version__}, but longstride.attention needs {least[0]}.{least[1]}")

import longstride  # noqa: E402
from longstride import library  # noqa: E402

# A GPU where there is one and the library has kernels for it, unless LONGSTRIDE_TEST_DEVICE names another device.
device = torch.device(
    os.environ.get("LONGSTRIDE_TEST_DEVICE") or ("cuda" if torch.cuda.is_available() and library.has_cuda() else "cpu"))
dtypes = [torch.float32, torch.bfloat16, torch.float16] + ([torch.float64] if device.type == "cpu" else [])


class Whole:
    """A whole number as NumPy's are: not an int, but an index."""

    def __init__(self, value):
        self.value = value

    def __index__(self):
        return self.value


def patterns(heads):
    """Every part, integration and option, as (name, Pattern)."""
    each = [1 + 3 * h % 7 for h in range(heads)]
    found = [
        ("dense", dict()),
        ("local", dict(parts=["local"], window=11)),
        ("column", dict(parts=["column", "local", "dense"], stride=7)),
        ("local of a cycle", dict(parts=["column", "local", "dense"], stride=7, layer=4)),
        ("strided merged", dict(parts=["local", "column"], integration="merged", stride=16)),
        ("strided merged, window", dict(parts=["column", "local"], integration="merged", stride=7, window=20)),
        ("block and column", dict(parts=["fixed_block", "column"], integration="merged", stride=7)),
        ("strided multihead", dict(parts=["local", "column"], integration="multihead", stride=7)),
        ("long stride", dict(parts=["local", "column"], integration="merged", stride=1000)),
    ]
    for distinct in (False, True):
        for inclusive in (False, True):
            options = dict(stride=16, distinct_heads=distinct, summary_inclusive=inclusive)
            fixed = ["fixed_block", "fixed_summary"]
            name = f"{', distinct' * distinct}{', inclusive' * inclusive}"
            found += [
                ("summary alone" + name, dict(parts=fixed, layer=1, summary=4, **options)),
                ("fixed merged" + name, dict(parts=fixed, integration="merged", summary=4, **options)),
                ("fixed merged, widths" + name, dict(parts=fixed, integration="merged", summary=each, **options)),
                ("window and summary" + name,
                 dict(parts=["local", "fixed_summary"], integration="merged", summary=3, **options)),
                ("fixed multihead" + name, dict(parts=fixed, integration="multihead", summary=4, **options)),
            ]
    for direction in ("past", "both"):
        first = dict(direction=direction, first=4)
        found += [
            ("first, " + direction, dict(parts=["first"], **first)),
            ("window and first, " + direction,
             dict(parts=["local", "first"], integration="merged", window=11, **first)),
            ("block and first, " + direction,
             dict(parts=["fixed_block", "first"], integration="merged", stride=16, **first)),
        ]
        found += [
            ("block window, " + direction, dict(parts=["block_window"], block=20, direction=direction)),
            ("block window and first, " + direction,
             dict(parts=["block_window", "first"], integration="merged", block=20, **first)),
            ("dilated, " + direction, dict(parts=["dilated"], dilation=[1, 3, 2, 5], window=7, direction=direction)),
        ]
    found += [("shifted blocks", dict(parts=["shifted_block"], blocks=3, shifts=[1, 2, 1], direction="both"))]
    both = dict(direction="both", stride=16)
    return [(name, longstride.Pattern(**p)) for name, p in found + [
        ("dense, both", dict(direction="both")),
        ("local, both", dict(parts=["local"], window=11, direction="both")),
        ("column, both", dict(parts=["column"], **both)),
        ("strided merged, both", dict(parts=["local", "column"], integration="merged", **both)),
        ("block and column, both", dict(parts=["fixed_block", "column"], integration="merged", **both)),
        ("strided multihead, both", dict(parts=["local", "column"], integration="multihead", **both)),
        ("fixed merged, both", dict(parts=["fixed_block", "fixed_summary"], integration="merged", summary=each,
                                    distinct_heads=True, summary_inclusive=True, **both)),
        ("window and summary, both", dict(parts=["local", "fixed_summary"], integration="merged", summary=3, **both)),
    ]]


def allowed(pattern, heads, n, queries=None):
    """(heads, queries or n, n): whether i may attend to j, from the definitions in docs/guide/recipes.md."""
    i, j = torch.arange(queries or n)[:, None], torch.arange(n)[None, :]
    mask = torch.zeros(heads, queries or n, n, dtype=torch.bool)
    past = pattern.direction == "past"
    stride = pattern.stride
    for h in range(heads):
        parts = pattern.parts
        if pattern.integration == "interleaved":
            parts = [parts[pattern.layer % len(parts)]]
        elif pattern.integration == "multihead":
            parts = [parts[h * len(parts) // heads]]
        for part in parts:
            if part == "dense":
                mask[h] = True
            elif part == "local":
                window = pattern.window or stride + 1
                mask[h] |= i - j < window if past else (i - j).abs() <= window // 2
            elif part == "first":
                mask[h] |= j < pattern.first
            elif part == "block_window":
                mask[h] |= (i // pattern.block - j // pattern.block).abs() <= 1
            elif part == "dilated":
                d = pattern.dilation[h if len(pattern.dilation) > 1 else 0]
                away = (i - j) // d if past else (i - j).abs() // d * 2
                mask[h] |= ((i - j) % d == 0) & (away < pattern.window)
            elif part == "shifted_block":
                longest = max(queries or n, n)
                length = -(-longest // pattern.blocks)
                shift = [s for s, count in enumerate(pattern.shifts) for _ in range(count)][h]
                mask[h] |= j // length == (i // length + shift) % -(-longest // length)
            elif part == "column":
                mask[h] |= (i - j) % stride == 0
            elif part == "fixed_block":
                mask[h] |= i // stride == j // stride
            else:
                width = pattern.summary[h if len(pattern.summary) > 1 else 0]
                s = h % (stride // width) if pattern.distinct_heads else 0
                mask[h] |= (j % stride >= stride - (s + 1) * width) & (j % stride < stride - s * width)
                if pattern.summary_inclusive:
                    mask[h] |= (j % stride == 0).expand(mask[h].shape)
    return mask & (i >= j) if past else mask


def attend(q, k, v, mask, bias=None, weights=None, scale=None, sink=None):
    """Attention from its definition, in the type of its arguments: output, probabilities and scores. A pair may have a
    bias of its score, before the scale, and a weight of its exponential, and a head the score of a sink; a row without
    keys is 0."""
    scores = q @ k.transpose(2, 3)
    scores = (scores if bias is None else scores + bias) * (scale or 1 / math.sqrt(q.shape[3]))
    empty = ~mask.any(-1, keepdim=True)
    masked = scores.masked_fill(~mask, -math.inf).masked_fill(empty, 0)
    if sink is not None:
        masked = torch.cat([masked, sink.to(q.dtype)[:, None, None].expand(*scores.shape[:3], 1)], 3)
    p = torch.softmax(masked, -1)[..., :k.shape[2]].masked_fill(~mask, 0)
    if weights is not None:
        p = p * weights
        p = p / p.sum(-1, keepdim=True).masked_fill(empty, 1)
    return p @ v, p, scores


def naive(q, k, v, mask, sink=None):
    return attend(q, k, v, mask, sink=sink)[0]


def inputs(batch, heads, n, key_size, value_size, dtype, seed=0, queries=None):
    """q, k, v and the gradient of o."""
    random = torch.Generator().manual_seed(seed)
    shapes = ((queries or n, key_size), (n, key_size), (n, value_size), (queries or n, value_size))
    return [torch.randn(batch, heads, *shape, generator=random).to(dtype).to(device) for shape in shapes]


def largest_error(right, naive, dtype, sizes):
    """The error that a result may have: twice the largest of a naive computation in the type, and the rounding of a few
    terms."""
    # What has no error in the naive computation, as with one key, has that of sums in the type of scores.
    exact = torch.finfo(torch.float64 if dtype == torch.float64 else torch.float32).eps
    least = 4 * exact * sum(sizes) + 2 * torch.finfo(dtype).eps * right.abs().max().item()
    return 2 * (naive.double() - right).nan_to_num().abs().max().item() + least


def results(run, q, k, v, dout, *parameters):
    """o, dq, dk, dv, and the gradients of parameters that `run` takes."""
    tensors = [x.detach().requires_grad_() for x in (q, k, v, *parameters)]
    o = run(*tensors)
    return [o.detach(), *torch.autograd.grad(o, tensors, dout)]
