"""Bounds of attention, from documents that do not see each other and from masks of FlexAttention."""
import typing

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


class BlockLists(typing.NamedTuple):
    """The blocks of keys that each block of queries sees. Blocks have `block` rows, a multiple of 64; the list of query
    block b of a head is keys[key_begin[b]:key_begin[b + 1]], of increasing numbers. Both are int32, (batch or 1, heads or
    1, query blocks + 1) and (batch or 1, heads or 1, room for the most entries). `bounds` are those of attention; with
    them alone, keys is None."""

    block: int
    key_begin: typing.Optional[torch.Tensor]
    keys: typing.Optional[torch.Tensor]
    bounds: typing.Optional[tuple] = None


MOST_PAIRS = 2**26  # of a mask that are looked at together


def bounds_of(block_mask):
    """A BlockMask of FlexAttention as `bounds` of attention with Pattern(direction="both"): begin and end, of its batch
    and heads. They mean the same: the mask's partial blocks are read, which takes time as making it does, and refused if
    a row sees keys that are no interval, or if intervals fall from row to row."""
    seen = _Seen(block_mask)
    seen.refuse(seen.count != seen.end - seen.begin,
                "sees {count} keys from {begin} to {end}, but must see an interval; a Pattern with several parts may say "
                "what the mask does")
    begin, end, falls = seen.bounds(False)
    for sequence, head, i in falls.nonzero().tolist()[:1]:
        ends = [f"{seen.begin[at].item()} to {seen.end[at].item()}" for at in ((sequence, head, i),
                                                                              (sequence, head, i - 1))]
        raise ValueError(f"query {i} of head {head} of sequence {sequence} sees keys from {ends[0]}, and the query "
                         f"before it from {ends[1]}, but neither end may fall")
    return begin, end


def lists_of(block_mask):
    """A BlockMask of FlexAttention as `lists` of attention with Pattern(direction="both"), which mean the same: bounds
    alone where rows see intervals, else its blocks, and bounds if a row does not see all keys of them. Refused if what a
    row sees is no interval of the keys of its blocks, or if intervals would fall from row to row. Call it outside of
    compiled code."""
    seen = _Seen(block_mask)
    begin, end, falls = seen.bounds(False)
    if not falls.any() and torch.equal(seen.count, seen.end - seen.begin):
        return BlockLists(0, None, None, (begin, end))
    rows, columns = block_mask.BLOCK_SIZE
    if rows != columns or rows % 64 != 0:
        raise ValueError(f"block_mask has blocks of {rows} queries and {columns} keys, but must have a multiple of 64 of "
                         "both, the same; give BLOCK_SIZE to create_block_mask")
    seen.refuse(~seen.run, "sees {count} keys from {begin} to {end}, but must see an interval of the keys of its blocks")
    bounds = None
    if (seen.count != seen.most).any():
        *bounds, falls = seen.bounds(True)
        seen.refuse(falls, "sees keys from {begin} to {end} of its blocks, but neither end may fall from the query before "
                    "it")
    key_begin = torch.nn.functional.pad(seen.listed.sum(3).cumsum(2), (1, 0)).to(torch.int32)
    room = torch.arange(key_begin[..., -1].max().item(), device=key_begin.device) < key_begin[..., -1:]
    keys = torch.zeros(room.shape, dtype=torch.int32, device=room.device)
    keys[room] = seen.listed.nonzero()[:, 3].to(torch.int32)
    return BlockLists(rows, key_begin, keys, bounds and tuple(bounds))


