"""FlexAttention as the peers call it. On a CPU, where it has no gradients, the same scores and masks are applied to whole
matrices: what is checked there are the functions and block lists that the kernels are given."""
import torch
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention  # noqa: F401

BLOCK = 128  # of masks
BACKENDS = {"Flex": "TRITON", "Flex, FA4": "FLASH"}


def dense(q, k, v, score_mod, block_mask, scale):
    batch, heads, n, keys = *q.shape[:3], k.shape[2]
    b, h, i, j = torch.meshgrid(*(torch.arange(size) for size in (batch, heads, n, keys)), indexing="ij")
    scores = scale * (q @ k.transpose(-1, -2))
    scores = score_mod(scores, b, h, i, j) if score_mod else scores
    seen = block_mask.mask_mod(b, h, i, j)
    blocks = (block_mask.to_dense() > 0).repeat_interleave(BLOCK, -2).repeat_interleave(BLOCK, -1)[..., :n, :keys]
    if bool((seen & ~blocks).any()):
        raise ValueError("the block mask leaves out pairs that its function allows")
    if block_mask.full_kv_num_blocks is not None:  # the kernels do not ask the function there
        full = full_blocks(block_mask).repeat_interleave(BLOCK, -2).repeat_interleave(BLOCK, -1)[..., :n, :keys]
        if bool((full & ~seen).any()):
            raise ValueError("a block that is listed as full is not")
    return scores.masked_fill(~seen, -torch.inf).softmax(-1) @ v


def full_blocks(block_mask):
    counts, indices = block_mask.full_kv_num_blocks, block_mask.full_kv_indices
    listed = torch.arange(indices.shape[-1]) < counts[..., None]
    return torch.zeros_like(indices).scatter_(-1, indices.long(), listed.int()) > 0


def attention(q, k, v, score_mod, block_mask, scale, backend=None):
    if q.device.type == "cpu":
        return dense(q, k, v, score_mod, block_mask, scale)
    options = {"BACKEND": backend} if backend else None
    return flex_attention(q, k, v, score_mod=score_mod, block_mask=block_mask, scale=scale, kernel_options=options)


def compiled(backend, mode=None):
    """attention() as one kernel for one mask and score_mod, in either direction."""
    run, options = torch.compile(flex_attention, dynamic=False, mode=mode), {"BACKEND": backend}

    def attend(q, k, v, score_mod, block_mask, scale):
        return run(q, k, v, score_mod=score_mod, block_mask=block_mask, scale=scale, kernel_options=options)

    return attend


def checked(name, runs, inputs):
    """Says how far results and gradients of two functions differ on a CPU; 0 if that is little."""
    found = []
    for run in runs:
        o = run(*inputs)
        generator = torch.Generator().manual_seed(7)
        found.append([o.detach(), *torch.autograd.grad(o, inputs, torch.randn(o.shape, generator=generator))])
    worst = max(((a - b).norm() / a.norm()).item() for a, b in zip(*found))
    print(f"{name}: {worst:.1e}")
    return 0 if worst < 1e-4 else 1


def listed(allowed):
    """Counts and indices of the blocks that booleans (..., rows, columns) allow, as BlockMask wants them."""
    return allowed.sum(-1).int(), torch.argsort((~allowed).int(), dim=-1, stable=True).int()


def band(n, keys, nearest, farthest, device):
    """The mask of distances nearest <= n_k - n_q + i - j <= farthest. farthest: a number, or one per head on the device.
    Made from blocks, without reading anything back, so that it can follow learned spans in a CUDA graph."""
    memory = keys - n
    limits = torch.as_tensor(farthest, device=device).reshape(-1)
    query = torch.arange(-(-n // BLOCK), device=device)[:, None] * BLOCK
    key = torch.arange(-(-keys // BLOCK), device=device)[None] * BLOCK
    least, most = query - key + memory - (BLOCK - 1), query - key + memory + BLOCK - 1  # distances of a pair of blocks
    limit = limits[:, None, None]
    whole = (query + BLOCK <= n) & (key + BLOCK <= keys)
    full = (least >= nearest) & (most <= limit) & whole
    partial = (most >= nearest) & (least <= limit) & ~full

    def allowed(b, h, i, j):
        distance = i + memory - j
        return (distance >= nearest) & (distance <= (limits[h] if torch.is_tensor(farthest) else farthest))

    return BlockMask.from_kv_blocks(*(t[None] for t in (*listed(partial), *listed(full))), BLOCK_SIZE=BLOCK,
                                    mask_mod=allowed, seq_lengths=(n, keys))
