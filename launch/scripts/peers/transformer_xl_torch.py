#!/usr/bin/env python3
"""Times training steps of Transformer-XL (Dai et al. 2019) as strong PyTorch.

    transformer_xl_torch.py [--layers 12] [--width 512] [--heads 8] [--inner 2048] [--segment 512] [--memory 512]
                            [--batch 192] [--attention matrix|sdpa|flex|all] [--steps 6] [--graph 0|1] [--ckpt 0|1]

The model of recipes/survey/enwik8-transformer-xl-12.yaml: post-norm, ReLU, tied output with a bias, biases u and v shared
by all layers, memories projected anew in every step. bf16 autocast with the residual stream and memories in bf16, no
dropout. The block is compiled, AdamW is fused, and the whole step is one CUDA graph (--graph 0: without). The distance
term, B[i, j] = (q_i + v) W_r R_{i - j}, is added to scores in three ways, of which `all` times each:
  matrix  the authors' own: whole matrices of scores, shifted by a view, fused by the compiler
  sdpa    as the bias of scaled_dot_product_attention
  flex    FlexAttention reads B unshifted, by distance
Prints a line of JSON per way: tok_s and ms (the median step), peak_GiB, and the options.
"""
import argparse
import json
import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.utils.checkpoint import checkpoint


def shifted(by_distance, memory):
    """(..., n, keys) of scores by descending distance, from keys - 1 to 0, as scores by key (the authors' _rel_shift)."""
    *rest, n, keys = by_distance.shape
    padded = F.pad(by_distance, (1, 0)).view(*rest, keys + 1, n)
    return padded[..., 1:, :].reshape(*rest, n, keys)


def waves(distances, width):
    rates = 10000.0 ** (-torch.arange(0, width, 2) / width)
    angles = distances[:, None].float() * rates
    return torch.cat([angles.sin(), angles.cos()], -1)


