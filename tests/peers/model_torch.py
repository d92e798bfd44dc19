#!/usr/bin/env python3
"""Times training steps of the recipes' models as strong PyTorch: the peer of compare_gpu.sh and train_gpu_torch.py.

    model_torch.py NAME [NAME ...] [--ckpt 0|1] [--steps 6] [--batch B] [--graph 0|1]
                   [--backend FLASH|TRITON|LONGSTRIDE]

NAME: a key of CFG. The same models as the recipes (cycle of layers, feed-forward ratio, key size), bf16 autocast with the
residual stream in bf16, no dropout. What makes it strong:
 - the residual block is compiled, AdamW is fused, and the whole step is one CUDA graph (--graph 0: without);
 - windows and the fixed pattern use FlexAttention with block masks that list full and partial blocks; the fixed pattern
   reads its summary rows gathered in front of all rows, so that no block is mostly masked;
 - columns are dense causal attention whose heads are a view of the rows (stride x heads), by cuDNN, without a copy;
 - FlexAttention calls FlashAttention 4 for the fixed pattern and for windows of 512 and more, where it is installed
   (the package flash-attn-4) and faster than Triton's kernels, which do the rest. --backend chooses one for all.
--backend LONGSTRIDE is no peer but the same model with longstride.attention (docs/guide/from_pytorch_and_c.md) for all of
its attention.
Prints a line of JSON per model: tok_s and ms (the median step), peak_GiB, and the options.
"""
import argparse
import importlib.util
import json

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention
from torch.utils.checkpoint import checkpoint

from torch_step import captured, median_ms, peak_gib

# n: context; d: width; h: heads; L: layers; l: stride; c: summary width; ff: feed-forward ratio; qk: key ratio; cycle: the
# layers' parts, local and column; B: sequences per step.
CFG = {
    "enwik8_fixed": dict(kind="fixed", n=12288, d=512, h=8, L=30, l=128, c=32, ff=4, qk=1, B=8),
    "enwik8_dense": dict(kind="dense", n=12288, d=512, h=8, L=30, l=128, ff=4, qk=1, B=8),
    "enwik8_strided": dict(kind="strided", n=12288, d=512, h=8, L=30, l=128, cycle="lc", ff=4, qk=1, B=8),
    "cifar_strided": dict(kind="strided", n=3072, d=256, h=2, L=128, l=96, cycle="clll", ff=2, qk=0.5, B=32),
    "imagenet64": dict(kind="strided", n=12288, d=512, h=16, L=48, l=128, cycle="clll", ff=4, qk=1, B=8),
    "audio65k": dict(kind="strided", n=65536, d=512, h=16, L=48, l=256, cycle="lc", ff=4, qk=1, B=1),
    "audio262k": dict(kind="strided", n=262144, d=512, h=8, L=8, l=512, cycle="lc", ff=3.75, qk=1, B=1),
    "audio1m": dict(kind="strided", n=1048576, d=256, h=4, L=4, l=1024, cycle="lc", ff=2.5, qk=1, B=1),
}

BLOCK = 128  # of FlexAttention's masks
kernel_options = None  # for every call of FlexAttention
operator = None  # longstride.attention, if it is used instead


def faster_backend(config):
    """FlexAttention's: FlashAttention 4 where it is installed and measured to be faster, else Triton."""
    installed = importlib.util.find_spec("flash_attn") and importlib.util.find_spec("flash_attn.cute")
    suits = config["kind"] == "fixed" or (config["kind"] == "strided" and config["l"] >= 512)
    return "FLASH" if installed and suits else "TRITON"


def block_lists(allowed):
    """Counts and indices of the blocks that a (blocks, blocks) matrix of booleans allows, as BlockMask wants them."""
    indices = torch.argsort((~allowed).int(), dim=1, stable=True).int()
    return allowed.sum(1).int()[None, None], indices[None, None]


