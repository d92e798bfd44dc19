"""Scans with a decay in chunks of matrix products, as compiled PyTorch, for tensors (batch, heads, n, size).

o_i = q_i S_i, where S_i = a_i S_(i - 1) + k_i v_i^T, or with beta the gated delta rule. `decay` are logarithms,
(batch, heads, n, 1 or size); None: a = 1. Products are of the tensors' type, decays exact (frame.model).
"""
import torch
import torch.nn.functional as F

from frame.model import exact

CHUNK = 64


def chunked(t):
    return t.unflatten(2, (-1, min(CHUNK, t.shape[2])))


def carried(added, total):
    """States before every chunk, from what each adds and its total decay (logarithm): all pairs of chunks at once."""
    sums = total.cumsum(2)
    before = sums - total
    count = added.shape[2]
    earlier = torch.ones(count, count, dtype=torch.bool, device=added.device).tril(-1)
    between = (before[:, :, :, None] - sums[:, :, None]).masked_fill(~earlier[..., None], -torch.inf).exp()
    if between.shape[-1] == 1:
        return (between[..., 0].to(added.dtype) @ added.flatten(3)).view_as(added)
    return torch.einsum("bhijc,bhjcv->bhicv", between.to(added.dtype), added)


def scan(q, k, v, decay=None, normalise=False):
    q, k, v = (chunked(t) for t in (q, k, v))
    n = q.shape[3]
    past = torch.ones(n, n, dtype=torch.bool, device=q.device).tril()
    if decay is None:
        inside, read, write = (q @ k.transpose(-1, -2)).masked_fill(~past, 0), q, k
        total = q.new_zeros(*q.shape[:3], 1, dtype=exact(q).dtype)
    else:
        sums = exact(chunked(decay)).cumsum(3)
        total = sums[:, :, :, -1]
        read, write = (q * sums.exp()).to(q.dtype), (k * (total[:, :, :, None] - sums).exp()).to(q.dtype)
        if sums.shape[-1] == 1:
            between = (sums - sums.transpose(-1, -2)).masked_fill(~past, -torch.inf).exp()
            inside = (q @ k.transpose(-1, -2) * between).to(q.dtype)
        else:  # relative to the middle of the chunk, so that neither factor overflows
            middle = sums[:, :, :, n // 2, None]
            pairs = (q * (sums - middle).exp()).to(q.dtype) @ (k * (middle - sums).exp()).to(q.dtype).transpose(-1, -2)
            inside = pairs.masked_fill(~past, 0)
    if normalise:
        v = torch.cat([v, torch.ones_like(v[..., :1])], -1)
    states = carried(write.transpose(-1, -2) @ v, total)
    o = inside @ v + read @ states.to(q.dtype)
    return (o[..., :-1] / exact(o[..., -1:]) if normalise else o).flatten(2, 3).to(q.dtype)


@torch.compiler.disable  # a graph of all chunks would take minutes to compile
def delta(q, k, v, decay, beta):
    """By the inverse of a triangular matrix in every chunk (Yang et al. 2024), and chunk after chunk."""
    kind = q.dtype
    q, k, v, sums, beta = (exact(chunked(t)) for t in (q, k, v, decay, beta[..., None]))
    sums = sums.cumsum(3)
    n, total = q.shape[3], sums[:, :, :, -1]
    past = torch.ones(n, n, dtype=torch.bool, device=q.device).tril()
    between = (sums - sums.transpose(-1, -2)).masked_fill(~past, -torch.inf).exp()
    pairs = exact((beta * (k @ k.transpose(-1, -2)) * between).tril(-1))
    given = exact(torch.cat([beta * v, beta * sums.exp() * k], -1))
    solved = torch.linalg.solve_triangular(pairs, given, upper=False, unitriangular=True)
    new, old = solved.split([v.shape[-1], k.shape[-1]], -1)
    inside, read = q @ k.transpose(-1, -2) * between, q * sums.exp()
    write = (k * (total[:, :, :, None] - sums).exp()).transpose(-1, -2)
    state, outputs = torch.zeros_like(write[:, :, 0] @ new[:, :, 0]), []
    for c in range(q.shape[2]):
        added = new[:, :, c] - old[:, :, c] @ state
        outputs.append(read[:, :, c] @ state + inside[:, :, c] @ added)
        state = state * total[:, :, c, :, None].exp() + write[:, :, c] @ added
    return torch.stack(outputs, 2).flatten(2, 3).to(kind)
