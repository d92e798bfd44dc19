"""Times longstride.attention on one GPU: what PyTorch adds on the host, and the kernels next to other libraries'.

    PYTHONPATH=launch/python LONGSTRIDE_ATTENTION_LIBRARY=LIB tests/peers/run.py op [--most-us 20] [--host | --only NAME[,NAME]]

The first table has microseconds of the host per call: of the C function alone, which is what `bench attention` calls,
and of longstride.attention with its tensors, plan, autograd and checks. Exits with 1 if the operator takes over --most-us
longer than the C function. --host: only that; it also runs without a GPU. The second table has medians of milliseconds
on the GPU in bf16, forward and forward and backward, in turn with the strongest peers that are installed: FlashAttention 4
(the package flash-attn-4), cuDNN, FlexAttention with the lists of blocks and the gathered summaries of systems/sparse.py, and
flash-linear-attention. Results and gradients may differ by 0.05 of their norms. --only: cases whose names begin so.
"""
import argparse
import itertools
import sys

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import BlockMask

import longstride
from attention import etc, global_rows, linear
from attention.flex import compiled
from frame.timing import in_turn, wall
from longstride import attention_run, library
from systems.sparse import fixed_mask, window_mask, with_summaries

P = longstride.Pattern


def host_us(run, calls=50, rounds=40):
    """The fastest of the rounds, each of so few calls that the queue of the GPU does not fill."""
    def all_calls():
        for _ in range(calls):
            run()

    return min(1e3 * wall(all_calls) / calls for _ in range(rounds))


def on_host(device):
    """Microseconds of the C function and of the operator, (forward, backward)."""
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    # On the CPU, which computes at once, without sequences.
    batch, heads, n, size = (1 if device.type == "cuda" else 0), 2, 256, 64
    pattern = P(parts=["local"], stride=64)
    q, k, v, dout = (torch.randn(batch, heads, n, size, device=device).to(dtype) for _ in range(4))
    o, lse = attention_run.forward(q, k, v, pattern.text, 0.0)
    dq, dk, dv = attention_run.backward(dout, q, k, v, o, lse, pattern.text, 0.0)
    plan = library.Plan(pattern.text, batch, n, heads, size, size, 0.0, attention_run.dtypes[dtype],
                        library.CUDA if device.type == "cuda" else library.CPU)
    stream = torch.cuda.current_stream().cuda_stream if device.type == "cuda" else 0
    rows = {name: attention_run.rows(x) for name, x in dict(q=q, k=k, v=v, o=o, dout=dout, dq=dq, dk=dk, dv=dv).items()}
    space = torch.empty(max(plan.scratch(False), plan.scratch(True)), dtype=torch.uint8, device=device)
    forward = [rows[x] for x in ("q", "k", "v", "o")] + [lse.data_ptr(), space.data_ptr(), space.numel(), stream]
    backward = ([rows[x] for x in ("q", "k", "v", "o")] + [lse.data_ptr()] +
                [rows[x] for x in ("dout", "dq", "dk", "dv")] + [space.data_ptr(), space.numel(), stream])
    inputs = [x.detach().requires_grad_() for x in (q, k, v)]
    both = host_us(lambda: torch.autograd.grad(longstride.attention(*inputs, pattern), inputs, dout))
    learning = host_us(lambda: longstride.attention(*inputs, pattern))
    product = host_us(lambda: torch.autograd.grad(inputs[0] * inputs[1] * inputs[2], inputs, dout))
    products = host_us(lambda: inputs[0] * inputs[1] * inputs[2])
    return [
        ("forward", host_us(lambda: plan.forward(*forward)),
         host_us(lambda: longstride.attention(q, k, v, pattern))),
        ("forward that keeps what backward needs", host_us(lambda: plan.forward(*forward)), learning),
        ("backward", host_us(lambda: plan.backward(*backward)),
         host_us(lambda: attention_run.backward(dout, q, k, v, o, lse, pattern.text, 0.0))),
    ], both - learning, product - products


