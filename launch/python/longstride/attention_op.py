"""Attention as operators of PyTorch: longstride::attention and, with bounds, lists, a sink or labels,
longstride::bounded_attention, each with its backward.

They are registered by torch.library, with rules for fake tensors and autograd, so that torch.compile, CUDA graphs and
torch.library.opcheck treat them as PyTorch's own. torch.library.custom_op would do the same, but takes 20 to 40
microseconds more per call on the host. A call that needs nothing of this goes to attention_run at once.
"""
import functools
import sys
from operator import index

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import Parameter

from . import attention_run, bounded_run
from .bounds import BlockLists, document_bounds, lists_of
from .labels import Labels
from .pattern import Pattern

_operators = torch.library.Library("longstride", "DEF")


def attention(q, k, v, pattern, scale=None, *, groups=None, bounds=None, lists=None, sink=None, labels=None):
    """softmax(scale q k^T) v over the pairs that the pattern allows.

    q and k are (batch, heads, n, key size), v and the result (batch, heads, n, value size), as in
    torch.nn.functional.scaled_dot_product_attention: one type and device, any strides. k and v may have fewer heads,
    which divide those of q: head i of q reads head i // (heads / key heads). The type is float32, bfloat16 or float16,
    or on the CPU also float64; the CPU computes 16-bit types in float32. torch.autocast casts q, k and v. `pattern` is a
    Pattern, and `scale` is 1 / sqrt(key size) unless given. Gradients are of the first order. With a pattern of both
    directions q may have another number of rows than k, with one of the past a single row: the last position, as in a
    step of generation whose keys are in a cache.

    Positions of different `groups` do not see each other: cumulative lengths of documents, 0, ..., n, which all rows
    share, or numbers of documents (batch, n), which never fall along a row; int32 or int64. `bounds` are two int32
    tensors (batch or 1, heads or 1, rows of q): a query sees keys from begin to end - 1. Both are from 0 to n and never
    fall along a row. `lists` are BlockLists, or a BlockMask of FlexAttention, of which lists_of makes them: next to a
    pattern of one dense part, a query sees keys of the blocks that its own block lists. Numbers on a GPU are not
    checked. `sink`, (heads,) and finite, is a logit that only adds to the softmax's denominator, with a gradient.
    `labels` are Labels.
    """
    if not isinstance(pattern, Pattern):
        raise ValueError(f"pattern is {pattern!r}, but must be a longstride.Pattern")
    if not (isinstance(q, Tensor) and isinstance(k, Tensor) and isinstance(v, Tensor)):
        raise ValueError(f"q, k and v are {type(q).__name__}, {type(k).__name__} and {type(v).__name__}, but must be "
                         "tensors")
    if _is_autocast():
        q, k, v = _autocast(q.device.type, q, k, v)
        labels = _autocast_labels(labels, q)
    if scale is None:
        scale = 0.0  # the library's default
    else:
        scale = _checked_scale(scale)
    if groups is not None or bounds is not None or lists is not None or sink is not None \
            or labels is not None:
        return _bounded_attention(q, k, v, pattern.text, scale, groups, bounds, lists, sink, labels)
    if _needs_no_operator(q, k, v):
        try:
            if torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad):
                return _eager_attention(q, k, v, (pattern.text, scale))
            return attention_run.forward(q, k, v, pattern.text, scale)[0]
        except RuntimeError:
            _refuse_other_layouts(q=q, k=k, v=v)
            raise
    _refuse_other_layouts(q=q, k=k, v=v)
    return torch.ops.longstride.attention(q, k, v, pattern.text, scale)[0]


_is_autocast = getattr(torch._C, "_is_any_autocast_enabled", None) or (
    lambda: torch.is_autocast_enabled() or torch.is_autocast_cpu_enabled())


def _autocast(device, *tensors):
    """What autocast makes of tensors that are multiplied: of its type, unless they are float64 or no numbers."""
    if not torch.is_autocast_enabled(device):
        return tensors
    dtype = torch.get_autocast_dtype(device)
    return tuple(x.to(dtype) if isinstance(x, Tensor) and x.device.type == device and x.is_floating_point()
                 and x.dtype != torch.float64 else x for x in tensors)


def _autocast_labels(labels, q):
    """Labels whose table is of q's type."""
    if not isinstance(labels, Labels):
        return labels
    return labels._replace(table=_autocast(q.device.type, labels.table)[0])


