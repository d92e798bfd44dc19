"""Labels of pairs of positions, whose vectors attention adds to keys."""
from operator import index
from typing import NamedTuple, Optional

import torch
from torch import Tensor


def _in_int32(queries, keys):
    """Numbers that differ where these do: larger ones become their places among all of them. Nothing waits for a GPU."""
    if keys is None or (queries.dtype == torch.int32 and keys.dtype == torch.int32):
        return queries, keys
    numbers, order = torch.cat([queries.flatten(), keys.flatten()]).sort()
    places = torch.nn.functional.pad((numbers[1:] != numbers[:-1]).cumsum(0), (1, 0))
    found = torch.zeros_like(numbers).scatter(0, order, places).to(torch.int32)
    return found[:queries.numel()].view(queries.shape), found[queries.numel():].view(keys.shape)


class Labels(NamedTuple):
    """Makes scores scale q_i . (k_j + table[label(i, j)]).

    The label is the clipped distance, min(max(j - i, -clip), clip) + clip, or with `from_end` the number of keys after
    j in query i's interval, whatever lists say, at most the last label's. In a pattern of several parts or with gaps,
    those are entries of the part that has j. With `groups`, numbers (batch, n) in int32 or int64, a second set of labels follows the first: that
    of pairs of different groups. `query_groups`, (batch, rows of q), are groups unless given.

    `table`, which has a gradient, is (labels, heads, key size) or, for all heads, (labels, key size), in q's type. It
    has 2 clip + 1 rows, or any number with `from_end`, and twice as many with groups.
    """

    table: Tensor
    clip: int = 0
    groups: Optional[Tensor] = None
    query_groups: Optional[Tensor] = None
    from_end: bool = False

    def tensors(self):
        """table, query_groups and key_groups, as the operator takes them."""
        if self.groups is None and self.query_groups is not None:
            raise ValueError("query_groups of labels is given without groups, which are those of keys")
        for name, x in (("groups", self.groups), ("query_groups", self.query_groups)):
            if x is not None and (not isinstance(x, Tensor) or x.dtype not in (torch.int32, torch.int64)):
                kind = x.dtype if isinstance(x, Tensor) else type(x).__name__
                raise ValueError(f"{name} of labels is {kind}, but must be a tensor of torch.int32 or torch.int64")
        if not isinstance(self.table, Tensor):
            raise ValueError(f"table of labels is {type(self.table).__name__}, but must be a tensor")
        return self.table, *_in_int32(self.groups if self.query_groups is None else self.query_groups, self.groups)

    def added_to(self, text):
        """A pattern's text with what plans need to know besides."""
        if not isinstance(self.clip, int) or isinstance(self.clip, bool) or not 0 <= self.clip < 2**31:
            raise ValueError(f"clip of labels is {self.clip!r}, but must be a whole number of positions")
        if not isinstance(self.from_end, bool):
            raise ValueError(f"from_end of labels is {self.from_end!r}, but must be True or False")
        from_end = "true" if self.from_end else "false"  # json.dumps would leave the graph of torch.compile
        return f'{text[:-1]}, "clip": {index(self.clip)}, "from_end": {from_end}}}'
