"""Weights of transformers' Longformer and BigBird, into a run and out of one.

Both compute what an encoder with `norm: post` and `embedding_norm` does, under other names.
"""
import json
import os
import pathlib
import warnings

import torch

from .model.blocks import drawn_blocks
from .model.encoder import CLASSIFY, IDS, PAD, SEPARATE
from .model.keys import UserError, shown
from .tensors import parts_of, path_of, read_file, write_tensors

KINDS = ("longformer", "big_bird")
PREFIX = {"longformer": "longformer.", "big_bird": "bert."}
EPSILON = 1e-5  # of every norm of a run
# Our names of what is in every model, and theirs.
ENDS = {"embedding.token.weight": "embeddings.word_embeddings.weight",
        "embedding.position.0.weight": "embeddings.position_embeddings.weight",
        "embedding.types.weight": "embeddings.token_type_embeddings.weight",
        "embedding.norm": "embeddings.LayerNorm"}
OWN = {"attention.query_key_value": ("query", "key", "value")}  # stacked in one matrix, below attention.self
GLOBAL = {"attention.global_query": ("query_global",), "attention.global_key_value": ("key_global", "value_global")}
LAYER = {"attention.output": "attention.output.dense", "attention_norm": "attention.output.LayerNorm",
         "feed_forward.inner": "intermediate.dense", "feed_forward.outer": "output.dense",
         "feed_forward_norm": "output.LayerNorm"}
MASKED = {"longformer": {"masked.dense": "lm_head.dense", "masked.norm": "lm_head.layer_norm"},
          "big_bird": {"masked.dense": "cls.predictions.transform.dense",
                       "masked.norm": "cls.predictions.transform.LayerNorm"}}
MASKED_BIAS = {"longformer": ("lm_head.bias", "lm_head.decoder.bias"),
               "big_bird": ("cls.predictions.bias", "cls.predictions.decoder.bias")}
MASKED_WEIGHT = {"longformer": "lm_head.decoder.weight", "big_bird": "cls.predictions.decoder.weight"}
# Heads beyond the body: the class of transformers that has the same one, and its name there.
HEADS = {("longformer", "masked"): ("LongformerForMaskedLM", None),
         ("big_bird", "masked"): ("BigBirdForMaskedLM", None),
         ("longformer", "spans"): ("LongformerForQuestionAnswering", "qa_outputs"),
         ("longformer", "sentences"): ("LongformerForTokenClassification", "classifier"),
         ("big_bird", "sentences"): ("BigBirdForTokenClassification", "classifier")}
BODIES = {"longformer": "LongformerModel", "big_bird": "BigBirdModel"}


def both(ours, theirs):
    """Weight and bias of a map or a norm."""
    return [(f"{ours}.{part}", f"{theirs}.{part}") for part in ("weight", "bias")]


def body_names(layers, with_global):
    """Pairs of our name and theirs, several where ours is their stack."""
    pairs = []
    for ours, theirs in ENDS.items():
        pairs += [(ours, (theirs,))] if ours.endswith(".weight") else [(a, (b,)) for a, b in both(ours, theirs)]
    for k in range(layers):
        at = f"encoder.layer.{k}."
        for ours, theirs in LAYER.items():
            pairs += [(a, (b,)) for a, b in both(f"layers.{k}.{ours}", at + theirs)]
        for ours, parts in {**OWN, **(GLOBAL if with_global else {})}.items():
            pairs += [(f"layers.{k}.{ours}.{kind}", tuple(f"{at}attention.self.{part}.{kind}" for part in parts))
                      for kind in ("weight", "bias")]
    return pairs


def refuse_unlike(settings, kind):
    """An encoder that transformers' model of this kind cannot be."""
    wanted = {"norm": "post", "embedding_norm": True, "activation": "gelu", "positions": "learned", "rotary_base": 0,
              "query_key_norm": False, "key_ratio": 1, "attention_bias": True, "feed_forward_bias": True,
              "output_bias": True, "key_heads": settings.heads}
    if settings.objective["kind"] == "masked":
        wanted["tied_output"] = True
    if kind == "longformer":
        wanted["embedding_scale"] = False
    for key, value in wanted.items():
        if (found := getattr(settings, key)) != value:
            raise UserError(f"model.{key} is {shown(found)}, but transformers' {kind} has {shown(value)}")
    if settings.pattern.sink != "none":
        raise UserError("model.attention.sink is learned, but transformers' models have none")


