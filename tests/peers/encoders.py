"""Encoders next to Hugging Face's: the same weights and rows, and every step's loss of a run.

    encoders.py EXPORTED METRICS [--bound 1e-4]

EXPORTED: what `longstride export RECIPE --steps N` wrote; METRICS: metrics.jsonl of the run of that recipe, in fp32 with Adam,
a constant rate, `log_every: 1`, no weight decay and no clipping. The recipe has `norm: post`, `embedding_norm: true` and no
dropout. A `local` part is transformers' Longformer, with global rows that have projections of their own; `random_blocks` is its
BigBird, whose random plan is replaced by ours, drawn by tests/golden/random_blocks.py. The first loss must agree to 1e-5
relative, all of them to --bound. Exits with 1 if one does not.
"""
import argparse
import json
import pathlib
import sys

import numpy
import torch
import torch.nn.functional as F
import transformers

HERE = pathlib.Path(__file__).resolve().parent
sys.path += [str(HERE), str(HERE.parent / "golden")]

from frame import text  # noqa: E402
from random_blocks import drawn_blocks  # noqa: E402


def shared_config(recipe):
    m, n = recipe["model"], recipe["data"]["context"]
    return dict(vocab_size=260, hidden_size=m["width"], num_hidden_layers=m["layers"], num_attention_heads=m["heads"],
                intermediate_size=int(m["width"] * m["feed_forward_ratio"]), hidden_act="gelu", hidden_dropout_prob=0.0,
                attention_probs_dropout_prob=0.0, max_position_embeddings=n, type_vocab_size=1, layer_norm_eps=1e-5,
                pad_token_id=None)


def longformer(recipe):
    m = recipe["model"]
    config = transformers.LongformerConfig(
        **{**shared_config(recipe), "pad_token_id": 1}, attention_window=m["attention"]["window"] - 1)
    model = transformers.LongformerForMaskedLM(config)

    def scores(tokens):
        is_global = torch.zeros_like(tokens)
        is_global[:, : m["global"]["first"]] = 1
        places = torch.arange(tokens.shape[1]).expand_as(tokens)
        return model(tokens, global_attention_mask=is_global, position_ids=places).logits

    head = model.lm_head
    return model, scores, model.longformer, (head.dense, head.layer_norm, head.bias)


def big_bird(recipe):
    m, attention, n = recipe["model"], recipe["model"]["attention"], recipe["data"]["context"]
    config = transformers.BigBirdConfig(**{**shared_config(recipe), "pad_token_id": 0}, attention_type="block_sparse",
                                        block_size=attention["block"], num_random_blocks=attention["random"])
    model = transformers.BigBirdForMaskedLM(config)
    for k, layer in enumerate(model.bert.encoder.layer):
        plan = [numpy.array(drawn_blocks(attention["seed"], k, head, n // attention["block"], attention["random"])[1:-1])
                for head in range(m["heads"])]
        own = layer.attention.self
        own._bigbird_block_rand_mask_with_head = lambda *_, plan=plan, **__: plan
    head = model.cls.predictions
    return model, lambda tokens: model(tokens).logits, model.bert, (head.transform.dense, head.transform.LayerNorm, head.bias)


def load(body, head, tensors, width):
    """Copies our tensors; returns the parameters that have none, which stay zero and are not trained."""
    def put(module, name):
        for kind in ("weight", "bias"):
            getattr(module, kind).data.copy_(tensors.pop(f"{name}.{kind}"))

    for p in body.embeddings.token_type_embeddings.parameters():
        p.data.zero_()
        p.requires_grad_(False)
    for table in (body.embeddings.word_embeddings, body.embeddings.position_embeddings):
        table.padding_idx = None  # the row of a padding id gets no gradient otherwise
    body.embeddings.word_embeddings.weight.data.copy_(tensors.pop("embedding.token.weight"))
    body.embeddings.position_embeddings.weight.data.copy_(tensors.pop("embedding.position.0.weight"))
    put(body.embeddings.LayerNorm, "embedding.norm")
    for k, layer in enumerate(body.encoder.layer):
        own, name = layer.attention.self, f"layers.{k}"
        of = {"query_key_value": (own.query, own.key, own.value)}
        if hasattr(own, "query_global"):
            of |= {"global_query": (own.query_global,), "global_key_value": (own.key_global, own.value_global)}
        for stacked, parts in of.items():
            for kind in ("weight", "bias"):
                for part, values in zip(parts, tensors.pop(f"{name}.attention.{stacked}.{kind}").split(width)):
                    getattr(part, kind).data.copy_(values)
        put(layer.attention.output.dense, f"{name}.attention.output")
        put(layer.attention.output.LayerNorm, f"{name}.attention_norm")
        put(layer.intermediate.dense, f"{name}.feed_forward.inner")
        put(layer.output.dense, f"{name}.feed_forward.outer")
        put(layer.output.LayerNorm, f"{name}.feed_forward_norm")
    dense, norm, bias = head
    put(dense, "masked.dense")
    put(norm, "masked.norm")
    bias.data.copy_(tensors.pop("masked.bias"))
    if tensors:
        raise SystemExit(f"encoders: {sorted(tensors)} have no place")


def losses(folder, steps):
    recipe = text.read_recipe((folder / "recipe.yaml").read_text())
    model, scores, body, head = (big_bird if "random_blocks" in recipe["model"]["attention"]["parts"] else longformer)(recipe)
    load(body, head, text.read_safetensors(folder / "initial.safetensors"), recipe["model"]["width"])
    model.train()  # without dropout; BigBird replaces its plan by zeros elsewhere
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
