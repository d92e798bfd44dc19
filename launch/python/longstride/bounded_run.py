"""Attention within bounds, of listed blocks, with a sink and with labels, of tensors by the library, on the CPU or on the
current stream of a GPU; no gradients."""
import functools
import json

import torch

from . import attention_run, library
from .attention_run import (KEPT, _dense_rows, _on_cpu, _on_cuda, _scratch, check_backward, check_each,  # noqa: F401: of the operator
                            empty_results, keeping, lse_dtype, results, rows)
from .distance_run import in_their_types, properties  # noqa: F401: of the operator

GRADIENTS = 5  # of q, k, v, the sink and the table of labels
# Tensors that a call may leave out, but for one of begin and end, or of key_begin and keys.
NAMES = ("sink", "table", "begin", "end", "key_begin", "keys", "query_groups", "key_groups")


def check(q, k, v, sink, table, begin, end, key_begin, keys, query_groups, key_groups):
    """Properties of tensors, of which those of NAMES may be None."""
    attention_run.check(*(x[at] for at in range(3) for x in (q, k, v)))
    (batch, heads, queries, size), dtype, device = q
    rows_of_table = () if table is None else tuple(table[0][:1])
    of_bounds = [(batch, 1, queries), (batch, heads, queries)]
    check_each(device, ("sink", sink, [(heads,)], lse_dtype(dtype)),
               ("table", table, [(*rows_of_table, size), (*rows_of_table, heads, size)], dtype),
               ("begin", begin, of_bounds, torch.int32), ("end", end, of_bounds, torch.int32),
               ("query_groups", query_groups, [(batch, queries)], torch.int32),
               ("key_groups", key_groups, [(batch, k[0][2])], torch.int32))
    if (begin is None) != (end is None) or (begin is not None and begin[0] != end[0]):
        shapes = [x and tuple(x[0]) for x in (begin, end)]
        raise ValueError(f"begin is {shapes[0]} and end {shapes[1]}, but both must be of one shape, or None")
    if (key_begin is None) != (keys is None):
        raise ValueError("one of key_begin and keys is None, but both must be, or none")
    for name, x in (("key_begin", key_begin), ("keys", keys)):
        if x is None:
            continue
        shape, found, on = x
        if len(shape) != 3 or shape[0] not in (1, batch) or shape[1] not in (1, heads) or shape[:2] != keys[0][:2] \
                or found != torch.int32 or on != device:
            raise ValueError(f"{name} is {tuple(shape)}, {found}, on {on}, but must be ({batch} or 1, {heads} or 1, "
                             f"entries), torch.int32, on {device}, for the same batch and heads as keys")


def _lists(block, queries, key_begin, keys):
    """Settings of a plan."""
    if (block > 0) != (keys is not None):
        raise ValueError(f"block is {block}, but must be positive where there are keys, and only there")
    if keys is None:
        return {}
    blocks = -(-queries // block)
    if key_begin[0][2] != blocks + 1:
        raise ValueError(f"key_begin is {tuple(key_begin[0])}, but must have {blocks + 1} numbers for {blocks} blocks of "
                         f"{block} of {queries} queries")
    batch, heads, entries = keys[0]
    return dict(block=block, list_batch=batch, list_heads=heads, list_entries=entries)


# As in attention_run: checked when a plan is made, so that a call whose plan exists spends no time on it.
@functools.lru_cache(maxsize=512)
def _plan(pattern, scale, q, k, v, *extras):
    check(q, k, v, *extras)
    sink, table, begin, _, key_begin, keys, _, key_groups = extras
    bounds, labels, text = library.NO_BOUNDS, (0, 0, False, False, False), json.loads(pattern)
    if begin is not None:
        bounds = library.DOCUMENTS if text.get("documents", False) else library.INTERVALS
    if table is not None:
        labels = (table[0][0], text["clip"], text["from_end"], key_groups is not None, len(table[0]) == 2)
    return attention_run.Plan(pattern, scale, q[0], v[0], q[1], q[2], bounds=bounds, sink=sink is not None,
                              bounds_heads=0 if begin is None else begin[0][1], labels=labels,
                              **_lists(text.get("block", 0), q[0][2], key_begin, keys))


def _arrays(sink, table, begin, end, key_begin, keys, *groups):
    """Contiguous, and the addresses of bounds and sink, and of the others, as plans take them."""
    arrays = [None if x is None else x.contiguous() for x in (begin, end, sink, key_begin, keys, table, *groups)]
    addresses = [0 if x is None else x.data_ptr() for x in arrays]
    return arrays, addresses[:3], addresses[3:]


def _forward(q, k, v, *rest):
    *extras, pattern, scale, stream = rest
    plan = _plan(pattern, scale, *properties(q, k, v, *extras))
    (q, q_rows), (k, k_rows), (v, v_rows) = _dense_rows(q), _dense_rows(k), _dense_rows(v)
    _arrays_alive, addresses, others = _arrays(*extras)
    o, lse = plan.empty(*plan.of_o, plan.dtype), plan.empty(*plan.of_lse, plan.lse_dtype)
    _memory, address, count = _scratch(plan, False, plan.empty)
    plan.forward(q_rows, k_rows, v_rows, rows(o), lse.data_ptr(), address, count, stream, *addresses, others)
    return o, lse


def _backward(dout, q, k, v, *rest):
    *extras, o, lse, pattern, scale, stream = rest
    plan = _plan(pattern, scale, *properties(q, k, v, *extras))
    (dout, dout_rows), (o, o_rows) = _dense_rows(dout), _dense_rows(o)
    (q, q_rows), (k, k_rows), (v, v_rows) = _dense_rows(q), _dense_rows(k), _dense_rows(v)
    _arrays_alive, addresses, others = _arrays(*extras)
    dq, dk, dv = (plan.empty(*layout, plan.dtype) for layout in (plan.of_q, plan.of_k, plan.of_v))
    dsink, dtable = gradients_of(q, extras)
    _memory, address, count = _scratch(plan, True, plan.empty)
    plan.backward(q_rows, k_rows, v_rows, o_rows, lse.data_ptr(), dout_rows, rows(dq), rows(dk), rows(dv), address,
                  count, stream, *addresses, dsink.data_ptr() if dsink.numel() else 0, others,
                  dtable.data_ptr() if dtable.numel() else 0)
    return dq, dk, dv, dsink, dtable


def gradients_of(q, parameters):
    """Zeros for the gradients of the sink and the table, to which the library adds; empty where there is none."""
    return [q.new_zeros(0 if x is None else x.shape, dtype=lse_dtype(q.dtype)) for x in parameters[:2]]


def forward(*args):
    """o and lse, of q, k, v, those of NAMES, a pattern's text, which says if bounds are of documents, how many rows a
    block has and what labels are, and scale."""
    if args[0].is_cuda:
        return _on_cuda(_forward, *args)
    return _on_cpu(_forward, lambda *tensors: check(*properties(*tensors)), *args)


def backward(*args):
    """dq, dk, dv and those of the sink and the table, of dout, what forward takes and, before the text, its o and lse. dout, o and lse
    are trusted."""
    return _on_cuda(_backward, *args) if args[0].is_cuda else _on_cpu(_backward, None, *args)


def checked_backward(dout, q, k, v, *rest):
    """backward for a caller with tensors of any kind."""
    *extras, o, lse, pattern, scale = rest
    check(*properties(q, k, v, *extras))
    check_backward(dout, q, k, v, *rest)
    return backward(dout, q, k, v, *extras, o, lse.contiguous(), pattern, scale)
