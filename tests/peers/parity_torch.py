#!/usr/bin/env python3
"""The same training in PyTorch: the initial weights and batches from `longstride export`, and an independent model.

    longstride export RECIPE --steps 200 --output DIR
    python3 tests/peers/parity_torch.py DIR [--runs fp32 bf16 bf16:1 bf16:2] [--device cuda]

Writes DIR/torch-<run>.json, {"losses": [...]}, nats per byte, one per step. fp32: no TF32 anywhere, attention with plain
products and softmax; fp32:fused uses PyTorch's fused attention instead, as a control for another order of sums.
bf16: autocast with the residual stream and the logits in fp32, weights rounded to nearest. With a rounding seed (bf16:1)
every matrix is rounded to bf16 stochastically at every step, with that seed: two seeds show how far rounding alone drives
losses apart.
Needs torch and numpy. Dropout must be 0 in the recipe, because the random numbers differ.
"""
import argparse
import json
import math
import pathlib
import struct
import time

import numpy
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from attention_torch import Blocked

DTYPES = {"F32": numpy.float32, "U8": numpy.uint8}


def read_safetensors(path):
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + size])
    header.pop("__metadata__", None)
    out = {}
    for name, entry in header.items():
        begin, end = (8 + size + offset for offset in entry["data_offsets"])
        array = numpy.frombuffer(data[begin:end], DTYPES[entry["dtype"]]).reshape(entry["shape"])
        out[name] = torch.from_numpy(array.copy())
    return out


def read_recipe(path):
    """A resolved recipe: maps by indentation, and values that are numbers, words, quoted text or lists of these."""
    root, stack = {}, [(-1, None)]
    stack[0] = (-1, root)
    for line in path.read_text().splitlines():
        depth, (key, _, text) = (len(line) - len(line.lstrip())) // 2, line.strip().partition(": ")
        while stack[-1][0] >= depth:
            stack.pop()
        if line.endswith(":") and not text:
            stack[-1][1][key[:-1]] = child = {}
            stack.append((depth, child))
        else:
            stack[-1][1][key] = value_of(text)
    return root


def value_of(text):
    if text.startswith("[") and text.endswith("]"):
        return [value_of(item.strip()) for item in text[1:-1].split(",") if item.strip()]
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


class StochasticRound(torch.autograd.Function):
    """To bf16, up or down with the probability that keeps the mean; the gradient passes through."""

    @staticmethod
    def forward(ctx, x, generator):
        bits = x.contiguous().view(torch.int32)
        noise = torch.randint(0, 1 << 16, bits.shape, dtype=torch.int32, device=x.device, generator=generator)
        return ((bits + noise) & ~0xFFFF).view(torch.float32).bfloat16()

    @staticmethod
    def backward(ctx, gradient):
        return gradient.float(), None