def _bounded_attention(q, k, v, text, scale, groups, bounds, lists, sink, labels):
    _refuse_other_layouts(q=q, k=k, v=v)
    attention_run.check(*attention_run.properties(q, k, v))
    block, key_begin, keys, bounds = _listed(lists, groups, bounds, (q.shape[2], k.shape[2]))
    begin, end = _bounds(groups, bounds, q.shape[0], k.shape[2])
    if groups is not None:
        if q.shape[2] != k.shape[2]:
            raise ValueError(f"groups is given, but q has {q.shape[2]} rows and k {k.shape[2]}; give bounds instead")
        text = text[:-1] + ', "documents": true}'
    if keys is not None:
        text = text[:-1] + f', "block": {index(block)}}}'  # a constant of compiled code, of all shapes, too
    if sink is not None:
        if not isinstance(sink, Tensor) or not sink.is_floating_point():
            kind = sink.dtype if isinstance(sink, Tensor) else type(sink).__name__
            raise ValueError(f"sink is {kind}, but must be a tensor of a logit per head")
        sink = sink.to(attention_run.lse_dtype(q.dtype))
    table = query_groups = key_groups = None
    if labels is not None:
        if not isinstance(labels, Labels):
            raise ValueError(f"labels is {type(labels).__name__}, but must be longstride.Labels")
        (table, query_groups, key_groups), text = labels.tensors(), labels.added_to(text)
    return call(torch.ops.longstride.bounded_attention, _eager_bounded, bounded_run,
                dict(q=q, k=k, v=v, sink=sink, table=table, begin=begin, end=end, key_begin=key_begin, keys=keys,
                     query_groups=query_groups, key_groups=key_groups), (text, scale))


def _listed(lists, groups, bounds, rows):
    """The members of lists, with whichever bounds are given. rows: of queries and of keys."""
    if lists is None:
        return 0, None, None, bounds
    if not isinstance(lists, BlockLists):
        if not hasattr(lists, "kv_num_blocks"):
            raise ValueError(f"lists is {type(lists).__name__}, but must be BlockLists or a BlockMask of FlexAttention")
        made_for = tuple(getattr(lists, "seq_lengths", rows))
        if made_for != rows:
            raise ValueError(f"lists is a BlockMask of {made_for[0]} queries and {made_for[1]} keys, but q has {rows[0]} "
                             f"rows and k {rows[1]}; make a mask of these")
        lists = lists_of(lists)
    if lists.keys is not None:
        block = lists.block
        if isinstance(block, bool) or not isinstance(block, int) or not 0 < block < 2**31 or block % 64 != 0:
            raise ValueError(f"block is {block!r}, but must be a positive multiple of 64")
        for name, x in (("key_begin", lists.key_begin), ("keys", lists.keys)):
            if not isinstance(x, Tensor):
                raise ValueError(f"{name} of lists is {type(x).__name__}, but must be a tensor of torch.int32")
    if lists.bounds is None:
        return *lists[:3], bounds
    if groups is not None or bounds is not None:
        raise ValueError("lists has bounds, so groups and bounds must be None; make lists of a mask that has both")
    return lists


def _bounds(groups, bounds, batch, n):
    """begin and end, of whichever is given."""
    if groups is None:
        if bounds is None:
            return None, None
        if not isinstance(bounds, (list, tuple)) or len(bounds) != 2 or not all(isinstance(x, Tensor) for x in bounds):
            raise ValueError(f"bounds is {type(bounds).__name__}, but must be two tensors, begin and end")
        return [x.expand(batch, -1, -1) if x.dim() == 3 and x.shape[0] == 1 else x for x in bounds]
    if bounds is not None:
        raise ValueError("groups and bounds are given, but only one may be: clamp the bounds to the groups")
    if not isinstance(groups, Tensor):
        raise ValueError(f"groups is {type(groups).__name__}, but must be a tensor")
    if _needs_no_operator(groups):
        return document_bounds(groups, batch, n)
    return torch.ops.longstride.document_bounds(groups, batch, n)


def call(operator, eager, run, given, how):
    """The operator of tensors by name, some of which are None, or what it does at once."""
    tensors = [x for x in given.values() if x is not None]
    if not _needs_no_operator(*tensors):
        _refuse_other_layouts(**given)
        return run.results(operator(*given.values(), *how))
    try:
        if torch.is_grad_enabled() and any(x.requires_grad for x in tensors):
            return eager(*given.values(), how)
        return run.results(run.forward(*given.values(), *how))
    except RuntimeError:
        _refuse_other_layouts(**given)
        raise


LARGEST = sys.float_info.max  # an int may be larger


def _checked_scale(scale):
    if isinstance(scale, bool) or not isinstance(scale, (int, float)) or not 0 < scale <= LARGEST:
        raise ValueError(f"scale is {scale!r}, but must be a positive number, or None for 1 / sqrt(key size)")
    return float(scale)