def kind_of(settings):
    """The kind of transformers' models that attends as an encoder does."""
    pattern = settings.pattern
    if pattern.parts == ["local"] and pattern.window_of() % 2 == 1:
        if settings.global_first and not settings.global_own:
            raise UserError("model.global.projections is shared, but global rows of transformers' Longformer have their "
                            "own; begin a run with own ones from this (train --from), and take that")
        return "longformer"
    ends = (settings.global_first, settings.global_last)
    if pattern.parts == ["dense"] and ends == (0, 0):
        return "big_bird"
    if set(pattern.parts) == {"block_window", "random_blocks"} and ends == (1, 1):
        return "big_bird"
    raise UserError(f"model.attention has {shown(pattern.parts)} and model.global {shown(ends)} at the ends, but "
                    "transformers' Longformer has a local window, and its BigBird dense attention, or block_window with "
                    "random_blocks and a block at each end")


def config_of(settings, kind):
    import transformers
    n, pattern = settings.context, settings.pattern
    same = dict(vocab_size=IDS, hidden_size=settings.width, num_hidden_layers=settings.layers,
                num_attention_heads=settings.heads, intermediate_size=settings.inner_width, hidden_act="gelu",
                hidden_dropout_prob=settings.dropout, attention_probs_dropout_prob=0.0, layer_norm_eps=EPSILON,
                type_vocab_size=2 if settings.types == "groups" else 1, pad_token_id=PAD, bos_token_id=CLASSIFY,
                eos_token_id=SEPARATE, sep_token_id=SEPARATE)
    if settings.objective["kind"] == "sentences":
        same["num_labels"] = settings.objective["classes"]
    if kind == "longformer":  # whose positions count from the id of padding on
        return transformers.LongformerConfig(**same, max_position_embeddings=n + PAD + 1,
                                             attention_window=pattern.window_of() - 1)
    if pattern.parts == ["dense"]:
        sparse = {"attention_type": "original_full"}
    else:
        sparse = {"attention_type": "block_sparse", "block_size": pattern.block, "num_random_blocks": pattern.random}
    return transformers.BigBirdConfig(**same, **sparse, max_position_embeddings=n,
                                      rescale_embeddings=settings.embedding_scale)


def their_tensors(settings, kind, weights):
    """Tensors by transformers' names, from ours by our names."""
    made, layers = {}, settings.layers
    for ours, theirs in body_names(layers, kind == "longformer"):
        values = weights.get(ours)
        if ours == "embedding.types.weight" and values is None:
            values = torch.zeros(1, settings.width)
        elif values is None:  # without global rows their projections are those of all
            part, own = ours.rsplit(".", 1)[1], ours.split(".attention.")[0] + ".attention.query_key_value."
            query, *rest = weights[own + part].chunk(3)
            values = query if ".global_query." in ours else torch.cat(rest)
        if ours == "embedding.position.0.weight" and kind == "longformer":
            values = torch.cat([values.new_zeros(PAD + 1, settings.width), values])
        made.update((PREFIX[kind] + name, part) for name, part in zip(theirs, values.chunk(len(theirs))))
    objective = settings.objective["kind"]
    if objective == "masked":
        for ours, theirs in MASKED[kind].items():
            made.update((b, weights[a]) for a, b in both(ours, theirs))
        made.update((name, weights["masked.bias"]) for name in MASKED_BIAS[kind])
        made[MASKED_WEIGHT[kind]] = weights["embedding.token.weight"]
    elif (kind, objective) in HEADS:
        made.update((b, weights[a]) for a, b in both(objective, HEADS[kind, objective][1]))
    return made


def use_blocks(body, settings):
    """transformers draws random blocks in training alone; these are the run's, in every mode."""
    blocks = settings.context // settings.pattern.block
    for k, layer in enumerate(body.encoder.layer):
        plan = [torch.tensor(drawn_blocks(settings.pattern, k, head, blocks)[1:-1]).numpy()
                for head in range(settings.heads)]

        def of_head(*_, _plan=plan, **__):
            return _plan

        own = layer.attention.self
        own._bigbird_block_rand_mask_with_head = of_head
        own._bigbird_block_rand_mask = iterated(plan)


