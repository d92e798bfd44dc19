"""Attention with Transformer-XL's distance term as hand-written Triton beside cuBLAS, the strongest peer of such models:

    o_i = sum_j softmax_j(scale q_i k_j + p_i T[j - i + off]) v_j    over 0 <= j - i + off < C, 0 <= j < K

The term is made by batched products whose rows are the queries 64 a + r of one r, with the table shifted by r, a view, so that
its tiles are aligned: bias[h, 63 - r, b, a, x], x = j - 64 a + off + s, s = -off mod 64. dq stores dS and P, which dk, dv and
the term's gradients read. The length of queries must be a multiple of 64.
"""
import json

import torch
import torch.nn.functional as F
import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
TILE, WIDE = 64, 128  # of queries and keys; of keys for dk and dv
TUNED = {"num_warps": 4, "num_stages": 3}


@triton.jit
def _row(i, sa, sr):  # where a query's row of the term begins, for x = j + shift
    return (63 - i % 64).to(tl.int64) * sr + (i // 64) * (sa - 64)


@triton.jit
def _place(b, h, sb, sh):
    return b.to(tl.int64) * sb + h.to(tl.int64) * sh


@triton.jit
def _fwd(Q, K, V, Bias, O, LSE, sqb, sqh, sqn, skb, skh, skn, svb, svh, svn, sbh, sbr, sbb, sba, sob, soh, son, H, N, NK, C, X,
         off, shift, scale, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    i0 = (tl.num_programs(0) - 1 - tl.program_id(0)) * BM
    bh = tl.program_id(1)
    b, h = bh // H, bh % H
    i, d, jj = i0 + tl.arange(0, BM), tl.arange(0, D), tl.arange(0, BN)
    q = tl.load(Q + _place(b, h, sqb, sqh) + i[:, None] * sqn + d[None, :])
    K += _place(b, h, skb, skh)
    V += _place(b, h, svb, svh)
    row = Bias + _place(b, h, sbb, sbh) + shift + _row(i, sba, sbr)
    acc = tl.zeros([BM, D], tl.float32)
    m = tl.full([BM], float("-inf"), tl.float32)
    l = tl.zeros([BM], tl.float32)
    lo = tl.maximum(i0 - off, 0) // BN * BN
    hi = tl.minimum(NK, i0 + BM - 1 - off + C)
    for j0 in range(lo, hi, BN):
        j = j0 + jj
        inside = j[None, :] < NK
        k = tl.load(K + j[None, :] * skn + d[:, None], mask=inside, other=0.0)
        s = tl.dot(q, k)
        c = j[None, :] - i[:, None] + off
        ok = (c >= 0) & (c < C) & inside
        bias = tl.load(row[:, None] + j[None, :], mask=ok, other=0.0).to(tl.float32)
        s = tl.where(ok, s * (scale * LOG2E) + bias * LOG2E, float("-inf"))
        m2 = tl.maximum(m, tl.max(s, 1))
        ms = tl.where(m2 == float("-inf"), 0.0, m2)
        p = tl.exp2(s - ms[:, None])
        alpha = tl.exp2(m - ms)
        l = l * alpha + tl.sum(p, 1)
        v = tl.load(V + j[:, None] * svn + d[None, :], mask=j[:, None] < NK, other=0.0)
        acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None])
        m = m2
    tl.store(O + _place(b, h, sob, soh) + i[:, None] * son + d[None, :], (acc / l[:, None]).to(O.dtype.element_ty))
    tl.store(LSE + bh.to(tl.int64) * N + i, m + tl.log2(l))


@triton.jit
def _delta(O, DO, Delta, sob, soh, son, sdb, sdh, sdn, H, N, D: tl.constexpr, BM: tl.constexpr):
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    bh = tl.program_id(1)
    b, h = bh // H, bh % H
    d = tl.arange(0, D)
    o = tl.load(O + _place(b, h, sob, soh) + i[:, None] * son + d[None, :])
    do = tl.load(DO + _place(b, h, sdb, sdh) + i[:, None] * sdn + d[None, :])
    tl.store(Delta + bh.to(tl.int64) * N + i, tl.sum(o.to(tl.float32) * do.to(tl.float32), 1))


