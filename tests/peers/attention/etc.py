"""ETC's attention (Ainslie et al. 2020) of global and long rows in one sequence, next to FlexAttention: cases of `run.py op`,
tensors (batch, rows, heads, size).

Long rows see a window and all global rows, and these see all rows, each under one softmax. A vector is added to keys: by the
distance, clipped, of rows of one side, and by whether rows of different sides are of one group.
"""
import torch
from torch.nn.attention.flex_attention import BlockMask

import longstride
from attention import flex
from longstride import bounded_run

GLOBAL, REACH, CLIP = 512, 84, 12
P, Labels = longstride.Pattern, longstride.Labels


def groups_of(rows, n, device):
    """Those of the global rows, and of the long ones."""
    return torch.arange(rows, device=device, dtype=torch.int32)[None], \
        (torch.arange(n, device=device) * rows // n).to(torch.int32)[None]


def merged(o, lse, other, other_lse):
    """One attention of two, over keys that share none."""
    total = torch.logaddexp(lse, other_lse)
    weights = [(x - total).exp()[..., None] for x in (lse, other_lse)]
    return (weights[0] * o + weights[1] * other).to(o.dtype), total


class Attention(torch.autograd.Function):
    """As layers call the library: four calls, and the backward pass of each with the results of both of its side."""

    @staticmethod
    def calls(rows, tensors, tables):
        """Of each side: its rows, and two lists of arguments."""
        q, k, v = (x.transpose(1, 2) for x in tensors)
        n, distances = q.shape[2] - rows, 2 * CLIP + 1
        of_global, of_long = groups_of(rows, n, q.device)
        window = P(["local"], window=2 * REACH + 1, direction="both")
        sides = [slice(0, rows), slice(rows, rows + n)]
        numbers = [of_global.expand(len(q), -1).contiguous(), of_long.expand(len(q), -1).contiguous()]
        for own, other, table, pattern in ((0, 1, tables[0], P(direction="both")), (1, 0, tables[1], window)):
            near = Labels(table[:distances].contiguous(), CLIP)
            far = Labels(table[distances:].contiguous(), 0, numbers[other], numbers[own])
            calls = []
            for side, labels, how in ((own, near, pattern), (other, far, P(direction="both"))):
                vectors, *of_groups = labels.tensors()
                calls.append((sides[side], [q[:, :, sides[own]], k[:, :, sides[side]], v[:, :, sides[side]], None, vectors,
                                            None, None, None, None, *of_groups], labels.added_to(how.text)))
            yield sides[own], calls

    @staticmethod
    def forward(ctx, rows, merge, q, k, v, of_global, of_long):
        found = []
        for _, calls in Attention.calls(rows, (q, k, v), (of_global, of_long)):
            parts = [x for _, arguments, text in calls for x in bounded_run.forward(*arguments, text, 0.0)]
            found += merge(*parts)
        ctx.rows = rows
        ctx.save_for_backward(q, k, v, of_global, of_long, *found)
        return torch.cat([found[0], found[2]], 2).transpose(1, 2)

    @staticmethod
    def backward(ctx, dout):
        q, k, v, *tables, o, lse, o_long, lse_long = ctx.saved_tensors
        dout, results, of_tables = dout.transpose(1, 2), [(o, lse), (o_long, lse_long)], []
        dq, dk, dv = (torch.zeros_like(x) for x in (q, k, v))
        for (own, calls), result in zip(Attention.calls(ctx.rows, (q, k, v), tables), results):
            of_side = []
            for side, arguments, text in calls:
                *gradients, _, of_table = bounded_run.backward(dout[:, :, own], *arguments, *result, text, 0.0)
                for total, where, x in zip((dq, dk, dv), (own, side, side), gradients):
                    total[:, where] += x.transpose(1, 2)
                of_side.append(of_table)
            of_tables.append(torch.cat(of_side).to(q.dtype))
        return None, None, dq, dk, dv, *of_tables


def ours(rows, device):
    merge = torch.compile(merged, dynamic=False) if device == "cuda" else merged
    return lambda *tensors: Attention.apply(rows, merge, *tensors)


def block_mask(rows, n, device):
    """Global blocks are full; near the diagonal others are partial. rows, n: multiples of a block."""
    first, every = rows // flex.BLOCK, torch.arange((rows + n) // flex.BLOCK, device=device)
    query, key = every[:, None], every[None]
    full = (query < first) | (key < first)
    partial = ((query - key).abs() <= 1 + (REACH - 1) // flex.BLOCK) & ~full

    def allowed(b, h, i, j):
        return (i < rows) | (j < rows) | ((i - j).abs() <= REACH)

    lists = [t[None, None] for t in (*flex.listed(partial), *flex.listed(full))]
    return BlockMask.from_kv_blocks(*lists, BLOCK_SIZE=flex.BLOCK, mask_mod=allowed, seq_lengths=(rows + n, rows + n))


def peer(rows, n, device, attend):
    """attend(q, k, v, score_mod, block_mask, scale)."""
    mask, group = block_mask(rows, n, device), torch.cat(groups_of(rows, n, device), 1)[0]

    def run(q, k, v, of_global, of_long):
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        scale = q.shape[-1] ** -0.5
        products = scale * torch.cat([torch.einsum("bhid,lhd->bhil", q[:, :, :rows], of_global),
                                      torch.einsum("bhid,lhd->bhil", q[:, :, rows:], of_long)], 2)

        def score(s, b, h, i, j):
            near = (j - i).clamp(-CLIP, CLIP) + CLIP
            far = 2 * CLIP + 1 + (group[i] != group[j]).int()
            return s + products[b, h, i, torch.where((i < rows) == (j < rows), near, far)]

        return attend(q, k, v, score, mask, scale).transpose(1, 2)

    return run


def tensors(rows, n, heads, size, device, dtype):
    like = dict(device=device, dtype=dtype)
    return [torch.randn(1, rows + n, heads, size, **like) for _ in range(3)] + \
        [torch.randn(2 * CLIP + 3, heads, size, **like) for _ in range(2)]


def cases(n=65536):
    """Name, tensors, our function and the peers' makers."""
    yield f"etc-labels (1, {GLOBAL} + {n}, 8, 64)", tensors(GLOBAL, n, 8, 64, "cuda", torch.bfloat16), \
        ours(GLOBAL, "cuda"), {
            name: lambda backend=backend: peer(GLOBAL, n, "cuda", flex.compiled(backend)) for name, backend in flex.BACKENDS.items()}


def check():
    """Both on a CPU, in small."""
    rows, n = 128, 384
    inputs = [x.requires_grad_() for x in tensors(rows, n, 2, 16, "cpu", torch.float32)]
    return flex.checked("etc-labels", (ours(rows, "cpu"), peer(rows, n, "cpu", flex.dense)), inputs)