def iterated(plan):
    """In place of a method that is called once per head."""
    calls = [0]

    def of_next(*_, **__):
        calls[0] += 1
        return plan[(calls[0] - 1) % len(plan)]

    return of_next


def to_transformers(model):
    """transformers' Longformer or BigBird with the weights of an encoder, in evaluation mode: LongformerForMaskedLM,
    BigBirdForMaskedLM, or what has the encoder's head; a head that transformers has not is left out.

    Ids are those of a run: bytes, and padding 257. A Longformer's global rows are told to every call, by its
    global_attention_mask. A BigBird draws other random blocks when it is read again from a file.
    """
    import transformers
    settings = getattr(model, "settings", None)
    if settings is None or settings.kind != "encoder":
        raise UserError(f"model is {type(model).__name__}, but transformers' Longformer and BigBird are encoders: give "
                        "one that longstride.load returns")
    kind = kind_of(settings)
    refuse_unlike(settings, kind)
    name, _ = HEADS.get((kind, settings.objective["kind"]), (BODIES[kind], None))
    made = getattr(transformers, name)(config_of(settings, kind))
    tensors = their_tensors(settings, kind, {key: value.detach() for key, value in model.state_dict().items()})
    body = name == BODIES[kind]
    if body:
        tensors = {key[len(PREFIX[kind]):]: value for key, value in tensors.items()}
    tensors = {key: value.clone() for key, value in tensors.items()}
    missing, unknown = made.load_state_dict(tensors, strict=False)
    missing = [key for key in missing if "position_ids" not in key and "pooler." not in key]
    if missing or unknown:
        raise UserError(f"transformers {transformers.__version__} has other tensors than are known here: {missing or unknown}")
    if settings.pattern.random:
        use_blocks(made if body else made.bert, settings)
    return made.to(next(model.parameters()).dtype).eval()


def read_source(source):
    """Settings and tensors of a model of transformers, or of a folder that its save_pretrained has written."""
    if hasattr(source, "state_dict") and hasattr(source, "config"):
        return source.config.to_dict(), dict(source.state_dict())
    from .runs import weight_files
    folder = path_of("source", source)
    if not (folder / "config.json").is_file():
        raise UserError(f"{folder}: has no config.json; name a folder of save_pretrained, or give its model")
    try:
        config = json.loads(read_file(folder / "config.json").decode("utf-8"))
    except (ValueError, RecursionError):
        raise UserError(f"{folder / 'config.json'}: is not JSON") from None
    if not isinstance(config, dict) or config.get("model_type") not in KINDS:
        raise UserError(f"{folder}: its config.json is not of one of {', '.join(KINDS)}")
    return config, {part.name: part.read() for file in weight_files(folder) for part in parts_of(file)[0]}


def number(config, key):
    value = config.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value < 1 << 24:
        raise UserError(f"config.json: '{key}' is {shown(value)}, but must be a positive whole number")
    return value


def recipe_of(config):
    """The keys of `data` and `model` that make a run of the same shape."""
    kind = config["model_type"]
    first = number(config, "pad_token_id") + 1 if kind == "longformer" else 0
    model = {"kind": "encoder", "layers": number(config, "num_hidden_layers"), "width": number(config, "hidden_size"),
             "heads": number(config, "num_attention_heads"), "norm": "post", "activation": "gelu", "embedding_norm": True}
    model["feed_forward_ratio"] = number(config, "intermediate_size") / model["width"]
    context = number(config, "max_position_embeddings") - first
    if kind == "longformer":
        windows = config.get("attention_window")
        windows = windows if isinstance(windows, list) else [windows]
        if len(set(windows)) != 1 or not isinstance(windows[0], int):
            raise UserError(f"config.json: 'attention_window' is {shown(windows)}, but must be one number for all layers")
        model["attention"] = {"integration": "interleaved", "parts": ["local"], "window": windows[0] + 1}
        model["global"] = {"first": 1, "projections": "own"}
    elif config.get("attention_type") == "original_full":
        model["attention"] = {"integration": "interleaved", "parts": ["dense"]}
    else:
        model["attention"] = {"integration": "merged", "parts": ["block_window", "random_blocks"],
                              "block": number(config, "block_size"), "random": number(config, "num_random_blocks")}
        model["global"] = {"first": 1, "last": 1}
    if config.get("rescale_embeddings"):
        model["embedding_scale"] = True
    return {"data": {"context": context}, "model": model}, first