class Block(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.o = o
        self.q, self.kv = nn.Linear(o.width, o.width, bias=False), nn.Linear(o.width, 2 * o.width, bias=False)
        self.r, self.out = nn.Linear(o.width, o.width, bias=False), nn.Linear(o.width, o.width, bias=False)
        self.n1, self.n2 = nn.LayerNorm(o.width), nn.LayerNorm(o.width)
        self.f1, self.f2 = nn.Linear(o.width, o.inner), nn.Linear(o.inner, o.width)

    def heads(self, t):
        return t.view(*t.shape[:-1], self.o.heads, -1).transpose(-3, -2)

    def attend(self, x, memory, u, v, distances, block_mask):
        o, n, keys = self.o, self.o.segment, self.o.segment + self.o.memory
        q = self.heads(self.q(x))
        k, value = (self.heads(t) for t in self.kv(torch.cat([memory, x], 1)).chunk(2, -1))
        r = self.heads(self.r(distances))  # by descending distance
        scale = q.shape[-1] ** -0.5
        content, position = q + u[:, None].to(q.dtype), q + v[:, None].to(q.dtype)
        by_distance = position @ r.transpose(-1, -2)
        if o.attention == "flex":
            def add(score, b, h, i, j):
                return score + scale * by_distance[b, h, i, keys - 1 - (i + o.memory - j)]

            y = flex_attention(content, k, value, score_mod=add, block_mask=block_mask, scale=scale)
        else:
            i, j = torch.arange(n, device=x.device)[:, None], torch.arange(keys, device=x.device)
            hidden = j > i + o.memory
            bias = shifted(by_distance, o.memory)
            if o.attention == "sdpa":
                y = F.scaled_dot_product_attention(content, k, value, (scale * bias).masked_fill(hidden, -torch.inf))
            else:
                scores = scale * (content @ k.transpose(-1, -2) + bias)
                y = scores.float().masked_fill(hidden, -torch.inf).softmax(-1).to(value.dtype) @ value
        return self.out(y.transpose(1, 2).reshape(x.shape))

    def forward(self, x, memory, u, v, distances, block_mask):
        x = self.n1(x + self.attend(x, memory, u, v, distances, block_mask))
        return self.n2(x + self.f2(F.relu(self.f1(x)))).to(x.dtype)


class Model(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.o = o
        self.emb = nn.Embedding(256, o.width)
        self.u, self.v = (nn.Parameter(torch.zeros(o.heads, o.width // o.heads)) for _ in range(2))
        self.blocks = nn.ModuleList(Block(o) for _ in range(o.layers))
        self.bias = nn.Parameter(torch.zeros(256))
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, 0, 0.02)
        self.register_buffer("distances", waves(torch.arange(o.segment + o.memory - 1, -1, -1), o.width).bfloat16())

    def forward(self, tokens, targets, memories, block_mask):
        x, inputs = (self.emb(tokens) * self.o.width**0.5).bfloat16(), []
        for block, memory in zip(self.blocks, memories):
            inputs.append(x.detach())
            arguments = (x, memory, self.u, self.v, self.distances, block_mask)
            x = checkpoint(block, *arguments, use_reentrant=False) if self.o.ckpt else block(*arguments)
        logits = F.linear(x, self.emb.weight, self.bias).float()
        return F.cross_entropy(logits.view(-1, 256), targets.view(-1)), inputs


def training_step(o):
    """A function that trains one step, on random bytes."""
    model = Model(o).cuda()
    for block in model.blocks:
        block.compile(dynamic=False)
    mask = None
    if o.attention == "flex":
        mask = create_block_mask(lambda b, h, i, j: j <= i + o.memory, 1, 1, o.segment, o.segment + o.memory)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2.5e-4, fused=True, capturable=bool(o.graph))
    tokens, targets = (torch.randint(0, 256, (o.batch, o.segment), device="cuda") for _ in range(2))
    memories = [torch.zeros(o.batch, o.memory, o.width, device="cuda", dtype=torch.bfloat16) for _ in model.blocks]

    def step():
        with torch.autocast("cuda", torch.bfloat16, cache_enabled=not o.graph):
            loss, inputs = model(tokens, targets, memories, mask)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        optimizer.step()
        for memory, new in zip(memories, inputs):
            memory.copy_(new if o.memory <= o.segment else torch.cat([memory, new], 1)[:, -o.memory:])

    def whole_step():
        step()
        optimizer.zero_grad(set_to_none=True)

    if not o.graph:
        return whole_step
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            whole_step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def median_ms(step, steps):
    for _ in range(3):
        step()
    torch.cuda.synchronize()
    times = []
    for _ in range(steps):
        begin = time.perf_counter()
        step()
        torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - begin))
    return statistics.median(times)


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in dict(layers=12, width=512, heads=8, inner=2048, segment=512, memory=512, batch=192, steps=6,
                            graph=1, ckpt=0).items():
        parser.add_argument(f"--{name}", type=int, default=value, help=f"default {value}")
    parser.add_argument("--attention", choices=["matrix", "sdpa", "flex", "all"], default="all", help="default all")
    return parser.parse_args()


def main():
    o = options()
    if o.memory < 1 or o.segment < o.memory and o.memory % o.segment:
        raise SystemExit("transformer_xl_torch.py: --memory must be positive and a multiple of --segment where it is longer")
    for way in ["matrix", "sdpa", "flex"] if o.attention == "all" else [o.attention]:
        o.attention = way
        torch._dynamo.reset()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        try:
            ms = median_ms(training_step(o), o.steps)
        except Exception as error:  # a way that does not run is reported, and the next is timed
            print(json.dumps({"model": "transformer_xl", "attention": way, "error": str(error)[:300]}), flush=True)
            continue
        print(json.dumps({
            "model": "transformer_xl", "attention": way, "ms": round(ms, 2),
            "tok_s": round(o.batch * o.segment / ms * 1e3), "peak_GiB": round(torch.cuda.max_memory_allocated() / 2**30, 1),
            "batch": o.batch, "segment": o.segment, "memory": o.memory, "ckpt": o.ckpt, "graph": o.graph,
        }), flush=True)


if __name__ == "__main__":
    main()
