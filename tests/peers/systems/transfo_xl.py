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

from frame.stepping import inputs_of
from frame.system import EVERY, System, gathered, load

transformers.logging.set_verbosity_error()
torch_type_as = torch.Tensor.type_as
torch.Tensor.type_as = lambda x, other=None, dtype=None: torch_type_as(x, other) if dtype is None else x.to(dtype)

START = 256  # the id that stands for the start of a stream

# Keys of a recipe: the value with which the two models are the same, and the one that an absent key stands for.
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
    """[(our name, their name, rows of it)]."""
    token = "transformer.word_emb.emb_layers.0.weight"
    assert theirs.crit.out_layers[0].weight is theirs.transformer.word_emb.emb_layers[0].weight, "not tied"
    found = [("embedding.start", token, START), ("embedding.token.weight", token, slice(START)),
             ("output.bias", "crit.out_layers.0.bias", slice(START))]

    def biases(name, their_name):
        found.extend([(name + "content_bias", their_name + "r_w_bias", EVERY),
                      (name + "position_bias", their_name + "r_r_bias", EVERY)])

    if not config.untie_r:
        biases("distance.", "transformer.")
    for k in range(config.n_layer):
        ours, attention, feed_forward = (
            f"layers.{k}.", f"transformer.layers.{k}.dec_attn.", f"transformer.layers.{k}.pos_ff.")
        if config.untie_r:
            biases(ours + "attention.", attention)
        for name, their_name in (("query_key_value", "qkv_net"), ("output", "o_net"), ("distance", "r_net")):
            found.append((f"{ours}attention.{name}.weight", f"{attention}{their_name}.weight", EVERY))
        both = {"attention_norm": attention + "layer_norm", "feed_forward_norm": feed_forward + "layer_norm",
                "feed_forward.inner": feed_forward + "CoreNet.0", "feed_forward.outer": feed_forward + "CoreNet.3"}
        for part in ("weight", "bias"):
            found += [(f"{ours}{name}.{part}", f"{their_name}.{part}", EVERY) for name, their_name in both.items()]
    return found


class TransfoXL:
    def __init__(self, model, seed=1, dtype=torch.float32):
        torch.manual_seed(seed)
        config = config_of(model)
        self.model = TransfoXLLMHeadModel(config).to(dtype)
        self.places = places(self.model, config)
        self.parameters = dict(self.model.named_parameters())
        self.parameters["crit.out_layers.0.bias"].data[START] = -1e9
        covered = {place for _, place, _ in self.places}
        assert covered == self.parameters.keys(), covered ^ self.parameters.keys()
        self.memory = None

    def weights(self):
        return {name: t.detach().clone() for name, t in gathered(self.places, self.parameters).items()}

    def gradients(self):
        return gathered(self.places, {name: p.grad for name, p in self.parameters.items()})

    def load(self, weights):
        load(self.places, self.parameters, weights)

    def losses(self, tokens, targets, starts):
        """Nats of the next segment, (batch, positions). If `starts`, every row starts a stream."""
        self.memory = None if starts else self.memory
        out = self.model(input_ids=tokens, mems=self.memory)
        self.memory = out.mems
        return -out.prediction_scores.gather(-1, targets[..., None])[..., 0]


class Checked(System):
    """Their model as `run.py check` takes it: memory of fewer and of more positions than a segment, biases of the model and
    of layers, and distances that one row stands for."""

    name, forms, parameters, rounding = "transfo_xl", ["huggingface"], None, 1e-11
    options = dict(layers=3, width=16, heads=2, segment=8, memory=12, batch=3)
    tiny = [dict(distance={"table": "sinusoid", "biases": "model", **more}, memory=length)
            for length, more in ((12, {}), (5, {"biases": "layer"}), (24, {"distances": 20}),
                                 (12, {"biases": "layer", "distances": 7}))]

    def complete(self, o):
        o.inner = 4 * o.width

    def as_recipe(self, o):
        return {"distance": o.distance, "memory": {"length": o.memory, "start": "zeros"}}

    def results(self, o, weights, text):
        exact, theirs = o.dtype == torch.float64, TransfoXL(self.reference(o).model, dtype=o.dtype)
        theirs.load(weights)
        if exact:  # their sinusoids are rounded to fp32 otherwise, and so are scores, where `float` is called on them
            theirs.model.transformer.pos_emb.inv_freq = 10000.0 ** (-torch.arange(0, o.width, 2, dtype=o.dtype) / o.width)
        to_float, losses = torch.Tensor.float, []
        torch.Tensor.float = (lambda tensor: tensor) if exact else to_float
        try:
            for s in range(text.shape[1] // o.segment):
                targets = text[:, s * o.segment : (s + 1) * o.segment]
                tokens = inputs_of(targets, text[:, max(0, s * o.segment - 1)][:, None], s == 0)
                loss = theirs.losses(tokens, targets, s == 0).mean()
                loss.backward()
                losses.append(loss.detach())
        finally:
            torch.Tensor.float = to_float
        return {"losses": torch.stack(losses), **theirs.gradients()}


SYSTEM = Checked()
