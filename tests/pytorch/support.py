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
    return [(name, longstride.Pattern(**p)) for name, p in found]


def allowed(pattern, heads, n):
    """(heads, n, n): whether i may attend to j, from the definitions in docs/guide/recipes.md."""
    i, j = torch.arange(n)[:, None], torch.arange(n)[None, :]
    mask = torch.zeros(heads, n, n, dtype=torch.bool)
    stride = pattern.stride
    for h in range(heads):
        parts = pattern.parts
        if pattern.integration == "interleaved":
            parts = [parts[pattern.layer % len(parts)]]
        elif pattern.integration == "multihead":
            parts = [parts[h * len(parts) // heads]]
        for part in parts:
            if part == "dense":
                mask[h] |= i >= j
            elif part == "local":
                mask[h] |= i - j < (pattern.window or stride + 1)
            elif part == "column":
                mask[h] |= (i - j) % stride == 0
            elif part == "fixed_block":
                mask[h] |= i // stride == j // stride
            else:
                width = pattern.summary[h if len(pattern.summary) > 1 else 0]
                s = h % (stride // width) if pattern.distinct_heads else 0
                mask[h] |= (j % stride >= stride - (s + 1) * width) & (j % stride < stride - s * width)
                if pattern.summary_inclusive:
                    mask[h] |= (j % stride == 0).expand(n, n)
    return mask & (i >= j)


def attend(q, k, v, mask, bias=None, weights=None, scale=None):
    """Attention from its definition, in the type of its arguments: output, probabilities and scores. A pair may have a
    bias of its score, before the scale, and a weight of its exponential; a row without keys is 0."""
    scores = q @ k.transpose(2, 3)
    scores = (scores if bias is None else scores + bias) * (scale or 1 / math.sqrt(q.shape[3]))
    empty = ~mask.any(-1, keepdim=True)
    p = torch.softmax(scores.masked_fill(~mask, -math.inf).masked_fill(empty, 0), -1).masked_fill(~mask, 0)
    if weights is not None:
        p = p * weights
        p = p / p.sum(-1, keepdim=True).masked_fill(empty, 1)
    return p @ v, p, scores


def naive(q, k, v, mask):
    return attend(q, k, v, mask)[0]


def inputs(batch, heads, n, key_size, value_size, dtype, seed=0):
    """q, k, v and the gradient of o."""
    random = torch.Generator().manual_seed(seed)
    sizes = (key_size, key_size, value_size, value_size)
    return [torch.randn(batch, heads, n, size, generator=random).to(dtype).to(device) for size in sizes]


def results(run, q, k, v, dout):
    """o, dq, dk and dv."""
    q, k, v = (x.detach().requires_grad_() for x in (q, k, v))
    o = run(q, k, v)
    return [o.detach(), *torch.autograd.grad(o, (q, k, v), dout)]
