#!/usr/bin/env python3
"""Trains a PyTorch peer of a paper recipe for a given time on one GPU and scores held-out bytes.

    python3 tests/peers/train_gpu_torch.py NAME DATA.h5 --seconds 300 --batch 8 [--accumulate 1] [--peer model_torch.py]

The peer, model_torch.py beside this file or another, provides CFG[NAME], Model(CFG[NAME]) and the block masks (local_mask, fixed_compact); the dense and fixed
CIFAR-10 models are made from its strided one. The data is a file from `longstride prepare`. Learning rate, warmup, decay,
clip and initialisation are those of the recipes; the cosine ends with the time, which does not include compilation. Prints
a JSON line every `--every` steps, and at the end one for the first `--windows` windows of `--split`, the same that
`longstride eval --windows` takes.
"""
import argparse
import importlib
import json
import math
import pathlib
import sys
import time

import numpy
import torch

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from evaluate_safetensors import sequences_of, windows_of  # noqa: E402


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name")
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("--peer", type=pathlib.Path, default=pathlib.Path(__file__).with_name("model_torch.py"))
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--batch", type=int, required=True, help="sequences at once")
    parser.add_argument("--accumulate", type=int, default=1, help="batches per step")
    parser.add_argument("--lr", type=float, default=3.5e-4)
    parser.add_argument("--beta2", type=float, default=0.999)
    parser.add_argument("--dropout", type=float, default=0, help="after each branch, as in the paper")
    parser.add_argument("--checkpoint", type=int, default=0, help="1: recompute every block")
    parser.add_argument("--cross-files", action="store_true")
    parser.add_argument("--split", default="valid")
    parser.add_argument("--windows", type=int, default=96, help="0: all")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--every", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def peer_module(path):
    sys.path.insert(0, str(path.resolve().parent))
    sys.argv = [str(path)]  # the peer parses the arguments when it is imported
    peer = importlib.import_module(path.stem)
    for config in peer.CFG.values():
        if config["kind"] == "strided":
            config["cycle"] = "lc"  # as short_runs.sh trains both sides
    strided = peer.CFG["cifar_strided"]
    peer.CFG.setdefault("cifar_dense", {**strided, "kind": "dense"})
    peer.CFG.setdefault("cifar_fixed", {**strided, "kind": "fixed", "l": 128, "c": 32})
    return peer


def initialise(model, config):
    """Standard deviations sqrt(0.125 / fan in), branch outputs divided by sqrt(2 layers), zero logits."""
    deviation = lambda fan_in: math.sqrt(0.125 / fan_in)  # noqa: E731
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.ndim == 1:
                p.fill_(1.0 if name.endswith(("n1.weight", "n2.weight", "nf.weight")) else 0.0)
            elif name.startswith("out"):
                p.zero_()
            elif name.startswith("emb"):
                p.normal_(0, deviation(config["d"]))
            elif name.startswith(("p1", "p2")):
                p.normal_(0, deviation(2 * config["d"]))
            else:
                branch_output = name.endswith(("o.weight", "f2.weight"))
                p.normal_(0, deviation(p.shape[1]) / (math.sqrt(2 * config["L"]) if branch_output else 1))


class Windows:
    """Random training windows: whole sequences if they have the context's length, else from anywhere."""

    def __init__(self, sequences, context, device):
        long_enough = [s for s in sequences if len(s) >= context]
        assert long_enough, f"no sequence has {context} bytes"
        self.data = torch.from_numpy(numpy.concatenate(long_enough)).to(device)
        lengths = numpy.array([len(s) for s in long_enough])
        self.begins = torch.from_numpy(numpy.cumsum(lengths) - lengths).to(device)
        self.choices = torch.from_numpy(lengths - context + 1).to(device)
        self.ends = torch.cumsum(self.choices, 0)
        self.offsets = torch.arange(context, device=device)

    def batch(self, count):
        at = torch.randint(0, int(self.ends[-1]), (count,), device=self.data.device)
        which = torch.searchsorted(self.ends, at, right=True)
        begin = self.begins[which] + at - (self.ends[which] - self.choices[which])
        return self.data[begin[:, None] + self.offsets].long()


