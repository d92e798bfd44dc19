"""Encoders next to Hugging Face's: the same weights and rows, and every step's loss of a run.

    encoders.py EXPORTED METRICS [--bound 1e-4]

EXPORTED: what `longstride export RECIPE --steps N` wrote; METRICS: metrics.jsonl of the run of that recipe, in fp32 with Adam,
a constant rate, `log_every: 1`, no weight decay and no clipping. The recipe has `norm: post`, `embedding_norm: true` and no
dropout. The peer is what longstride.to_transformers makes of the exported weights, with our random blocks. The first loss must
agree to 1e-5 relative, all of them to --bound. Exits with 1 if one does not.
"""
import argparse
import json
import pathlib
import sys

import torch
import torch.nn.functional as F

HERE = pathlib.Path(__file__).resolve().parent
sys.path += [str(HERE), str(HERE.parents[1] / "launch" / "python")]

import longstride  # noqa: E402
from frame import text  # noqa: E402
from longstride.model.encoder import Encoder  # noqa: E402


def model_of(recipe, tensors):
    """transformers' model with our weights, and its scores. What we have no parameter for is not trained."""
    m = recipe["model"]
    ours = Encoder({**m, "context": recipe["data"]["context"], "picture": (), "objective": {"kind": "masked"}})
    ours.load_state_dict(tensors)
    model = longstride.to_transformers(ours)
    body = model.longformer if "longformer" in model.config.model_type else model.bert
    for p in body.embeddings.token_type_embeddings.parameters():
        p.requires_grad_(False)
    for table in (body.embeddings.word_embeddings, body.embeddings.position_embeddings):
        table.padding_idx = None  # the row of a padding id gets no gradient otherwise

    def scores(tokens):
        if model.config.model_type != "longformer":
            return model(tokens).logits
        is_global = torch.zeros_like(tokens)
        is_global[:, : m["global"]["first"]] = 1
        return model(tokens, global_attention_mask=is_global).logits

    return model, scores


def losses(folder, steps):
    recipe = text.read_recipe((folder / "recipe.yaml").read_text())
    model, scores = model_of(recipe, text.read_safetensors(folder / "initial.safetensors"))
    model.train()
    t = recipe["train"]
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.Adam(trained, t["lr"], (t["beta1"], t["beta2"]), t["epsilon"])
    rows = text.read_safetensors(folder / "batches.safetensors")
    for step in range(steps):
        tokens, targets, weights = (rows[name][step] for name in ("tokens", "targets", "weights"))
        loss = F.cross_entropy(scores(tokens.long()).flatten(0, 1), targets.long().flatten(), reduction="none")
        loss = (loss * weights.flatten()).sum() / weights.sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.item()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("exported", type=pathlib.Path)
    parser.add_argument("metrics", type=pathlib.Path)
    parser.add_argument("--bound", type=float, default=1e-4)
    o = parser.parse_args()
    ours = [line["loss"] for line in map(json.loads, o.metrics.read_text().splitlines()) if "grad_norm" in line]
    differences = [abs(a - b) / abs(b) for a, b in zip(ours, losses(o.exported, len(ours)))]
    print(json.dumps({"steps": len(ours), "first": differences[0], "largest": max(differences)}))
    sys.exit(0 if differences[0] <= 1e-5 and max(differences) <= o.bound else 1)


if __name__ == "__main__":
    main()