def local_mask(n, l, device="cuda"):
    """The l previous positions and the query's own. Built from blocks: an n x n scan does not fit at 65,536."""
    blocks = -(-n // BLOCK)
    query, key = torch.arange(blocks, device=device)[:, None], torch.arange(blocks, device=device)[None]
    nearest, farthest = (query - key - 1) * BLOCK + 1, (query - key + 1) * BLOCK - 1  # distances within a pair of blocks
    full = (nearest >= 0) & (farthest <= l)
    partial = (farthest >= 0) & (nearest <= l) & ~full
    return BlockMask.from_kv_blocks(*block_lists(partial), *block_lists(full), BLOCK_SIZE=BLOCK,
                                    mask_mod=lambda b, h, q, k: (q >= k) & (q - k <= l))


def fixed_compact(heads, n, l, c, device="cuda"):
    """(a function that puts the last c rows of every stride in front of all rows, the mask of the result)."""
    summaries = n // l * c

    def keys(t):
        batch, _, _, size = t.shape
        of_strides = t.view(batch, heads, n // l, l, size)[:, :, :, l - c:]
        return torch.cat([of_strides.reshape(batch, heads, summaries, size), t], 2)

    def allowed(b, h, q, k):
        own = k - summaries
        return ((k < summaries) & (k // c < q // l)) | ((k >= summaries) & (own // l == q // l) & (own <= q))

    return keys, create_block_mask(allowed, 1, 1, n, n + summaries, device=device, _compile=device == "cuda")


def mask_of(config, device="cuda"):
    if config["kind"] == "fixed":
        return fixed_compact(config["h"], config["n"], config["l"], config["c"], device)
    return local_mask(config["n"], config["l"], device) if config["kind"] == "strided" else None


def pattern_of(config, layer):
    """The layer's, for longstride.attention."""
    import longstride

    if config["kind"] == "dense":
        return longstride.Pattern()
    if config["kind"] == "fixed":
        return longstride.Pattern(parts=["fixed_block", "fixed_summary"], integration="merged", stride=config["l"],
                                  summary=config["c"])
    part = {"l": "local", "c": "column"}[config["cycle"][layer % len(config["cycle"])]]
    return longstride.Pattern(parts=[part], stride=config["l"])


class Block(nn.Module):
    def __init__(self, config, layer):
        super().__init__()
        self.config = config
        width, inner = config["d"], int(config["ff"] * config["d"])
        self.keys = int(width * config["qk"])
        self.pattern = pattern_of(config, layer) if operator else None
        self.column = config["kind"] == "strided" and config["cycle"][layer % len(config["cycle"])] == "c" and not operator
        self.n1, self.n2 = nn.LayerNorm(width), nn.LayerNorm(width)
        if self.column:  # three products, whose rows are whole, so that columns are views
            self.q, self.k, self.v = nn.Linear(width, self.keys), nn.Linear(width, self.keys), nn.Linear(width, width)
        else:
            self.qkv = nn.Linear(width, 2 * self.keys + width)
        self.o, self.f1, self.f2 = nn.Linear(width, width), nn.Linear(width, inner), nn.Linear(inner, width)

    def columns(self, h):
        batch, n, _ = h.shape
        heads, stride = self.config["h"], self.config["l"]
        of_classes = lambda t: t.view(batch, n // stride, stride * heads, -1).transpose(1, 2)  # noqa: E731
        order = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
        with sdpa_kernel(order, set_priority=True):
            o = F.scaled_dot_product_attention(of_classes(self.q(h)), of_classes(self.k(h)), of_classes(self.v(h)),
                                               is_causal=True)
        return o.transpose(1, 2).reshape(batch, n, -1)

    def rows(self, h, mask):
        batch, n, _ = h.shape
        q, k, v = (t.view(batch, n, self.config["h"], -1).transpose(1, 2)
                   for t in self.qkv(h).split([self.keys, self.keys, self.config["d"]], -1))
        if operator:
            o = operator(q, k, v, self.pattern)
        elif self.config["kind"] == "dense":
            o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        elif self.config["kind"] == "fixed":
            keys, block_mask = mask
            o = flex_attention(q, keys(k), keys(v), block_mask=block_mask, kernel_options=kernel_options)
        else:
            o = flex_attention(q, k, v, block_mask=mask, kernel_options=kernel_options)
        return o.transpose(1, 2).reshape(batch, n, -1)

    def forward(self, x, mask):
        h = self.n1(x)
        a = self.o(self.columns(h) if self.column else self.rows(h, mask))
        z = self.f1(self.n2(x + a))
        return x + a + self.f2(z * torch.sigmoid(1.702 * z))


class Model(nn.Module):
    def __init__(self, config):
        super().__init__()
        n, width, stride = config["n"], config["d"], config["l"]
        self.emb = nn.Embedding(256, width)
        self.p1, self.p2 = nn.Embedding(-(-n // stride), width), nn.Embedding(stride, width)
        self.blocks = nn.ModuleList(Block(config, layer) for layer in range(config["L"]))
        self.nf, self.out = nn.LayerNorm(width), nn.Linear(width, 256, bias=False)
        position = torch.arange(n)
        self.register_buffer("row", position // stride)
        self.register_buffer("in_row", position % stride)

    def forward(self, tokens, targets, mask, recomputes):
        x = (self.emb(tokens) + self.p1(self.row) + self.p2(self.in_row)).to(torch.bfloat16)
        for block in self.blocks:
            x = checkpoint(block, x, mask, use_reentrant=False) if recomputes else block(x, mask)
        return F.cross_entropy(self.out(self.nf(x)).float().view(-1, 256), targets.view(-1))


def training_step(config, options):
    """A function that trains one step, on random bytes."""
    model = Model(config).cuda()
    for block in model.blocks:
        block.compile(dynamic=False)
    mask, batch = None if operator else mask_of(config), options.batch or config["B"]
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True, capturable=bool(options.graph))
    tokens, targets = (torch.randint(0, 256, (batch, config["n"]), device="cuda") for _ in range(2))

    def step():
        with torch.autocast("cuda", torch.bfloat16, cache_enabled=not options.graph):
            loss = model(tokens, targets, mask, options.ckpt)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    def whole_step():
        step()
        optimizer.zero_grad(set_to_none=True)

    if not options.graph:
        return whole_step
    return captured(step, whole_step)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", choices=sorted(CFG), metavar="NAME")
    parser.add_argument("--ckpt", type=int, choices=[0, 1], default=1, help="1: recompute every block")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--batch", type=int, default=0, help="sequences per step; 0: as in CFG")
    parser.add_argument("--graph", type=int, choices=[0, 1], default=1)
    parser.add_argument("--backend", choices=["FLASH", "TRITON", "LONGSTRIDE"],
                        help="FlexAttention's kernels, or longstride.attention")
    options = parser.parse_args()
    global kernel_options, operator
    if options.backend == "LONGSTRIDE":
        from longstride import attention as operator
    torch._dynamo.config.recompile_limit = 256  # every kind of layer compiles its own block
    for name in options.names:
        torch.manual_seed(0)
        torch._dynamo.reset()
        torch.cuda.reset_peak_memory_stats()
        config = CFG[name]
        backend = options.backend or faster_backend(config)
        kernel_options = {"BACKEND": backend}
        seconds = median_ms(training_step(config, options), options.steps) / 1e3
        tokens = (options.batch or config["B"]) * config["n"]
        print(json.dumps(dict(model=name, ckpt=options.ckpt, graph=options.graph, backend=backend,
                              ms=round(seconds * 1e3, 2), tok_s=round(tokens / seconds),
                              peak_GiB=round(peak_gib(), 2))), flush=True)
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