def main():
    options = arguments()
    peer = peer_module(options.peer)
    config, device = peer.CFG[options.name], options.device
    torch.manual_seed(options.seed)
    model = peer.Model(config).to(device)
    initialise(model, config)
    if options.dropout > 0:
        for block in model.blocks:
            block.o = torch.nn.Sequential(block.o, torch.nn.Dropout(options.dropout))
            block.f2 = torch.nn.Sequential(block.f2, torch.nn.Dropout(options.dropout))
    for block in model.blocks:
        block.compile(dynamic=False)
    masks = {"fixed": lambda: peer.fixed_compact(config["h"], config["n"], config["l"], config["c"]),
             "strided": lambda: peer.local_mask(config["n"], config["l"]), "dense": lambda: None}[config["kind"]]()
    matrices = [p for p in model.parameters() if p.ndim > 1]
    vectors = [p for p in model.parameters() if p.ndim == 1]
    optimizer = torch.optim.AdamW([dict(params=matrices, weight_decay=0.01), dict(params=vectors, weight_decay=0)],
                                  lr=options.lr, betas=(0.9, options.beta2), fused=True)
    train = Windows(sequences_of(options.data, "train", options.cross_files)[0], config["n"], device)

    def loss_of(windows, targets=None):
        inputs = torch.cat([torch.zeros_like(windows[:, :1]), windows[:, :-1]], 1)
        with torch.autocast(device, torch.bfloat16):
            return model(inputs, windows if targets is None else targets, masks, options.checkpoint)

    def accumulate():
        total = 0
        for _ in range(options.accumulate):
            loss = loss_of(train.batch(options.batch)) / options.accumulate
            loss.backward()
            total = total + loss.detach()
        return total

    def wait():
        if device == "cuda":
            torch.cuda.synchronize()

    for _ in range(2):
        accumulate()
        optimizer.zero_grad(set_to_none=True)
    wait()
    begin, step, recent = time.time(), 0, []
    while (elapsed := time.time() - begin) < options.seconds:
        done = elapsed / options.seconds
        rate = options.lr * min(1, done / 0.05) * 0.5 * (1 + math.cos(math.pi * done))
        for group in optimizer.param_groups:
            group["lr"] = rate
        recent.append(accumulate())
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        step += 1
        if step % options.every == 0:
            bits = torch.stack(recent).mean().item() / math.log(2)  # waits for the GPU, so the clock is right
            print(json.dumps(dict(step=step, seconds=round(time.time() - begin, 1), bits_per_byte=bits, grad_norm=norm.item())),
                  flush=True)
            recent = []
    wait()
    seconds = time.time() - begin

    # In batches of the training's size, for which everything is compiled. Positions without a byte are not scored.
    if options.dropout > 0:
        model.eval()
    windows = [torch.from_numpy(s[start : start + length]).long() for s in
               sequences_of(options.data, options.split, options.cross_files)[0]
               for start, length, _ in windows_of(len(s), config["n"], 0)][: options.windows or None]
    nats, scored = 0.0, 0
    for first in range(0, len(windows), options.batch):
        inputs = torch.zeros((options.batch, config["n"]), dtype=torch.long)
        targets = torch.full_like(inputs, -100)
        for row, window in enumerate(windows[first : first + options.batch]):
            inputs[row, : len(window)] = targets[row, : len(window)] = window
        bytes_here = int((targets >= 0).sum())
        nats += loss_of(inputs.to(device), targets.to(device)).item() * bytes_here
        scored += bytes_here
    print(json.dumps(dict(
        model=options.name, steps=step, seconds=seconds, tokens=step * options.accumulate * options.batch * config["n"],
        split=options.split, scored=scored, bits_per_byte=nats / scored / math.log(2),
        peak_GiB=torch.cuda.max_memory_allocated() / 2**30 if device == "cuda" else None)), flush=True)


if __name__ == "__main__":
    main()
