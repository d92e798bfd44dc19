"""Bounds of attention, from documents that do not see each other and from masks of FlexAttention."""
import torch

_operators = torch.library.Library("longstride", "FRAGMENT")
_operators.define("document_bounds(Tensor groups, SymInt batch, SymInt n) -> (Tensor, Tensor)")


def check(groups, batch, n):
    """What shapes and types tell."""
    if groups.dtype not in (torch.int32, torch.int64):
        raise ValueError(f"groups is {groups.dtype}, but must be torch.int32 or torch.int64")
    lengths = groups.dim() == 1 and groups.shape[0] >= 2
    if not lengths and (groups.dim() != 2 or groups.shape[0] != batch or groups.shape[1] != n):
        raise ValueError(f"groups is {tuple(groups.shape)}, but must be cumulative lengths (documents + 1), or numbers "
                         f"of documents ({batch}, {n})")


def _check_values(groups, n):
    """On the CPU: on a GPU reading them would wait for it."""
    falls = (groups[..., 1:] < groups[..., :-1]).nonzero()
    if len(falls):
        *row, at = falls[0].tolist()
        before, after = groups[(*row, at)].item(), groups[(*row, at + 1)].item()
        raise ValueError(f"groups falls from {before} to {after} at {[*row, at + 1]}, but must never fall along a row")
    if groups.dim() == 1 and (groups[0] != 0 or groups[-1] != n):
        raise ValueError(f"groups goes from {groups[0]} to {groups[-1]}, but cumulative lengths must go from 0 to {n}")


def _of_lengths(ends, batch, n):
    position = torch.arange(n, dtype=ends.dtype, device=ends.device)
    document = torch.searchsorted(ends, position, right=True).clamp(1, len(ends) - 1)
    return (ends[at].expand(batch, 1, n) for at in (document - 1, document))


def _of_numbers(groups):
    position = torch.arange(groups.shape[1], dtype=torch.int32, device=groups.device)
    new = torch.nn.functional.pad(groups[:, 1:] != groups[:, :-1], (1, 1), value=True)  # also behind the last
    begin = torch.where(new[:, :-1], position, 0).cummax(1).values
    end = torch.where(new[:, 1:], position + 1, groups.shape[1]).flip(1).cummin(1).values.flip(1)
    return begin[:, None], end[:, None]


def document_bounds(groups, batch, n):
    """begin and end, (batch, 1, n) in int32, of cumulative lengths, which all rows share, or of numbers of documents.
    Nothing waits for a GPU, on which the numbers are trusted."""
    check(groups, batch, n)
    if groups.device.type == "cpu":
        _check_values(groups, n)
    found = _of_lengths(groups.contiguous(), batch, n) if groups.dim() == 1 else _of_numbers(groups)
    return tuple(x.to(torch.int32, memory_format=torch.contiguous_format, copy=True) for x in found)


for _device in ("CPU", "CUDA"):
    _operators.impl("document_bounds", document_bounds, _device)


@torch.library.register_fake("longstride::document_bounds", lib=_operators)
def _(groups, batch, n):
    check(groups, batch, n)
    return groups.new_empty(batch, 1, n, dtype=torch.int32), groups.new_empty(batch, 1, n, dtype=torch.int32)


MOST_PAIRS = 2**26  # of a mask that are looked at together


def bounds_of(block_mask):
    """A BlockMask of FlexAttention as `bounds` of attention with Pattern(direction="both"): begin and end, of its batch
    and heads. They mean the same: the mask is read, which takes time as making it does, and refused if a row sees keys
    that are no interval, or if intervals fall from row to row."""
    from torch.nn.attention import flex_attention

    if not isinstance(block_mask, flex_attention.BlockMask):
        raise ValueError(f"block_mask is {type(block_mask).__name__}, but must be a BlockMask")
    counts = block_mask.kv_num_blocks
    (batch, heads, _), (queries, keys), device = counts.shape, block_mask.seq_lengths, counts.device
    listed = _listed(counts, block_mask.kv_indices)
    full = None if block_mask.full_kv_num_blocks is None else \
        _listed(block_mask.full_kv_num_blocks, block_mask.full_kv_indices)
    of_queries, of_keys = (torch.arange(x, device=device) // size for x, size in
                           zip((queries, keys), block_mask.BLOCK_SIZE))
    rows = max(1, MOST_PAIRS // (batch * heads * keys))
    found = []
    for at in range(0, queries, rows):
        block = of_queries[at:at + rows]
        seen = flex_attention.create_mask(lambda b, h, i, j: block_mask.mask_mod(b, h, i + at, j), batch, heads,
                                          len(block), keys, device)
        seen = seen & listed[:, :, block][..., of_keys]
        found.append(_intervals(seen if full is None else seen | full[:, :, block][..., of_keys], at))
    begin, end = (torch.cat(x, 2) for x in zip(*found))
    # A query that sees nothing is behind those before it.
    nothing, reach = begin == end, end.cummax(2).values
    begin, end = (torch.where(nothing, reach, x) for x in (begin, end))
    for sequence, head, i in ((begin.diff(dim=2) < 0) | (end.diff(dim=2) < 0)).nonzero().tolist()[:1]:
        ends = [f"{begin[at].item()} to {end[at].item()}" for at in ((sequence, head, i + 1), (sequence, head, i))]
        raise ValueError(f"query {i + 1} of head {head} of sequence {sequence} sees keys from {ends[0]}, and the query "
                         f"before it from {ends[1]}, but neither end may fall")
    return begin.to(torch.int32), end.to(torch.int32)


def _intervals(seen, first_query):
    """begin and end of the keys that each query sees, equal where it sees none."""
    count, some = seen.sum(3), seen.to(torch.int8)
    begin, end = some.argmax(3), seen.shape[3] - some.flip(3).argmax(3)
    for at in ((count > 0) & (end - begin != count)).nonzero().tolist()[:1]:
        sequence, head, i = at
        raise ValueError(
            f"query {first_query + i} of head {head} of sequence {sequence} sees {count[tuple(at)].item()} keys from "
            f"{begin[tuple(at)].item()} to {end[tuple(at)].item()}, but must see an interval; a Pattern with several "
            "parts may say what the mask does")
    return begin, begin + count


def _listed(counts, indices):
    """(batch, heads, blocks of queries, blocks of keys): whether a block is one of the first `counts` of `indices`."""
    blocks = indices.shape[3]
    given = torch.arange(blocks, device=counts.device) < counts[..., None]
    listed = torch.zeros(*counts.shape, blocks + 1, dtype=torch.bool, device=counts.device)
    return listed.scatter(3, torch.where(given, indices, blocks).long(), True)[..., :blocks]
