#!/usr/bin/env python3
"""Times longstride.attention on one GPU: what PyTorch adds on the host, and the kernels next to FlexAttention.

    PYTHONPATH=launch/python LONGSTRIDE_ATTENTION_LIBRARY=LIB \\
        launch/scripts/peers/attention_op.py [--most-us 20] [--host]

The first table has microseconds of the host per call: of the C function alone, which is what `bench attention` calls,
and of the operator with its tensors, plan, autograd and checks. Exits with 1 if the operator takes over --most-us
longer than the C function. --host: only that; it also runs without a GPU. The second table has medians of milliseconds
on the GPU in bf16, forward and forward and backward; FlexAttention is compiled, with the same pattern as its mask.
"""
import argparse
import statistics
import sys
import time

import torch

import longstride
from longstride import attention_op, library

P = longstride.Pattern
# name, batch, heads, n, size, pattern, FlexAttention's mask
shapes = [
    ("dense", 2, 8, 12288, 64, P(), lambda b, h, i, j: i >= j),
    ("local", 2, 8, 12288, 64, P(parts=["local"], stride=128), lambda b, h, i, j: (i >= j) & (i - j <= 128)),
    ("strided", 2, 8, 12288, 64, P(parts=["local", "column"], integration="merged", stride=128),
     lambda b, h, i, j: (i >= j) & ((i - j <= 128) | ((i - j) % 128 == 0))),
    ("fixed", 2, 8, 12288, 64, P(parts=["fixed_block", "fixed_summary"], integration="merged", stride=128, summary=32),
     lambda b, h, i, j: (i >= j) & ((i // 128 == j // 128) | (j % 128 >= 96))),
]


def synchronize(device):
    if device.type == "cuda":
        torch.cuda.synchronize()


def host_us(run, device, calls=50, rounds=40):
    """The fastest of the rounds, each of so few calls that the queue of the GPU does not fill."""
    best = float("inf")
    for _ in range(rounds):
        synchronize(device)
        begin = time.perf_counter()
        for _ in range(calls):
            run()
        best = min(best, (time.perf_counter() - begin) / calls)
    return 1e6 * best


def on_host(device):
    """Microseconds of the C function and of the operator, (forward, backward)."""
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    # On the CPU, which computes at once, without sequences.
    batch, heads, n, size = (1 if device.type == "cuda" else 0), 2, 256, 64
    pattern = P(parts=["local"], stride=64)
    q, k, v, dout = (torch.randn(batch, heads, n, size, device=device).to(dtype) for _ in range(4))
    o, lse = torch.ops.longstride.attention(q, k, v, pattern.text, 0.0)
    dq, dk, dv = torch.ops.longstride.attention_backward(dout, q, k, v, o, lse, pattern.text, 0.0)
    plan = library.Plan(pattern.text, batch, n, heads, size, size, 0.0, attention_op._dtypes[dtype],
                        library.CUDA if device.type == "cuda" else library.CPU)
    stream = torch.cuda.current_stream().cuda_stream if device.type == "cuda" else 0
    rows = {name: attention_op._rows(x) for name, x in dict(q=q, k=k, v=v, o=o, dout=dout, dq=dq, dk=dk, dv=dv).items()}
    space = torch.empty(max(plan.scratch(False), plan.scratch(True)), dtype=torch.uint8, device=device)
    forward = [rows[x] for x in ("q", "k", "v", "o")] + [lse.data_ptr(), space.data_ptr(), space.numel(), stream]
    backward = ([rows[x] for x in ("q", "k", "v", "o")] + [lse.data_ptr()] +
                [rows[x] for x in ("dout", "dq", "dk", "dv")] + [space.data_ptr(), space.numel(), stream])
    inputs = [x.detach().requires_grad_() for x in (q, k, v)]
    both = host_us(lambda: torch.autograd.grad(longstride.attention(*inputs, pattern), inputs, dout), device)
    learning = host_us(lambda: longstride.attention(*inputs, pattern), device)
    product = host_us(lambda: torch.autograd.grad(inputs[0] * inputs[1] * inputs[2], inputs, dout), device)
    products = host_us(lambda: inputs[0] * inputs[1] * inputs[2], device)
    return [
        ("forward", host_us(lambda: plan.forward(*forward), device),
         host_us(lambda: longstride.attention(q, k, v, pattern), device)),
        ("forward that keeps what backward needs", host_us(lambda: plan.forward(*forward), device), learning),
        ("backward operator", host_us(lambda: plan.backward(*backward), device),
         host_us(lambda: torch.ops.longstride.attention_backward(dout, q, k, v, o, lse, pattern.text, 0.0), device)),
    ], both - learning, product - products


def gpu_ms(run, rounds=30):
    """The median of rounds between events, after as many to warm up."""
    times = []
    for _ in range(2 * rounds):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        run()
        end.record()
        times.append((begin, end))
    torch.cuda.synchronize()
    return statistics.median(begin.elapsed_time(end) for begin, end in times[rounds:])


def directions(run, q, k, v, dout):
    inputs = [x.detach().requires_grad_() for x in (q, k, v)]
    with torch.no_grad():
        forward = gpu_ms(lambda: run(*inputs))
    return forward, gpu_ms(lambda: torch.autograd.grad(run(*inputs), inputs, dout))


def on_gpu():
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    flex = torch.compile(flex_attention, dynamic=False)
    print(f"\n{'pattern':10} {'Longstride':>12} {'Flex':>8} {'ratio':>6}   {'both: Longstride':>16} {'Flex':>8} "
          f"{'ratio':>6}   largest difference")
    for name, batch, heads, n, size, pattern, mask in shapes:
        q, k, v, dout = (torch.randn(batch, n, heads, size, device="cuda", dtype=torch.bfloat16).transpose(1, 2)
                         for _ in range(4))
        ours = directions(lambda q, k, v: longstride.attention(q, k, v, pattern), q, k, v, dout)
        try:
            blocks = create_block_mask(mask, None, None, n, n, device="cuda", _compile=True)
            flexible = [x.contiguous() for x in (q, k, v, dout)]
            theirs = directions(lambda q, k, v: flex(q, k, v, block_mask=blocks), *flexible)
            difference = (longstride.attention(q, k, v, pattern) - flex(*flexible[:3], block_mask=blocks)).abs().max()
            print(f"{name:10} {ours[0]:12.3f} {theirs[0]:8.3f} {theirs[0] / ours[0]:6.2f}   {ours[1]:16.3f} "
                  f"{theirs[1]:8.3f} {theirs[1] / ours[1]:6.2f}   {difference.item():.4f}")
        except Exception as error:  # FlexAttention may lack what a machine needs; our figures are still of use
            print(f"{name:10} {ours[0]:12.3f} {'':15}   {ours[1]:16.3f} {'':15}   no FlexAttention: "
                  f"{str(error).splitlines()[0]}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--most-us", type=float, default=20)
    parser.add_argument("--host", action="store_true")
    options = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() and library.has_cuda() else "cpu")
    if device.type == "cpu" and not options.host:
        sys.exit("attention_op.py: there is no GPU, or the library has no CUDA kernels; only --host works without")
    print(f"PyTorch {torch.__version__}, {torch.cuda.get_device_name() if device.type == 'cuda' else 'CPU'}")
    calls, engine, bare = on_host(device)
    print(f"{'us on the host':40} {'C':>8} {'operator':>9} {'added':>7}")
    for name, alone, operator in calls:
        print(f"{name:40} {alone:8.1f} {operator:9.1f} {operator - alone:7.1f}")
    print(f"autograd.grad alone: {engine:.1f} us with attention_backward, {bare:.1f} us of two products for comparison")
    if not options.host:
        on_gpu()
    slow = [name for name, alone, operator in calls if operator - alone > options.most_us]
    if slow:
        sys.exit(f"attention_op.py: more than {options.most_us:g} us are added to {', '.join(slow)}")


main()
