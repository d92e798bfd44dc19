#!/usr/bin/env python3
"""Transformer-XL against Hugging Face's TransfoXLLMHeadModel: the same weights and the same streams of text, 200 steps of
Adam in fp32 with memory, and the loss of every step.

    longstride prepare bytes --input FILE --output text.h5
    python3 tests/peers/parity_transfo_xl.py --data text.h5 --output DIR [--command build/cpu/longstride]
                                                      [--device cpu] [--recipe RECIPE] [--set KEY=VALUE ...] [--bound 1e-5]
    python3 tests/peers/parity_transfo_xl.py --check

Twice, with weights copied in either direction: from `longstride export` into their model, and as their model draws them
into a file, from which `longstride train --from` begins. Prints a JSON object for each; the exit code is 1 if the losses of
a step differ by more than the bound, relatively. Where streams are so short that they begin again, so does their memory.

--check compares their model with tests/golden/memory.py instead, in float64: losses and gradients of segments of streams.
Needs torch, numpy and transformers 4.57.6, the last version with this model (transfo_xl.py). Dropout must be 0, because the
random numbers differ.
"""
import argparse
import json
import math
import pathlib
import shutil
import struct
import subprocess
import sys

import torch
import transformers

import plot
from parity_torch import read_recipe, read_safetensors
from transfo_xl import TransfoXL

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "golden"))


def write_safetensors(path, tensors):
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, tensor in tensors.items():
        packed = tensor.contiguous().numpy().astype("<f4").tobytes()
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [len(data), len(data) + len(packed)]}
        data += packed
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def learning_rate(c, step):
    ramp = min(1.0, (step + 1) / c["warmup"]) if c["warmup"] else 1.0
    return c["lr"] * ramp * 0.5 * (1 + math.cos(math.pi * step / c["steps"]))


def train(theirs, c, batches):
    """Mean nats of every step."""
    if c["weight_decay"] != 0 or c.get("optimizer", "adam") != "adam" or c.get("schedule", "cosine") != "cosine":
        sys.exit("the recipe must say Adam without weight decay, and the cosine schedule")
    parameters = list(theirs.parameters.values())
    optimizer = torch.optim.Adam(parameters, betas=(c["beta1"], c["beta2"]), eps=c["epsilon"])
    losses, before = [], torch.zeros_like(batches[0, :, :1])
    for step, tokens in enumerate(batches):
        starts = step == 0 or torch.equal(tokens, batches[0])  # streams that begin again
        previous = torch.cat([before, tokens[:, :-1]], 1)
        before = tokens[:, -1:]
        loss = theirs.losses(previous, tokens, starts).mean()
        optimizer.zero_grad()
        loss.backward()
        if c["clip"] > 0:
            norm = math.sqrt(sum(float((p.grad.double() ** 2).sum()) for p in parameters))
            for p in parameters:
                p.grad.mul_(min(1.0, c["clip"] / norm))
        optimizer.param_groups[0]["lr"] = learning_rate(c, step)
        optimizer.step()
        losses.append(loss.item())
    return losses


def longstride(options, *arguments):
    overrides = [word for setting in [f"data.path={options.data}", *options.set] for word in ("--set", setting)]
    command = [options.command, arguments[0], options.recipe, *arguments[1:], *overrides]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")


def compare(options, weights, recipe, batches):
    """Both from the weights of one side."""
    theirs = TransfoXL(recipe["model"])
    run, begin = options.output / f"from-{weights}", ()
    if weights == "longstride":
        theirs.load(read_safetensors(options.output / "initial.safetensors"))
    else:
        file = options.output / "transfo_xl.safetensors"
        write_safetensors(file, theirs.weights())
        begin = ("--from", file)
    shutil.rmtree(run, ignore_errors=True)
    longstride(options, "train", "--run", run, "--device", options.device, "--log-level", "warning", *begin)
    ours, peer = plot.losses_of_run(run), train(theirs, recipe["train"], batches)
    if len(ours) != len(peer):
        sys.exit(f"{run} has {len(ours)} steps, the peer {len(peer)}")
    relative = [abs(a - b) / b for a, b in zip(ours, peer)]
    worst = max(relative)
    print(json.dumps({
        "recipe": recipe["name"], "weights": weights, "steps": len(ours), "transformers": transformers.__version__,
        "torch": torch.__version__, "device": options.device, "first": ours[0], "last": ours[-1], "their_last": peer[-1],
        "largest_relative": worst, "at_step": relative.index(worst) + 1, "holds": worst <= options.bound}))
    return worst <= options.bound


