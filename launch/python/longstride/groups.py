"""Documents that do not see each other, as bounds of attention: where each position's document begins and ends."""
import torch

_operators = torch.library.Library("longstride", "FRAGMENT")
_operators.define("document_bounds(Tensor groups, SymInt batch, SymInt n) -> (Tensor, Tensor)")


def check(groups, batch, n):
    """What shapes and types tell."""
    if groups.dtype not in (torch.int32, torch.int64):
        raise ValueError(f"groups is {groups.dtype}, but must be torch.int32 or torch.int64")
    lengths = groups.dim() == 1 and groups.shape[0] >= 2
    if not lengths and (groups.dim() != 2 or groups.shape[0] != batch or groups.shape[1] != n):
        raise ValueError(f"groups is {tuple(groups.shape)}, but must be cumulative lengths (documents + 1), or numbers of "
                         f"documents ({batch}, {n})")


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
