"""Times steps of Hugging Face's encoders (the package transformers), with the shape of recipes/encoders/*-base.yaml, on bytes.

    encoder --model longformer|bigbird [--layers 12] [--width 768] [--heads 12] [--inner 3072] [--segment 4096] [--batch 8]

Windows of 256 keys on each side and one global position; blocks of 64 with both neighbours, three random ones and a global
block at either end. Without dropout; every position is asked, which costs the peer a product with 260 rows. The model is
compiled as far as PyTorch can. Only `time`: encoders.py has losses next to ours.
"""
import torch
import torch.nn.functional as F
from torch import nn

from frame.system import System

IDS = 260


def config_of(o):
    import transformers

    same = dict(vocab_size=IDS, hidden_size=o.width, num_hidden_layers=o.layers, num_attention_heads=o.heads,
                intermediate_size=o.inner, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, type_vocab_size=1)
    if o.model == "longformer":
        return transformers.LongformerForMaskedLM, transformers.LongformerConfig(
            **same, attention_window=[512] * o.layers, max_position_embeddings=o.segment + 2, pad_token_id=1)
    return transformers.BigBirdForMaskedLM, transformers.BigBirdConfig(
        **same, attention_type="block_sparse", block_size=64, num_random_blocks=3, max_position_embeddings=o.segment)


class Masked(nn.Module):
    def __init__(self, o):
        super().__init__()
        kind, config = config_of(o)
        self.body = kind(config)
        self.register_buffer("is_global", (torch.arange(o.segment) == 0).long()[None] if o.model == "longformer" else None)

    def forward(self, tokens, targets, memories):
        how = {} if self.is_global is None else {"global_attention_mask": self.is_global.expand_as(tokens)}
        logits = self.body(tokens + 2, **how).logits  # ids below are padding's
        return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten()), []


class Encoder(System):
    name, forms = "encoder", ["hugging_face"]
    options = dict(model="longformer", layers=12, width=768, heads=12, inner=3072, segment=4096, memory=0, batch=8)

    def complete(self, o):
        if o.model not in ("longformer", "bigbird"):
            raise SystemExit(f"encoder: --model is {o.model}, but must be longformer or bigbird")
        if o.verb != "time":
            raise SystemExit(f"encoder: there is no `{o.verb}`; tests/peers/encoders.py compares losses")
        o.model_name, o.graph = o.model, 0  # both copy from the host in every step, which a graph refuses

    def build(self, o):
        model = Masked(o).to(o.device).train()
        if o.compile:
            model.body.compile(dynamic=False)
        return model

    def memories(self, o, model, batch):
        return []


SYSTEM = Encoder()
