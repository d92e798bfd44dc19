"""Hugging Face's Transformer-XL with the names, the start and the streams of ours.

Their memory begins as zeros that receive weight (our model.memory.start: zeros). They have no vector for a stream's start:
here their vocabulary has one id more, which is read there and never predicted, because its output has a bias of -1e9.

As released with transformers 4.57.6, the last version that has it, the model does not run: it calls Tensor.type_as with a
keyword that PyTorch refuses. Here type_as takes that keyword.
"""
import sys

import torch
import transformers
from transformers.models.deprecated.transfo_xl import TransfoXLConfig, TransfoXLLMHeadModel

transformers.logging.set_verbosity_error()
torch_type_as = torch.Tensor.type_as
torch.Tensor.type_as = lambda x, other=None, dtype=None: torch_type_as(x, other) if dtype is None else x.to(dtype)

START = 256  # the id that stands for the start of a stream

# What a recipe must say for the two models to be the same, and what it says without the key.
SAME = {"norm": ("post", "pre"), "activation": ("relu", "sigmoid_gelu"), "attention_bias": (False, True),
        "feed_forward_bias": (True, True), "tied_output": (True, False), "output_bias": (True, False),
        "embedding_scale": (True, False), "positions": ("none", "attention"), "dropout": (0, 0), "rotary_base": (0, 0),
        "query_key_norm": (False, False), "distance.table": ("sinusoid", "sinusoid"), "distance.window": (0, 0),
        "distance.self": (True, True), "distance.dropout": (0, 0), "memory.start": ("zeros", "empty"),
        "memory.compressed": (0, 0)}


def config_of(model):
    """From `model:` of a resolved recipe."""
    for key, (wanted, default) in SAME.items():
        group, _, name = key.rpartition(".")
        found = (model[group] if group else model).get(name, default)
        if found not in (wanted, [wanted], []):
            sys.exit(f"model.{key} is {found!r}, but TransfoXLLMHeadModel has {wanted!r}")
    width, heads, distance = model["width"], model["heads"], model["distance"]
    if distance["biases"] == "none" or distance.get("span"):
        sys.exit("TransfoXLLMHeadModel has biases of distances, and no learned spans")
    rows = distance.get("distances", 0)
    return TransfoXLConfig(
        vocab_size=START + 1, cutoffs=[], div_val=1, d_model=width, d_embed=width, n_head=heads,
        d_head=round(model.get("key_ratio", 1.0) * width / heads),
        d_inner=round(model.get("feed_forward_ratio", 4.0) * width), n_layer=model["layers"],
        mem_len=model["memory"]["length"], clamp_len=rows - 1 if rows > 0 else -1, same_length=False,
        untie_r=distance["biases"] == "layer", pre_lnorm=False, dropout=0.0, dropatt=0.0, tie_word_embeddings=True)


def places(theirs, config):
    """Our names: the name of their tensor, and which of its rows."""
    token, every = "transformer.word_emb.emb_layers.0.weight", slice(None)
    assert theirs.crit.out_layers[0].weight is theirs.transformer.word_emb.emb_layers[0].weight, "not tied"
    found = {"embedding.start": (token, START), "embedding.token.weight": (token, slice(START)),
             "output.bias": ("crit.out_layers.0.bias", slice(START))}

    def biases(name, their_name):
        found[name + "content_bias"] = (their_name + "r_w_bias", every)
        found[name + "position_bias"] = (their_name + "r_r_bias", every)

    if not config.untie_r:
        biases("distance.", "transformer.")
    for k in range(config.n_layer):
        ours, attention, feed_forward = (
            f"layers.{k}.", f"transformer.layers.{k}.dec_attn.", f"transformer.layers.{k}.pos_ff.")
        if config.untie_r:
            biases(ours + "attention.", attention)
        for name, their_name in (("query_key_value", "qkv_net"), ("output", "o_net"), ("distance", "r_net")):
            found[f"{ours}attention.{name}.weight"] = (f"{attention}{their_name}.weight", every)
        for part in ("weight", "bias"):
            found[f"{ours}attention_norm.{part}"] = (f"{attention}layer_norm.{part}", every)
            found[f"{ours}feed_forward_norm.{part}"] = (f"{feed_forward}layer_norm.{part}", every)
            found[f"{ours}feed_forward.inner.{part}"] = (f"{feed_forward}CoreNet.0.{part}", every)
            found[f"{ours}feed_forward.outer.{part}"] = (f"{feed_forward}CoreNet.3.{part}", every)
    return found


class TransfoXL:
    def __init__(self, model, seed=1, dtype=torch.float32):
        torch.manual_seed(seed)
        config = config_of(model)
        self.model = TransfoXLLMHeadModel(config).to(dtype)
        self.places = places(self.model, config)
        self.parameters = dict(self.model.named_parameters())
        self.parameters["crit.out_layers.0.bias"].data[START] = -1e9
        covered = {name for name, _ in self.places.values()}
        assert covered == self.parameters.keys(), covered ^ self.parameters.keys()
        self.memory = None

    def of_ours(self, name, tensors):
        """Where our tensor of this name is among tensors by their names."""
        their_name, rows = self.places[name]
        found = tensors[their_name][rows]
        return found.flatten() if name.endswith(("content_bias", "position_bias")) else found

    def weights(self):
        return {name: self.of_ours(name, self.parameters).detach().clone() for name in self.places}

    def gradients(self):
        theirs = {name: p.grad for name, p in self.parameters.items()}
        return {name: self.of_ours(name, theirs) for name in self.places}

    def load(self, weights):
        assert weights.keys() == self.places.keys(), weights.keys() ^ self.places.keys()
        with torch.no_grad():
            for name, w in weights.items():
                self.of_ours(name, self.parameters).copy_(w)

    def losses(self, previous, targets, starts):
        """Nats of the next segment, (batch, positions). If `starts`, every row starts a stream."""
        read = previous.clone()
        if starts:
            self.memory = None
            read[:, 0] = START
        out = self.model(input_ids=read, mems=self.memory)
        self.memory = out.mems
        return -out.prediction_scores.gather(-1, targets[..., None])[..., 0]