def _needs_no_operator(*tensors):
    """Whether nothing that PyTorch does between a call and its kernel is of use, so that the call may skip it.

    The dispatcher enters Python three times on the way to the kernel and back, which takes longer than all else. It is
    of use to torch.compile and other tracers, to subclasses and modes, to functorch, to profilers and to derivatives in
    forward mode, which it refuses, and to views of numbers with the other sign, as conj().imag is.
    """
    if _is_compiling() or _is_tracing() or _dispatch_modes() or _function_modes():
        return False
    if _innermost_transform() is not None or _is_profiled() or forward_ad._current_level >= 0:
        return False
    first = tensors[0]
    if not (first.is_cuda or first.is_cpu):
        return False
    for x in tensors:
        if type(x) not in _plain or _is_wrapped(x) or x.is_neg():
            return False
    return True


def _refuse_other_layouts(**tensors):
    """Sparse, nested and other tensors that are not one array, of which PyTorch says only what is wrong inside of it."""
    if _is_compiling():  # such tensors are refused when the compiled code runs the operator
        return
    for name, x in tensors.items():
        if x is not None and (x.is_nested or x.layout is not torch.strided):
            raise ValueError(f"{name} is {'nested' if x.is_nested else x.layout}, but must be a dense tensor; make it "
                             f"one by {name}{'.to_padded_tensor(0)' if x.is_nested else '.to_dense()'}")


_plain = (Tensor, Parameter)
_is_compiling = torch.compiler.is_compiling
_is_tracing = torch._C._is_tracing
_dispatch_modes, _function_modes = torch._C._len_torch_dispatch_stack, torch._C._len_torch_function_stack
_functorch = torch._C._functorch
_innermost_transform = _functorch.peek_interpreter_stack
_is_wrapped = _functorch.is_functorch_wrapped_tensor  # even by a transform that has ended
_is_profiled = torch._C._autograd._profiler_enabled
# True for a batch of torch.autograd.grad(is_grads_batched=True), which is not functorch's.
_is_batched = getattr(_functorch, "is_legacy_batchedtensor", None) or (
    lambda x: torch._C._dispatch_keys(x).has(torch._C.DispatchKey.Batched))


def _plain_apply(function):
    """function.apply without its search for functorch's transforms, a third of its time: _needs_no_operator has searched."""
    return super(torch.autograd.Function, function).apply


def _below_autograd(operator, *args):
    with torch._C._AutoDispatchBelowAutograd():
        return operator(*args)


def _within_forward(operator, *args):
    """_below_autograd in the forward of a Function, which turns autograd off: for transforms further out as well."""
    if _innermost_transform() is None:
        return _below_autograd(operator, *args)
    with torch.enable_grad(), forward_ad._set_fwd_grad_enabled(True):
        return _below_autograd(operator, *args)


@functools.lru_cache(maxsize=None)
def _of_one_level(function):
    """The Function for one level of torch.func's transforms, as PyTorch makes them of Functions with setup_context."""
    members = {name: staticmethod(getattr(function, name)) for name in ("forward", "backward")}
    return type(function.__name__, (torch.autograd.function._SingleLevelFunction,), members)


def _apply(function, *args):
    if _innermost_transform() is None:
        return function.apply(*args)
    # The dispatcher is at one transform's level, and reaches the next from function.forward.
    before = _functorch.get_single_level_autograd_function_allowed()
    _functorch.set_single_level_autograd_function_allowed(True)
    try:
        return _of_one_level(function).apply(*args)
    finally:
        _functorch.set_single_level_autograd_function_allowed(before)


def _has_tangent(x):
    return isinstance(x, Tensor) and forward_ad.unpack_dual(x).tangent is not None


def _of_autocast(operator, device):
    """The operator under autocast: q, k and v, its first three tensors, and a table of labels, its fifth, are cast."""
    key = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, f"Autocast{device}"))

    def kernel(*args):
        cast = _autocast(device.lower(), *args)
        with torch._C._ExcludeDispatchKeyGuard(key):  # autocast is off within
            return operator(*(new if at < 3 or at == 4 else old for at, (old, new) in enumerate(zip(args, cast))))

    return kernel


def _differentiable(operator, function):
    """The operator where autograd is on: by `function` if a gradient may be asked for."""

    def kernel(*args):
        # The gradient of a tensor is not asked for in forward mode, so its derivative would silently be 0.
        if forward_ad._current_level >= 0 and torch._C._is_fwd_grad_enabled() and any(map(_has_tangent, args)):
            raise NotImplementedError(
                "longstride's operators have gradients in reverse mode only (backward, "
                "torch.autograd.grad), but a derivative in forward mode is asked for; use torch.func.vjp or jacrev "
                "instead of jvp or jacfwd, or an attention that is written in PyTorch's own operators")
        if torch.is_grad_enabled() and any(isinstance(x, Tensor) and x.requires_grad for x in args):
            return _apply(function, *args)
        return _below_autograd(operator, *args)

    return kernel