def in_float64(theirs):
    """Their sinusoids are rounded to fp32 otherwise, and so are scores, where `float` is called on them."""
    rates = 10000.0 ** (-torch.arange(0, theirs.model.config.d_model, 2, dtype=torch.float64) / theirs.model.config.d_model)
    theirs.model.transformer.pos_emb.inv_freq = rates
    torch.Tensor.float = lambda tensor: tensor


def check():
    """Losses and gradients of the golden model with memory of zeros, with biases of the model and of layers, and with
    distances that one row stands for; memory of fewer and of more positions than a segment."""
    from memory import MemoryReference
    from memory_cases import SINUSOID, TRANSFORMER_XL, streams

    worst = 0.0
    for length, more in ((12, {}), (5, {"biases": "layer"}), (24, {"distances": 20}), (12, {"biases": "layer", "distances": 7})):
        config = streams({**SINUSOID, **more}, {"length": length, "start": "zeros"}, layers=3, **TRANSFORMER_XL)
        model, theirs = MemoryReference(config["model"], config["data"]), TransfoXL(config["model"], dtype=torch.float64)
        in_float64(theirs)
        generator = torch.Generator().manual_seed(2)
        parameters = {
            name: (torch.rand(shape, generator=generator, dtype=torch.float64) - 0.5).requires_grad_()
            for name, shape in model.shapes().items()}
        theirs.load({name: p.detach() for name, p in parameters.items()})
        tokens = torch.randint(256, (3, 6 * 8), generator=generator)
        memory = model.empty(3, torch.float64)
        for s in range(6):
            starts, cut = s in (0, 4), slice(8 * s, 8 * s + 8)
            previous = tokens.roll(1, dims=1)[:, cut]
            nats, _, memory = model.segment(parameters, memory, previous, tokens[:, cut], torch.full((3,), starts))
            their_nats = theirs.losses(previous, tokens[:, cut], starts)
            theirs.model.zero_grad()
            their_nats.mean().backward()
            gradients = torch.autograd.grad(nats.mean(), list(parameters.values()), allow_unused=True)
            errors = [((nats - their_nats).norm() / nats.norm()).item()]
            for (name, p), gradient in zip(parameters.items(), gradients):
                gradient = torch.zeros_like(p) if gradient is None else gradient
                difference = (gradient - theirs.gradients()[name]).norm()
                errors.append((difference / gradient.norm()).item() if gradient.norm() > 0 else difference.item())
            worst = max(worst, *errors)
    print(json.dumps({"transformers": transformers.__version__, "largest_relative": worst, "holds": worst <= 1e-11}))
    return worst <= 1e-11


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--data", type=pathlib.Path)
    parser.add_argument("--output", type=pathlib.Path)
    parser.add_argument("--command", default="build/cpu/longstride")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--recipe", default=HERE / "recipes/parity/transformer_xl.yaml")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--bound", type=float, default=1e-5)
    options = parser.parse_args()
    if options.check:
        return 0 if check() else 1
    if options.data is None or options.output is None:
        parser.error("needs --data and --output, or --check")
    options.output.mkdir(parents=True, exist_ok=True)
    longstride(options, "export", "--output", options.output, "--force")
    recipe = read_recipe(options.output / "recipe.yaml")
    batches = read_safetensors(options.output / "batches.safetensors")["tokens"].long()
    held = [compare(options, weights, recipe, batches) for weights in ("longstride", "transformers")]
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