def directions(runs, inputs, dout):
    """{name: (ms forward, ms forward and backward)}."""

    def forward(run):
        with torch.no_grad():
            run(*inputs)

    alone = in_turn({name: lambda run=run: forward(run) for name, run in runs.items()}, 10, rounds=3, warm=30, ahead=True)
    both = in_turn({name: lambda run=run: torch.autograd.grad(run(*inputs), inputs, dout) for name, run in runs.items()}, 10,
                   rounds=3, warm=30, ahead=True)
    return {name: (alone[name]["ms"], both[name]["ms"]) for name in runs}


def of_heads(run):
    """A function of (batch, n, heads, size) as one of (batch, heads, n, size)."""
    return lambda *tensors: run(*(x.transpose(1, 2) for x in tensors)).transpose(1, 2)


def flash(window=(None, None), causal=True):
    """FlashAttention 4 for tensors (batch, n, heads, size), where it is installed."""
    from flash_attn.cute.interface import flash_attn_func

    def run(q, k, v):
        result = flash_attn_func(q, k, v, causal=causal, window_size=window)
        return result[0] if isinstance(result, tuple) else result

    return run


def flash_of_documents(ends):
    """The same for one sequence of documents, whose cumulative lengths are given."""
    from flash_attn.cute.interface import flash_attn_varlen_func

    longest = int(ends.diff().max())

    def run(q, k, v):
        result = flash_attn_varlen_func(q[0], k[0], v[0], cu_seqlens_q=ends, cu_seqlens_k=ends, max_seqlen_q=longest,
                                        max_seqlen_k=longest, causal=True)
        return (result[0] if isinstance(result, tuple) else result)[None]

    return run


def documents(n, count):
    """Cumulative lengths of documents of random lengths."""
    cuts = torch.randperm(n - 1, generator=torch.Generator().manual_seed(5))[:count - 1] + 1
    return torch.cat([torch.zeros(1), cuts.sort().values, torch.full((1,), n)]).int().cuda()


def block_mask(n, count, block):
    """Every block of queries sees `count` blocks of keys: the three around it, and others at random. None is masked."""
    blocks, generator = n // block, torch.Generator().manual_seed(6)
    own = torch.arange(blocks)[:, None]
    draw = torch.rand(blocks, blocks, generator=generator)
    draw[(own - torch.arange(blocks)).abs() <= 1] = 2
    keys = torch.zeros(1, 1, blocks, blocks, dtype=torch.int32, device="cuda")
    keys[..., :count] = draw.topk(count).indices.sort().values
    counts = torch.full((1, 1, blocks), count, dtype=torch.int32, device="cuda")
    return BlockMask.from_kv_blocks(torch.zeros_like(counts), torch.zeros_like(keys), counts, keys, BLOCK_SIZE=block,
                                    seq_lengths=(n, n))


def ours(**arguments):
    return of_heads(lambda q, k, v: longstride.attention(q, k, v, **arguments))


def cudnn(run):
    def within(*tensors):
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            return run(*tensors)

    return within