def define(name, inputs, settings, run):
    """Defines the operators longstride::NAME and longstride::NAME_backward of tensors and settings, a text and others.
    `run` is a module that computes them. The first result is o, the second, which has no gradient, what backward needs
    besides; the others have gradients. Returns the operator with gradients without the dispatcher, as a function of the
    tensors and settings, one argument, as each takes time."""
    kept, *others = run.KEPT
    douts = ", ".join(f"Tensor d{what}" for what in ("out", *others))
    _operators.define(f"{name}({inputs}, {settings}) -> ({', '.join(['Tensor'] * (2 + len(others)))})")
    _operators.define(f"{name}_backward({douts}, {inputs}, Tensor o, Tensor {kept}, {settings}) -> "
                      f"({', '.join(['Tensor'] * run.GRADIENTS)})")
    forward, backward = (getattr(torch.ops.longstride, name + which) for which in ("", "_backward"))
    tensor_count, dout_count = inputs.count("Tensor"), 1 + len(others)
    ungiven = (None,) * (tensor_count - run.GRADIENTS)
    ungiven_settings = (None,) * (1 + settings.count(","))

    class Eager(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *args):
            *tensors, how = args
            how = run.keeping(*how)
            found = run.forward(*tensors, *how)
            ctx.save_for_backward(*tensors, *found[:2])
            ctx.how = how
            return run.results(found)

        @staticmethod
        def backward(ctx, *douts):
            saved = ctx.saved_tensors
            args = (*douts, *saved, *ctx.how)
            # The operator refuses a second derivative.
            if torch.is_grad_enabled() or not _needs_no_operator(*douts) or any(map(_is_batched, douts)):
                return *run.in_their_types(saved, backward(*args)), *ungiven, None
            return *run.in_their_types(saved, run.backward(*args)), *ungiven, None

    class Differentiable(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *args):
            tensors, ctx.how = args[:tensor_count], run.keeping(*args[tensor_count:])
            found = _within_forward(forward, *tensors, *ctx.how)
            ctx.save_for_backward(*tensors, *found[:2])
            ctx.mark_non_differentiable(found[1])
            return tuple(found)

        @staticmethod
        def backward(ctx, dout, _, *douts):
            saved = ctx.saved_tensors
            found = backward(dout, *douts, *saved, *ctx.how)
            return *run.in_their_types(saved, found), *ungiven, *ungiven_settings

    class Backward(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *args):
            return _within_forward(backward, *args)

        @staticmethod
        def backward(ctx, *_):
            raise RuntimeError(f"longstride.{name} has gradients of the first order only, but one of a higher order is "
                               "asked for; take it of an attention that is written in PyTorch's own operators")

    for device in ("CPU", "CUDA"):
        _operators.impl(name, run.forward, device)
        _operators.impl(f"{name}_backward", run.checked_backward, device)
    if name in ("attention", "bounded_attention"):
        for device in ("CPU", "CUDA"):
            _operators.impl(name, _of_autocast(forward, device), f"Autocast{device}")
    _operators.impl(name, _differentiable(forward, Differentiable), "Autograd")
    _operators.impl(f"{name}_backward", _differentiable(backward, Backward), "Autograd")

    @torch.library.register_fake(f"longstride::{name}", lib=_operators)
    def _(*args):
        run.check(*run.properties(*args[:tensor_count]))
        return run.empty_results(*args)

    @torch.library.register_fake(f"longstride::{name}_backward", lib=_operators)
    def _(*args):
        q, k, v, *parameters = args[dout_count:dout_count + tensor_count]
        run.check(*run.properties(q, k, v, *parameters))
        run.check_backward(*args)
        return *(attention_run.empty(x, x.shape[3]) for x in (q, k, v)), *run.gradients_of(q, parameters)

    return _plain_apply(Eager)


_eager_attention = define("attention", "Tensor q, Tensor k, Tensor v", "str pattern, float scale", attention_run)
_eager_bounded = define("bounded_attention", "Tensor q, Tensor k, Tensor v, Tensor? sink, Tensor? table, Tensor? begin, "
                        "Tensor? end, Tensor? key_begin, Tensor? keys, Tensor? query_groups, Tensor? key_groups",
                        "str pattern, float scale", bounded_run)