@triton.jit
def _dq(Q, K, V, Bias, DO, LSE, Delta, DQ, DBias, P, sqb, sqh, sqn, skb, skh, skn, svb, svh, svn, sbh, sbr, sbb, sba, sdb, sdh,
        sdn, H, N, NK, C, X, off, shift, scale, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    i0 = (tl.num_programs(0) - 1 - tl.program_id(0)) * BM
    bh = tl.program_id(1)
    b, h = bh // H, bh % H
    i, d, jj = i0 + tl.arange(0, BM), tl.arange(0, D), tl.arange(0, BN)
    q = tl.load(Q + _place(b, h, sqb, sqh) + i[:, None] * sqn + d[None, :])
    do = tl.load(DO + _place(b, h, sdb, sdh) + i[:, None] * sdn + d[None, :])
    lse = tl.load(LSE + bh.to(tl.int64) * N + i)
    delta = tl.load(Delta + bh.to(tl.int64) * N + i)
    K += _place(b, h, skb, skh)
    V += _place(b, h, svb, svh)
    at = _place(b, h, sbb, sbh) + shift + _row(i, sba, sbr)
    dq = tl.zeros([BM, D], tl.float32)
    lo = tl.maximum(i0 - off, 0) // BN * BN
    hi = tl.minimum(NK, i0 + BM - 1 - off + C)
    # The products behind read all x of these rows, j from 64 (i // 64) - shift on: zeros before the keys and behind them.
    first, after = i0 // 64 * 64 - shift, (i0 + BM - 1) // 64 * 64 - shift + X
    zeros = tl.zeros([BM, BN], DBias.dtype.element_ty)
    for j0 in range(first, tl.minimum(lo, after), BN):
        j = j0 + jj
        x = j[None, :] - (i // 64 * 64)[:, None] + shift
        tl.store(DBias + at[:, None] + j[None, :], zeros, mask=(x >= 0) & (x < X) & (j[None, :] < lo))
    stop = lo + (tl.maximum(hi - lo, 0) + BN - 1) // BN * BN
    for j0 in range(stop, after, BN):
        j = j0 + jj
        x = j[None, :] - (i // 64 * 64)[:, None] + shift
        tl.store(DBias + at[:, None] + j[None, :], zeros, mask=(x >= 0) & (x < X))
    for j0 in range(lo, hi, BN):
        j = j0 + jj
        inside = j[None, :] < NK
        k = tl.load(K + j[None, :] * skn + d[:, None], mask=inside, other=0.0)
        v = tl.load(V + j[None, :] * svn + d[:, None], mask=inside, other=0.0)
        s = tl.dot(q, k)
        dp = tl.dot(do, v)
        c = j[None, :] - i[:, None] + off
        x = j[None, :] - (i // 64 * 64)[:, None] + shift
        ok = (c >= 0) & (c < C) & inside
        bias = tl.load(Bias + at[:, None] + j[None, :], mask=ok, other=0.0).to(tl.float32)
        p = tl.where(ok, tl.exp2(s * (scale * LOG2E) + bias * LOG2E - lse[:, None]), 0.0)
        ds = (p * (dp - delta[:, None])).to(q.dtype)
        there = (x >= 0) & (x < X)
        tl.store(DBias + at[:, None] + j[None, :], ds, mask=there)
        tl.store(P + at[:, None] + j[None, :], p.to(q.dtype), mask=there)
        dq = tl.dot(ds, tl.trans(k), dq)
    at_q = b.to(tl.int64) * N * H * D + i[:, None] * (H * D) + h * D + d[None, :]
    tl.store(DQ + at_q, (dq * scale).to(DQ.dtype.element_ty))


@triton.jit
def _dkdv(Q, DO, DK, DV, DBias, P, sqb, sqh, sqn, sbh, sbr, sbb, sba, sdb, sdh, sdn, H, N, NK, C, off, shift, scale,
          D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    j0 = tl.program_id(0) * BN
    bh = tl.program_id(1)
    b, h = bh // H, bh % H
    j, d, ii = j0 + tl.arange(0, BN), tl.arange(0, D), tl.arange(0, BM)
    Q += _place(b, h, sqb, sqh)
    DO += _place(b, h, sdb, sdh)
    base = _place(b, h, sbb, sbh) + shift
    dk = tl.zeros([BN, D], tl.float32)
    dv = tl.zeros([BN, D], tl.float32)
    lo = tl.maximum(j0 + off - C + 1, 0) // BM * BM
    hi = tl.minimum(N, j0 + BN + off)
    for i0 in range(lo, hi, BM):
        i = i0 + ii
        q = tl.load(Q + i[:, None] * sqn + d[None, :])
        do = tl.load(DO + i[:, None] * sdn + d[None, :])
        at = base + _row(i, sba, sbr)
        c = j[None, :] - i[:, None] + off
        ok = (c >= 0) & (c < C) & (j[None, :] < NK)
        p = tl.load(P + at[:, None] + j[None, :], mask=ok, other=0.0)
        ds = tl.load(DBias + at[:, None] + j[None, :], mask=ok, other=0.0)
        dv = tl.dot(tl.trans(p), do, dv)
        dk = tl.dot(tl.trans(ds), q, dk)
    at_k = b.to(tl.int64) * NK * H * D + j[:, None] * (H * D) + h * D + d[None, :]
    tl.store(DK + at_k, (dk * scale).to(DK.dtype.element_ty), mask=j[:, None] < NK)
    tl.store(DV + at_k, dv.to(DV.dtype.element_ty), mask=j[:, None] < NK)


def rows(t):
    return t if t.stride(-1) == 1 else t.contiguous()


def layout(off, c):
    s = -off % 64
    return s, -(-(c + 63 + s) // 64) * 64


def windows(padded, x):
    """(H, x + 63, D) as (H, 64, x, D): 64 views, each a row further."""
    heads, y, size = padded.shape
    return padded.as_strided((heads, 64, x, size), (y * size, size, size, 1))


def by_residue(p):
    """(B, H, n, D) as (H, 64, B n / 64, D), residues from 63 down."""
    batch, heads, n, size = p.shape
    return p.view(batch, heads, n // 64, 64, size).flip(3).permute(1, 3, 0, 2, 4).reshape(heads, 64, batch * n // 64, size)


def joined(batch, n, heads, size, like):
    """New rows (batch, heads, n, size), the heads of a position side by side."""
    return like.new_empty(batch, n, heads, size).transpose(1, 2)


def term(batch, heads, n, x, like):
    return like.new_empty(heads, 64, batch, n // 64, x)


Tensor = torch.Tensor


@torch.library.custom_op("peer::relative_forward", mutates_args=())
def forward(q: Tensor, k: Tensor, v: Tensor, position: Tensor, table: Tensor, off: int,
            scale: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    q, k, v = rows(q), rows(k), rows(v)
    (batch, heads, n, size), keys, c = q.shape, k.shape[2], table.shape[1]
    s, x = layout(off, c)
    padded = F.pad(table, (0, 0, 63 + s, x - c - s))
    bias, shifted = term(batch, heads, n, x, q), windows(padded, x)
    for h in range(heads):
        torch.bmm(position[h], shifted[h].transpose(1, 2), out=bias[h].view(64, batch * n // 64, x))
    o, lse = joined(batch, n, heads, size, q), q.new_empty(batch, heads, n, dtype=torch.float32)
    _fwd[(triton.cdiv(n, TILE), batch * heads)](
        q, k, v, bias, o, lse, *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *bias.stride()[:4], *o.stride()[:3], heads, n,
        keys, c, x, off, off + s, scale, D=size, BM=TILE, BN=TILE, **TUNED)
    return o, lse, bias, padded


@forward.register_fake
def _(q, k, v, position, table, off, scale):
    (batch, heads, n, size), (_, x) = q.shape, layout(off, table.shape[1])
    return (joined(batch, n, heads, size, q), q.new_empty(batch, heads, n, dtype=torch.float32), term(batch, heads, n, x, q),
            table.new_empty(heads, x + 63, table.shape[-1]))


@torch.library.custom_op("peer::relative_backward", mutates_args=())
def backward(do: Tensor, q: Tensor, k: Tensor, v: Tensor, position: Tensor, padded: Tensor, bias: Tensor, o: Tensor,
             lse: Tensor, c: int, off: int, scale: float) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    q, k, v, do = rows(q), rows(k), rows(v), rows(do)
    (batch, heads, n, size), keys, (s, x) = q.shape, k.shape[2], layout(off, c)
    delta, dq = torch.empty_like(lse), joined(batch, n, heads, size, q)
    dk, dv = (joined(batch, keys, heads, size, q) for _ in range(2))
    ds, p = torch.empty_like(bias), torch.empty_like(bias)
    _delta[(triton.cdiv(n, 64), batch * heads)](o, do, delta, *o.stride()[:3], *do.stride()[:3], heads, n, D=size, BM=64)
    _dq[(triton.cdiv(n, TILE), batch * heads)](
        q, k, v, bias, do, lse, delta, dq, ds, p, *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *bias.stride()[:4],
        *do.stride()[:3], heads, n, keys, c, x, off, off + s, scale, D=size, BM=TILE, BN=TILE, **TUNED)
    _dkdv[(triton.cdiv(keys, WIDE), batch * heads)](
        q, do, dk, dv, ds, p, *q.stride()[:3], *bias.stride()[:4], *do.stride()[:3], heads, n, keys, c, off, off + s, scale,
        D=size, BM=TILE, BN=WIDE, **TUNED)
    shifted, dposition, wide = windows(padded, x), torch.empty_like(position), position.shape[-1]
    dtables = q.new_empty(heads, 64, x, wide)
    for h in range(heads):
        gradient = ds[h].view(64, batch * n // 64, x)
        torch.bmm(gradient, shifted[h], out=dposition[h])
        torch.bmm(gradient.transpose(1, 2), position[h], out=dtables[h])
    y = x + 63  # the sum of 64 tables, each a row further
    further = F.pad(dtables, (0, 0, 0, 64)).view(heads, 64 * (y + 1), wide)[:, : 64 * y].reshape(heads, 64, y, wide)
    return dq, dk, dv, dposition, further.float().sum(1)[:, 63 + s : 63 + s + c].to(q.dtype).contiguous()


@backward.register_fake
def _(do, q, k, v, position, padded, bias, o, lse, c, off, scale):
    (batch, heads, n, size), keys = q.shape, k.shape[2]
    return (joined(batch, n, heads, size, q), joined(batch, keys, heads, size, q), joined(batch, keys, heads, size, q),
            torch.empty_like(position), q.new_empty(heads, c, position.shape[-1]))


def keep(ctx, inputs, output):
    q, k, v, position, table, off, scale = inputs
    o, lse, bias, padded = output
    ctx.save_for_backward(q, k, v, position, padded, bias, o, lse)
    ctx.rest = table.shape[1], off, scale


forward.register_autograd(lambda context, do, *_: (*backward(do, *context.saved_tensors, *context.rest), None, None),
                          setup_context=keep)


def attention(q, k, v, position, table, off, scale):
    """position: (B, H, n, D), scaled; table: (H, C, D), by c = j - i + off."""
    if q.shape[2] % 64:
        raise ValueError(f"{q.shape[2]} queries; their number must be a multiple of 64")
    return forward(q, k, v, by_residue(position), table.contiguous(), off, scale)[0]


def dense(q, k, v, position, table, off, scale):
    i, j = torch.arange(q.shape[2], device=q.device)[:, None], torch.arange(k.shape[2], device=q.device)
    c = j - i + off
    by_key = torch.gather(position @ table.mT, 3, c.clamp(0, table.shape[1] - 1).expand(*q.shape[:3], -1))
    return (scale * q @ k.mT + by_key).masked_fill((c < 0) | (c >= table.shape[1]), -torch.inf).softmax(-1) @ v


def check():
    """Outputs and gradients next to the definition in float64; without a GPU with TRITON_INTERPRET=1."""
    torch.manual_seed(0)
    on_gpu = torch.cuda.is_available()
    device, dtype, size = ("cuda", torch.bfloat16, 64) if on_gpu else ("cpu", torch.float32, 16)
    cases = [(2, 2, 128, 192, 192, 127), (1, 2, 192, 192, 128, 127), (1, 1, 128, 224, 96, 0)]
    cases += [(2, 4, 512, 1024, 1024, 511), (3, 2, 1536, 1536, 320, 319)] if on_gpu else []
    holds = True
    for batch, heads, n, keys, c, off in cases:
        shapes = [(batch, heads, n, size), (batch, heads, keys, size), (batch, heads, keys, size), (batch, heads, n, size)]
        tensors = [torch.randn(shape, device=device, dtype=dtype, requires_grad=True) for shape in [*shapes, (heads, c, size)]]
        exact = [t.detach().double().requires_grad_() for t in tensors]
        gradient, results = torch.randn(shapes[0], device=device, dtype=dtype), []
        for run, given in ((attention, tensors), (dense, exact)):
            q, k, v, position, table = given
            o = run(q, k, v, position * 0.125, table, off, 0.125)
            results.append((o, *torch.autograd.grad(o, given, gradient.to(o.dtype))))
        errors = {name: ((x.double() - y).norm() / y.norm()).item() for name, x, y in
                  zip(("o", "dq", "dk", "dv", "dposition", "dtable"), *results)}
        holds = holds and max(errors.values()) < (2e-2 if on_gpu else 1e-5)
        print(json.dumps({"case": [batch, heads, n, keys, c, off], "holds": holds, **errors}), flush=True)
    return 0 if holds else 1