class _Seen:
    """What every query of a BlockMask sees, (batch, heads, queries): from its first key, `begin`, to `end`, `count` of
    them, of `most` in the blocks that it lists; whether they are a `run` of those, and the keys from `after` on and up to
    `until` between which are no others of its blocks. Where it sees none, all but `most` are 0, and `until` is the end of
    its last block."""

    def __init__(self, block_mask):
        from torch.nn.attention import flex_attention

        if not isinstance(block_mask, flex_attention.BlockMask):
            raise ValueError(f"block_mask is {type(block_mask).__name__}, but must be a BlockMask")
        self.mask = block_mask
        partial, counts = _listed(block_mask.kv_num_blocks, block_mask.kv_indices), block_mask.full_kv_num_blocks
        self.full = torch.zeros_like(partial) if counts is None else _listed(counts, block_mask.full_kv_indices)
        self.listed = partial | self.full
        batch, heads, blocks, _ = self.listed.shape
        rows, columns = block_mask.BLOCK_SIZE
        step = max(1, MOST_PAIRS // (rows * columns * max(1, int(self.listed.sum(3).max()))))
        found = [self._of_blocks(at, flex_attention.create_mask) for at in
                 torch.arange(batch * heads * blocks, device=self.listed.device).split(step)]
        self.begin, self.end, self.count, self.most, self.after, self.until, run = (
            torch.cat(x).view(batch, heads, blocks * rows)[..., :block_mask.seq_lengths[0]] for x in zip(*found))
        self.run = run.bool()

    def _pairs(self, number, begin, create_mask):
        """Whether the mask allows the pairs of query blocks and the key blocks that begin there: (block, row, column)."""
        (queries, keys), (rows, columns) = self.mask.seq_lengths, self.mask.BLOCK_SIZE
        _, heads, blocks, _ = self.listed.shape
        sequence, head, first = number // blocks // heads, number // blocks % heads, number % blocks * rows

        def see(tile, _, i, j):
            return self.mask.mask_mod(sequence[tile], head[tile], (first[tile] + i).clamp(max=queries - 1),
                                      (begin[tile] + j).clamp(max=keys - 1)) & (begin[tile] + j < keys)

        return create_mask(see, len(number), 1, rows, columns, number.device)[:, 0].to(torch.int8)

    def _of_blocks(self, at, create_mask):
        """Of the query blocks of these numbers: (number, row of it)."""
        keys, (rows, columns) = self.mask.seq_lengths[1], self.mask.BLOCK_SIZE
        listed, full = (x.flatten(0, 2)[at] for x in (self.listed, self.full))
        slots = max(1, int(listed.sum(1).max()))
        given, block = listed.to(torch.int8).sort(dim=1, descending=True, stable=True)  # in order, the listed first
        given, block = given[:, :slots].bool(), block[:, :slots]
        begin = torch.where(given, block * columns, keys)
        size = (keys - begin).clamp(max=columns)
        # The keys that a row sees of a slot: from `first` to `last`.
        first = torch.zeros(*size.shape, rows, dtype=torch.int64, device=at.device)
        last = size[..., None].repeat(1, 1, rows)
        count = last.clone()
        partial = (given & ~full.gather(1, block)).nonzero(as_tuple=True)
        if len(partial[0]) > 0:
            seen = self._pairs(at[partial[0]], begin[partial], create_mask)
            count[partial], first[partial] = seen.sum(2), seen.argmax(2)
            last[partial] = columns - seen.flip(2).argmax(2)
        some = count > 0
        before = size.cumsum(1) - size  # listed keys of earlier slots
        beyond = 2**62

        def least(x):
            return torch.where(some, x, beyond).amin(1)

        def most(x):
            return torch.where(some, x, 0).amax(1)

        def of(slot, x):
            return x.gather(1, slot[:, None] if x.dim() == 3 else slot).view(slot.shape)

        start, end = least(begin[..., None] + first), most(begin[..., None] + last)
        entering, leaving = some.to(torch.int8).argmax(1), slots - 1 - some.flip(1).to(torch.int8).argmax(1)
        zero, n = size.new_zeros(len(size), 1), size.new_full((len(size), 1), keys)
        after = torch.where(of(entering, first) > 0, start, of(entering, torch.cat((zero, (begin + size)[:, :-1]), 1)))
        until = torch.where(of(leaving, last) < of(leaving, size), end, of(leaving, torch.cat((begin[:, 1:], n), 1)))
        total = count.sum(1)
        run = most(before[..., None] + last) - least(before[..., None] + first) == total
        sees, blocks_end = total > 0, torch.where(given, begin + size, 0).amax(1, keepdim=True)
        return (*(torch.where(sees, x, 0) for x in (start, end)), total, size.sum(1, keepdim=True).expand(-1, rows),
                torch.where(sees, after, 0), torch.where(sees, until, blocks_end), run | ~sees)

    def refuse(self, wrong, sentence):
        for at in wrong.nonzero().tolist()[:1]:
            sequence, head, i = at
            numbers = {name: getattr(self, name)[tuple(at)].item() for name in ("count", "begin", "end")}
            raise ValueError(f"query {i} of head {head} of sequence {sequence} {sentence.format(**numbers)}")

    def bounds(self, listed):
        """begin and end in int32 that never fall, and the rows that they cannot be of; listed: next to the lists, so that
        they may hold keys of other blocks. A query that sees nothing is behind the others, or behind its blocks."""
        sees = self.count > 0
        end = self.end.cummax(2).values
        nothing = end.minimum(self.until) if listed else end
        begin = torch.where(sees, self.after if listed else self.begin, nothing).cummax(2).values
        falls = sees & ((begin > self.begin) | (end > (self.until if listed else self.end)))
        return begin.to(torch.int32), end.to(torch.int32), falls


def _listed(counts, indices):
    """(batch, heads, blocks of queries, blocks of keys): whether a block is one of the first `counts` of `indices`."""
    blocks = indices.shape[3]
    given = torch.arange(blocks, device=counts.device) < counts[..., None]
    listed = torch.zeros(*counts.shape, blocks + 1, dtype=torch.bool, device=counts.device)
    return listed.scatter(3, torch.where(given, indices, blocks).long(), True)[..., :blocks]