def warn_of_differences(config):
    if config.get("hidden_act") not in ("gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh"):
        raise UserError(f"config.json: 'hidden_act' is {shown(config.get('hidden_act'))}, but an encoder has gelu")
    if config.get("use_bias", True) is not True:
        raise UserError("config.json: 'use_bias' is false, but must be true: projections of an encoder have biases")
    if config["hidden_act"] != "gelu":
        warnings.warn(f"hidden_act is {config['hidden_act']}, and a run computes gelu, which is a little different")
    if config.get("layer_norm_eps") != EPSILON:
        warnings.warn(f"layer_norm_eps is {config.get('layer_norm_eps')}, and that of a run is {EPSILON}")


def our_tensors(config, first, tensors, types):
    """Tensors by our names, from theirs by transformers' names."""
    kind, prefix = config["model_type"], PREFIX[config["model_type"]]
    tensors = {name[len(prefix):] if name.startswith(prefix) else name: value for name, value in tensors.items()}
    made = {}
    for ours, theirs in body_names(config["num_hidden_layers"], kind == "longformer"):
        lacking = [name for name in theirs if name not in tensors]
        if lacking:
            raise UserError(f"the weights have no tensor {lacking[0]}")
        made[ours] = torch.cat([tensors[name].float() for name in theirs])
    of_types = made.pop("embedding.types.weight")
    made["embedding.position.0.weight"] = made["embedding.position.0.weight"][first:]
    if types and of_types.shape[0] != 2:
        raise UserError(f"types is True, but the weights have {of_types.shape[0]} types; leave it out")
    if types:
        made["embedding.types.weight"] = of_types
    else:  # all positions have the first
        made["embedding.position.0.weight"] = made["embedding.position.0.weight"] + of_types[:1]
    if MASKED_BIAS[kind][0] in tensors:
        for ours, theirs in MASKED[kind].items():
            made.update((a, tensors[b].float()) for a, b in both(ours, theirs))
        made["masked.bias"] = tensors[MASKED_BIAS[kind][0]].float()
    for (of_kind, objective), (_, theirs) in HEADS.items():
        if of_kind == kind and theirs is not None and f"{theirs}.weight" in tensors:
            made.update((a, tensors[b].float()) for a, b in both(objective, theirs) if objective == head_of(config))
    return made


def head_of(config):
    names = config.get("architectures") or [""]
    return next((objective for (_, objective), (name, _) in HEADS.items() if name in names), None)


def from_transformers(source, output, types=False):
    """Writes the weights of transformers' Longformer or BigBird as a file for `longstride train --from`. Returns the keys
    of `data` and `model` that its recipe must have, as a map.

    source  a model of transformers, or a folder that its save_pretrained has written
    types   keep the embeddings of two types (`model.types: groups`); otherwise all positions get the first one's
    A table of other ids than a run's is left out with its bias; begin with `--new embedding.token --new masked` then.
    """
    config, tensors = read_source(source)
    if config.get("model_type") not in KINDS:
        raise UserError(f"source is of the kind {shown(config.get('model_type'))}, but must be one of {', '.join(KINDS)}")
    if not config.get("architectures") and hasattr(source, "config"):
        config["architectures"] = [type(source).__name__]
    warn_of_differences(config)
    recipe, first = recipe_of(config)
    made = our_tensors(config, first, tensors, types)
    if made["embedding.token.weight"].shape[0] != IDS:
        for name in ("embedding.token.weight", "masked.bias"):
            made.pop(name, None)
    if types:
        recipe["model"]["types"] = "groups"
    output = path_of("output", output)
    if output.exists():
        raise UserError(f"{output}: exists already; choose another, or remove it")
    part = pathlib.Path(f"{output}.part")
    try:
        write_tensors(part, made, {"format": "pt"})
        os.replace(part, output)
    except OSError as error:
        raise UserError(f"{output}: cannot be written: {error.strerror}") from None
    return recipe
