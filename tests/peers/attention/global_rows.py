"""Longformer's attention (Beltagy et al. 2020), next to FlexAttention: a case of `run.py op`, tensors (batch, n, heads, size).

Rows see a window on both sides, and the first rows, which see all, by the same projections.
"""
import torch
from torch.nn.attention.flex_attention import BlockMask

import longstride
from attention import flex

GLOBAL, REACH = 64, 256
P = longstride.Pattern


def ours(q, k, v):
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    rows = P(parts=["local", "first"], integration="merged", window=2 * REACH + 1, first=GLOBAL, direction="both")
    of_all = longstride.attention(q, k, v, rows).transpose(1, 2)
    of_global = longstride.attention(q[:, :, :GLOBAL], k, v, P(direction="both")).transpose(1, 2)
    return torch.cat([of_global, of_all[:, GLOBAL:]], 1)


def block_mask(n, device):
    """Blocks at the diagonal are full; the first ones of queries and keys, and those at the window's ends, are partial."""
    every = torch.arange(n // flex.BLOCK, device=device)
    query, key = every[:, None], every[None]
    apart = (query - key).abs()
    full = (apart + 1) * flex.BLOCK - 1 <= REACH
    partial = ((apart <= 1 + (REACH - 1) // flex.BLOCK) | (query * flex.BLOCK < GLOBAL) | (key * flex.BLOCK < GLOBAL)) & ~full

    def allowed(b, h, i, j):
        return (i < GLOBAL) | (j < GLOBAL) | ((i - j).abs() <= REACH)

    lists = [t[None, None] for t in (*flex.listed(partial), *flex.listed(full))]
    return BlockMask.from_kv_blocks(*lists, BLOCK_SIZE=flex.BLOCK, mask_mod=allowed, seq_lengths=(n, n))


def peer(n, device, attend):
    """attend(q, k, v, score_mod, block_mask, scale)."""
    mask = block_mask(n, device)

    def run(q, k, v):
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        return attend(q, k, v, None, mask, q.shape[-1] ** -0.5).transpose(1, 2)

    return run


def cases(n=65536):
    """Name, tensors, our function and the peers' makers."""
    tensors = [torch.randn(1, n, 8, 64, device="cuda", dtype=torch.bfloat16) for _ in range(3)]
    yield f"global rows (1, {n}, 8, 64)", tensors, ours, {
        name: lambda backend=backend: peer(n, "cuda", flex.compiled(backend)) for name, backend in flex.BACKENDS.items()}


def check():
    """Both on a CPU, in small."""
    inputs = [torch.randn(1, 768, 2, 16, requires_grad=True) for _ in range(3)]
    return flex.checked("global rows", (ours, peer(768, "cpu", flex.dense)), inputs)