class Model:
    def __init__(self, recipe, weights, device):
        model, self.context = recipe["model"], recipe["data"]["context"]
        if model["dropout"] != 0:
            raise SystemExit("model.dropout must be 0: --set model.dropout=0")
        if model["rotary_base"] or model["query_key_norm"] or model["positions"] == "none":
            raise SystemExit("this script has only the paper's model: no rotary_base, no query_key_norm, and position tables")
        self.layers, self.width, self.heads = model["layers"], model["width"], model["heads"]
        self.keys = round(model["key_ratio"] * self.width)
        self.weights = {name: w.to(device).requires_grad_() for name, w in weights.items()}
        made = {}
        cycle = len(model["attention"]["parts"]) if model["attention"]["integration"] == "interleaved" else 1
        for k in range(min(cycle, self.layers)):
            made[k] = Blocked(model["attention"], k, self.heads, self.context).to(device)
        self.attend = [made[k % cycle] for k in range(self.layers)]
        i, l = torch.arange(self.context, device=device), model["attention"]["stride"]
        side = math.isqrt(self.context // 3)
        pictures = model["positions"] == "data"
        self.index = [i // (3 * side), i // 3 % side, i % 3] if pictures else [i // l, i % l]

    def losses(self, w, tokens):
        batch, n = tokens.shape
        x = F.embedding(tokens[:, :-1], w["embedding.token.weight"])
        x = torch.cat([w["embedding.start"].expand(batch, 1, -1), x], 1)
        for t, index in enumerate(self.index):
            x = x + w[f"embedding.position.{t}.weight"][index]
        for k in range(self.layers):
            linear = lambda name, y: F.linear(y, w[f"layers.{k}.{name}.weight"], w[f"layers.{k}.{name}.bias"])
            norm = lambda name: F.layer_norm(
                x, (self.width,), w[f"layers.{k}.{name}.weight"], w[f"layers.{k}.{name}.bias"])
            qkv = linear("attention.query_key_value", norm("attention_norm")).split([self.keys, self.keys, self.width], -1)
            q, key, v = (t.view(batch, n, self.heads, -1).transpose(1, 2) for t in qkv)
            x = x + linear("attention.output", self.attend[k](q, key, v).transpose(1, 2).reshape(batch, n, -1))
            z = linear("feed_forward.inner", norm("feed_forward_norm"))
            x = x + linear("feed_forward.outer", z * torch.sigmoid(1.702 * z))
        x = F.layer_norm(x, (self.width,), w["final_norm.weight"], w["final_norm.bias"])
        narrow = (lambda t: t.bfloat16().float()) if torch.is_autocast_enabled(x.device.type) else lambda t: t
        with torch.autocast(x.device.type, enabled=False):  # it would round the logits to bf16, which are fp32 here
            logits = F.linear(narrow(x), narrow(w["output.weight"]))
        return F.cross_entropy(logits.flatten(0, 1), tokens.flatten())


def train(model, recipe, batches, device, precision, rounding_seed):
    c = recipe["train"]
    matrices = [p for p in model.weights.values() if p.ndim > 1]
    vectors = [p for p in model.weights.values() if p.ndim == 1]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": c["weight_decay"]}, {"params": vectors, "weight_decay": 0.0}],
        lr=c["lr"], betas=(c["beta1"], c["beta2"]), eps=c["epsilon"])
    generator = torch.Generator(device).manual_seed(rounding_seed)
    narrow = precision == "bf16"
    losses = []
    for step, tokens in enumerate(batches):
        ramp = min(1.0, (step + 1) / c["warmup"]) if c["warmup"] else 1.0
        for group in optimizer.param_groups:
            group["lr"] = c["lr"] * ramp * 0.5 * (1 + math.cos(math.pi * step / c["steps"]))
        weights = dict(model.weights)
        if narrow and rounding_seed:
            for name, p in model.weights.items():
                if p.ndim == 2 and "embedding" not in name:
                    weights[name] = StochasticRound.apply(p, generator)
        with torch.autocast(device, torch.bfloat16, enabled=narrow):
            loss = model.losses(weights, tokens.to(device).long())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        norm = torch.linalg.vector_norm(torch.stack([p.grad.double().norm() for p in model.weights.values()]))
        if c["clip"] > 0:
            scale = (c["clip"] / norm).clamp(max=1.0)
            for p in model.weights.values():
                p.grad.mul_(scale.to(p.grad.dtype))
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses).double().cpu().tolist()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--runs", nargs="+", default=["fp32", "bf16", "bf16:1", "bf16:2"])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False

    recipe = read_recipe(options.folder / "recipe.yaml")
    batches = read_safetensors(options.folder / "batches.safetensors")["tokens"]
    for run in options.runs:
        precision, _, seed = run.partition(":")
        plain = run == "fp32" or options.device == "cpu"
        model = Model(recipe, read_safetensors(options.folder / "initial.safetensors"), options.device)
        began = time.perf_counter()
        with sdpa_kernel(SDPBackend.MATH if plain else [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION]):
            losses = train(model, recipe, batches, options.device, precision, int(seed) if seed.isdigit() else 0)
        seconds = time.perf_counter() - began
        (options.folder / f"torch-{run.replace(':', '-')}.json").write_text(json.dumps({
            "torch": torch.__version__, "device": options.device, "run": run, "recipe": recipe["name"],
            "seconds": seconds, "losses": losses}))
        print(f"{recipe['name']} {run}: {len(losses)} steps in {seconds:.1f} s, {losses[0]:.6f} to {losses[-1]:.6f}",
              flush=True)


if __name__ == "__main__":
    main()
