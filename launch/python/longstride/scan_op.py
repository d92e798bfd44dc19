"""The scan of linear attention as operators of PyTorch: longstride::scan and its backward.

As in attention_op, torch.library knows them, with rules for fake tensors and autograd, and a call that needs nothing of
this goes to scan_run at once.
"""
import torch

from . import scan_run
from .attention_op import _bounds, _refuse_other_layouts, call, define
from .distance_op import _as
from .scan_library import FORMS


def scan(q, k, v, *, form="sum", decay=None, beta=None, normalise=False, groups=None, first_state=None,
         return_state=False, direction="past"):
    """Linear attention with a decay: position by position, with a state S of (key size, value size) in each head,

        R = a S,   S = R + k u^T,   o = S^T q

        form "sum"    a = 1, u = v              linear attention
        form "gated"  u = v                     SSD (Mamba-2), gated linear attention, retention
        form "delta"  u = beta (v - R^T k)      the gated delta rule; without a decay the delta rule

    q and k are (batch, heads, n, key size), v and the result (batch, heads, n, value size), of types, devices and strides
    as in `attention`. There is no scale and no feature map: multiply q and map q and k before. `decay` is log(a), at most
    0, (batch, heads, n), or (batch, heads, n, key size) for each key channel; "gated" needs it. `beta` of "delta" is
    (batch, heads, n), from 0 to 2. Both become float32 (float64 next to float64), and are not copied where they are
    transposes of (batch, n, heads) tensors. With `normalise`, not of "delta", o is divided by q . z with z = a z + k, and
    0 where that is 0.

    `groups` are documents, as in `attention`: S is 0 where one begins. `first_state`, which the first document continues,
    and the last state, which `return_state` returns next to o, are (batch, heads, key size, value size) in the type of
    decays, with one more column, z, where o is normalised. With direction "both", of "sum" and without states, o reads
    its document's last S. q, k, v, decay, beta and first_state have gradients, of the first order. Numbers on a GPU are
    not checked.
    """
    given = {"q": q, "k": k, "v": v, "decay": decay, "beta": beta, "first_state": first_state}
    for name, x in given.items():
        if not isinstance(x, torch.Tensor) and (x is not None or name in ("q", "k", "v")):
            raise ValueError(f"{name} is {type(x).__name__}, but must be a tensor")
    _check_form(form, decay, beta, normalise, first_state, return_state, direction)
    begin = None
    if groups is not None:
        _refuse_other_layouts(**given)
        scan_run.check(*scan_run.properties(q, k, v), None, None, None, None)
        begin, _ = _bounds(groups, None, q.shape[0], q.shape[2])
    exact = scan_run.exact_type(q.dtype)
    given = {"q": q, "k": k, "v": v, **{name: _as(given[name], exact, name) for name in scan_run.NAMES[:3]}, "begin": begin}
    settings = (f'{{"form": "{form}", "normalise": {int(normalise)}, "both": {int(direction == "both")}, '
                f'"return_state": {int(return_state)}, "keep": false}}')
    o, last_state = call(torch.ops.longstride.scan, _eager, scan_run, given, (settings,))
    return (o, last_state) if return_state else o


def _check_form(form, decay, beta, normalise, first_state, return_state, direction):
    if form not in FORMS:
        raise ValueError(f"form is {form!r}, but must be 'sum', 'gated' or 'delta'")
    for name, value in (("normalise", normalise), ("return_state", return_state)):
        if not isinstance(value, bool):
            raise ValueError(f"{name} is {value!r}, but must be True or False")
    if direction not in ("past", "both"):
        raise ValueError(f"direction is {direction!r}, but must be 'past' or 'both'")
    if form == "sum" and decay is not None:
        raise ValueError("decay is given, but the form 'sum' takes none; use the form 'gated'")
    if form == "gated" and decay is None:
        raise ValueError("decay is None, but the form 'gated' needs one; use the form 'sum' without")
    if (form == "delta") != (beta is not None):
        raise ValueError(f"beta is {'None' if beta is None else 'given'}, but the form {form!r} "
                         f"{'needs' if beta is None else 'does not take'} one")
    if form == "delta" and normalise:
        raise ValueError("normalise is True, but the form 'delta' cannot be normalised")
    if direction == "both" and form != "sum":
        raise ValueError(f"direction is 'both', but the form {form!r} has only the past")
    if direction == "both" and (return_state or first_state is not None):
        raise ValueError(f"{'return_state is True' if return_state else 'first_state is given'}, but direction 'both' has "
                         "no states")


_eager = define("scan", "Tensor q, Tensor k, Tensor v, Tensor? decay, Tensor? beta, Tensor? first_state, Tensor? begin",
                "str settings", scan_run)
