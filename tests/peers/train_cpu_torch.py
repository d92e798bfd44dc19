#!/usr/bin/env python3
"""Times a training step of a recipe's model in PyTorch on the CPU: the peer of `longstride train`.

    python3 tests/peers/train_cpu_torch.py RECIPE [--threads 2] [--steps 7] [--forms masked,blocked] [--compile both]

The same model, loss, dropout, clipping and optimizer (fused AdamW), float32, nothing recomputed. Every form of the
pattern's attention that applies (attention_torch.py) is checked against the reference on the first batch and timed,
eager and compiled. Prints one JSON object per form and, last, the fastest. Needs torch and PyYAML.
"""
import argparse
import json
import math
import os
import pathlib
import statistics
import sys
import time


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=7, help="timed steps; two more run before them")
    parser.add_argument("--batch", type=int, default=0, help="sequences in a step; 0: the recipe's global_batch")
    parser.add_argument("--forms", default="causal,masked,blocked,blocked_loop")
    parser.add_argument("--compile", choices=["no", "yes", "both"], default="both")
    return parser.parse_args()


if __name__ == "__main__":
    options = arguments()
    os.environ["OMP_NUM_THREADS"] = str(options.threads)

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
import yaml  # noqa: E402
from torch import nn  # noqa: E402

from attention_torch import FORMS, Unsupported  # noqa: E402
from reference import Reference  # noqa: E402


class Block(nn.Module):
    def __init__(self, reference, layer, form):
        super().__init__()
        d, h = reference.width, reference.heads
        self.heads, self.sizes = h, [h * reference.key_size, h * reference.key_size, h * reference.value_size]
        self.dropout = reference.model.get("dropout", 0.0)
        self.attention_norm, self.feed_forward_norm = nn.LayerNorm(d), nn.LayerNorm(d)
        self.query_key_value, self.output = nn.Linear(d, sum(self.sizes)), nn.Linear(self.sizes[2], d)
        self.inner, self.outer = nn.Linear(d, reference.inner), nn.Linear(reference.inner, d)
        self.attend = FORMS[form](reference.attention, layer, h, reference.context)

    def forward(self, x):
        batch, n, _ = x.shape
        q, k, v = self.query_key_value(self.attention_norm(x)).split(self.sizes, -1)
        heads = lambda t: t.view(batch, n, self.heads, -1).transpose(1, 2)
        o = self.attend(heads(q), heads(k), heads(v)).transpose(1, 2).reshape(batch, n, -1)
        x = x + F.dropout(self.output(o), self.dropout, self.training)
        z = self.inner(self.feed_forward_norm(x))
        return x + F.dropout(self.outer(z * torch.sigmoid(1.702 * z)), self.dropout, self.training)


class Model(nn.Module):
    def __init__(self, reference, form):
        super().__init__()
        if reference.rotary_base or reference.query_key_norm or not reference.positions:
            raise SystemExit("this script has only the paper's model: no rotary_base, no query_key_norm, and position tables")
        d = reference.width
        self.start, self.token = nn.Parameter(torch.zeros(d)), nn.Embedding(256, d)
        self.tables = nn.ModuleList(nn.Embedding(rows, d) for rows, _ in reference.positions)
        i = torch.arange(reference.context)
        self.register_buffer("index", torch.stack([index(i) for _, index in reference.positions]))
        self.blocks = nn.ModuleList(Block(reference, layer, form) for layer in range(reference.layers))
        self.final_norm, self.output = nn.LayerNorm(d), nn.Linear(d, 256, bias=False)

    def forward(self, tokens):
        start = self.start.expand(len(tokens), 1, -1)
        x = torch.cat([start, self.token(tokens[:, :-1])], 1)
        for table, index in zip(self.tables, self.index):
            x = x + table(index)
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.output(self.final_norm(x)).flatten(0, 1), tokens.flatten())


def initialise(model, layers):
    torch.manual_seed(1)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.ndim == 2:
                scale = 1 / math.sqrt(2 * layers) if name.endswith(("output.weight", "outer.weight")) else 1
                p.normal_(0, scale * math.sqrt(0.125 / p.shape[1]))
            elif "norm" not in name:
                p.normal_(0, 0.02)


BRANCHES = {"query_key_value": "attention", "output": "attention", "inner": "feed_forward", "outer": "feed_forward"}


def reference_parameters(model):
    """The model's parameters under the reference's names."""
    named = {}
    for name, p in model.named_parameters():
        name = name.replace("blocks.", "layers.").replace("tables.", "embedding.position.")
        name = {"start": "embedding.start", "token.weight": "embedding.token.weight"}.get(name, name)
        if name.startswith("layers."):
            for linear, branch in BRANCHES.items():
                name = name.replace(f".{linear}.", f".{branch}.{linear}.")
        named[name] = p.detach()
    return named


def timed(form, compiled, reference, batch, steps, expected, tokens):
    torch._dynamo.reset()
    model = Model(reference, form)
    initialise(model, reference.layers)
    model.eval()
    with torch.no_grad():
        loss = model(tokens).item()
    if abs(loss - expected) > 1e-4 * expected:
        raise SystemExit(f"{form}: loss {loss}, but the reference has {expected}")
    model.train()
    groups = [
        {"params": [p for p in model.parameters() if p.ndim > 1], "weight_decay": 0.01},
        {"params": [p for p in model.parameters() if p.ndim == 1], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=1e-4, fused=True)
    run = torch.compile(model, dynamic=False) if compiled else model
    seconds, cpu_seconds = [], []
    for _ in range(steps + 2):
        began, cpu_began = time.perf_counter(), time.process_time()
        optimizer.zero_grad(set_to_none=True)
        run(tokens).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        seconds.append(time.perf_counter() - began)
        cpu_seconds.append(time.process_time() - cpu_began)
    median = statistics.median(seconds[2:])
    return {
        "form": form, "compiled": compiled, "seconds_per_step": round(median, 4),
        "fastest_step": round(min(seconds[2:]), 4),
        "cpu_seconds_per_step": round(statistics.median(cpu_seconds[2:]), 4), "tokens_per_second": round(batch * reference.context / median, 1),
    }


def main():
    recipe = yaml.safe_load(pathlib.Path(options.recipe).read_text())
    torch.set_num_threads(options.threads)
    reference = Reference(recipe["model"], recipe["data"])
    batch = options.batch or recipe["train"]["global_batch"]
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(0, 256, (batch, reference.context), generator=generator)
    model = Model(reference, "masked")
    initialise(model, reference.layers)
    with torch.no_grad():
        expected = reference.losses(reference_parameters(model), tokens).mean().item()
    print(json.dumps({"torch": torch.__version__, "threads": torch.get_num_threads(), "recipe": options.recipe,
                      "batch": batch, "context": reference.context,
                      "parameters": sum(p.numel() for p in model.parameters())}), flush=True)
    results = []
    for form in options.forms.split(","):
        for compiled in {"no": [False], "yes": [True], "both": [False, True]}[options.compile]:
            try:
                results.append(timed(form, compiled, reference, batch, options.steps, expected, tokens))
                print(json.dumps(results[-1]), flush=True)
            except Unsupported:
                break
            except Exception as error:  # a form that this PyTorch cannot compile is reported, and the next one tried
                print(json.dumps({"form": form, "compiled": compiled, "failed": repr(error)[:300]}), flush=True)
    print(json.dumps({"fastest": max(results, key=lambda r: r["tokens_per_second"])}))


if __name__ == "__main__":
    sys.exit(main())