def causal(q, k, v):
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def columns(run, stride):
    """Causal attention of every residue class, whose rows are a view of q, k and v: (batch n / stride, stride heads)."""

    def of_classes(*tensors):
        batch, n, heads, size = tensors[0].shape
        o = run(*(x.view(batch, n // stride, stride * heads, size) for x in tensors))
        return o.reshape(batch, n, heads, size)

    return of_classes


def flex(mask, backend, keys=lambda x: x, mode=None):
    attend = compiled(backend, mode)
    return of_heads(lambda q, k, v: attend(q, keys(k), keys(v), None, mask, None))


def seen_cases():
    """The same as cases() for what a query may see besides its pattern. Those without it are called `without ...`: their
    results differ."""
    shape, n = (1, 65536, 8, 64), 65536
    window = dict(pattern=P(parts=["local"], window=512))
    ends = documents(n, 24)
    last = torch.arange(1, n + 1, dtype=torch.int32, device="cuda").view(1, 1, n)
    yield "documents, window 512", shape, dict(**window, groups=ends), {"without documents": lambda: ours(**window)}
    yield "documents", shape, dict(pattern=P(), groups=ends), {"FA4": lambda: flash_of_documents(ends)}
    yield "intervals of 512", shape, dict(pattern=P(direction="both"), bounds=((last - 512).clamp(min=0), last)), {
        "by closed form": lambda: ours(**window)}
    yield "both directions, 513", shape, dict(pattern=P(parts=["local"], window=513, direction="both")), {
        "FA4": lambda: flash((256, 256), causal=False)}
    mask = block_mask(n, 8, 64)
    yield "lists of 8 x 64", shape, dict(pattern=P(direction="both"), lists=longstride.lists_of(mask)), {
        # Its one form of the backward pass that is not tuned wants blocks of 128.
        "Flex": lambda: flex(mask, "TRITON", mode="max-autotune-no-cudagraphs")}
    yield "sink, window 512", shape, dict(**window, sink=torch.zeros(8, device="cuda")), {
        "without a sink": lambda: ours(**window)}
    yield "window 512, a key head", shape, dict(**window, key_heads=1), {"FA4": lambda: flash((511, 0))}
    yield "one query", (8, 65536, 8, 64), dict(pattern=P(), queries=1), {"FA4": flash}
    blocks = P(parts=["shifted_block"], blocks=2, shifts=[10, 2], direction="both")
    yield "two blocks", (32, 1024, 12, 64), dict(pattern=blocks), {
        "without blocks, FA4": lambda: flash(causal=False)}


def tensors_of(shape, queries=None, key_heads=None):
    """q, k and v of (batch, n, heads, size), with fewer queries or key heads where these are given."""
    batch, n, heads, size = shape
    keys = (batch, n, key_heads or heads, size)
    return [torch.randn(x, device="cuda", dtype=torch.bfloat16) for x in ((batch, queries or n, heads, size), keys, keys)]


def attention_cases():
    """Name, shape (batch, n, heads, size), arguments of longstride.attention and tensors_of, and what makes the peers."""
    yield from seen_cases()
    for shape in ((4, 12288, 8, 64), (4, 12288, 16, 32), (4, 12288, 4, 128)):
        yield "dense", shape, dict(pattern=P()), {"FA4": flash, "cuDNN": lambda: of_heads(cudnn(causal))}
    for stride, batch, n in ((128, 4, 12288), (512, 1, 262144)):
        for heads, size in ((8, 64), (16, 32), (4, 128)):
            yield f"local {stride}", (batch, n, heads, size), dict(pattern=P(parts=["local"], stride=stride)), {
                "FA4": lambda stride=stride: flash((stride, 0)),
                "Flex": lambda stride=stride, n=n: flex(window_mask(n, stride, torch.device("cuda")), "TRITON")}
    yield "column 512", (1, 262144, 8, 64), dict(pattern=P(parts=["column"], stride=512)), {
        "FA4": lambda: columns(flash(), 512), "cuDNN": lambda: columns(of_heads(cudnn(causal)), 512)}
    fixed = P(parts=["fixed_block", "fixed_summary"], integration="merged", stride=128, summary=32)

    def gathered(backend):
        return flex(fixed_mask(12288, 128, 32, torch.device("cuda")), backend, lambda t: with_summaries(t, 128, 32, False))

    yield "fixed", (4, 12288, 8, 64), dict(pattern=fixed), {"Flex, FA4": lambda: gathered("FLASH"), "Flex": lambda: gathered("TRITON")}


def cases(only):
    """Name, tensors, our function of them and the peers' makers, of the cases whose names begin so."""
    names = []
    for name, shape, arguments, peers in attention_cases():
        names.append(name)
        if name.startswith(only):
            made = {key: arguments.pop(key) for key in ("queries", "key_heads") if key in arguments}
            yield f"{name} {shape}", tensors_of(shape, **made), ours(**arguments), peers
    for name, tensors, run, peers in itertools.chain(etc.cases(), global_rows.cases(), linear.cases()):
        names.append(name)
        if name.startswith(only):
            yield name, tensors, run, peers
    if not any(name.startswith(only) for name in names):
        sys.exit(f"run.py op: --only {','.join(only)} names no case; there are {', '.join(dict.fromkeys(names))}")


def distance(these, those):
    """The largest of the tensors' differences, each as a part of its own size."""
    return max(((a.float() - b.float()).norm() / a.float().norm()).item() for a, b in zip(these, those))


def on_gpu(only):
    """Times both directions of every case and peer. Returns whether all peers that ran agree with our results."""
    print(f"\n{'ms, and how often ours fits in':38} {'forward':>8} {'ratio':>6} {'both':>8} {'ratio':>6}  differs by")
    torch._dynamo.config.recompile_limit = 256  # every mask, and each direction, compiles FlexAttention anew
    agree = True
    for title, tensors, run, peers in cases(only):
        inputs = [x.requires_grad_() for x in tensors]
        runs, said = {"ours": run}, {}
        o = run(*inputs)
        dout = torch.randn_like(o)
        results = [o.detach(), *torch.autograd.grad(o, inputs, dout)]
        for peer, make in peers.items():
            try:
                other = make()
                theirs = other(*inputs)
                said[peer] = distance(results, [theirs.detach(), *torch.autograd.grad(theirs, inputs, dout)])
                runs[peer] = other
            except Exception as error:  # a peer may lack what a machine needs; the other figures are still of use
                print(f"  {peer}: {str(error).splitlines()[0] if str(error) else repr(error)}")
        times = directions(runs, inputs, dout)
        own = times.pop("ours")
        print(f"{title:38} {own[0]:8.3f} {'':6} {own[1]:8.3f}", flush=True)
        for peer, theirs in times.items():
            agree = agree and (said[peer] < 0.05 or peer.startswith("without"))
            print(f"  {peer:36} {theirs[0]:8.3f} {theirs[0] / own[0]:6.2f} {theirs[1]:8.3f} {theirs[1] / own[1]:6.2f}  "
                  f"{said[peer]:.4f}", flush=True)
        torch.cuda.empty_cache()
    return agree


def main(arguments):
    parser = argparse.ArgumentParser(prog="run.py op", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most-us", type=float, default=20, help="that a call may take longer than the C function")
    parser.add_argument("--host", action="store_true", help="only the table of the host")
    parser.add_argument("--only", default="", help="cases of the second table, by the beginning of their names")
    options = parser.parse_args(arguments)
    device = torch.device("cuda" if torch.cuda.is_available() and library.has_cuda() else "cpu")
    if device.type == "cpu" and not options.host:
        sys.exit("run.py op: there is no GPU, or the library has no CUDA kernels; only --host works without")
    print(f"PyTorch {torch.__version__}, {torch.cuda.get_device_name() if device.type == 'cuda' else 'CPU'}")
    calls, engine, bare = on_host(device)
    print(f"{'us on the host':40} {'C':>8} {'operator':>9} {'added':>7}")
    for name, alone, operator in calls:
        print(f"{name:40} {alone:8.1f} {operator:9.1f} {operator - alone:7.1f}")
    print(f"autograd.grad alone: {engine:.1f} us with attention_backward, {bare:.1f} us of two products for comparison")
    agree = options.host or on_gpu(tuple(options.only.split(",")))
    slow = [name for name, alone, operator in calls if operator - alone > options.most_us]
    if slow:
        sys.exit(f"run.py op: more than {options.most_us:g} us are added to {', '.join(slow)}")
    if not agree:
        sys.exit("run.py op: a peer's results differ by 0.05 and more")
    return 0
