"""Loads a run, or a folder that `save_pretrained` has written, as a torch.nn.Module."""
import hashlib
import json
import math
import pathlib

import torch

from . import checkpoint as checkpoints
from . import hub, recipe_text
from .kernels import attention_of, use_attention
from .model.decoder import Decoder
from .model.encoder import Encoder
from .model.keys import Keys, UserError, shown
from .model.settings import Settings
from .tensors import TYPES, inside, parts_of, path_of, read_file

KINDS = ("bytes", "cifar10", "images", "audio", "tokens")
SECTIONS = {"name", "reproduces", "unpublished", "data", "model", "train", "optimizer", "objective", "parallel"}
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


class Model(Decoder):
    """The model of a run. `origin` says which: run, step, weights ("last" or "average") and the kind of data, and
    "other_weights" if the run keeps both. `pieces`: the SentencePiece model of its tokens, serialized, if it has one."""

    def __init__(self, settings, origin, pieces=None):
        super().__init__(settings)
        self.origin, self.pieces = origin, pieces

    @property
    def attention(self):
        """Which of "kernels" and "reference" computes attention, on the device and in the type of the weights."""
        return attention_of(self)

    def save_pretrained(self, folder):
        """Writes a new folder in the layout of Hugging Face, with the code that reads it."""
        hub.save_pretrained(self, folder)


class EncoderModel(Encoder):
    """The encoder of a run. `origin` as of Model."""

    attention = "reference"

    def __init__(self, settings, origin):
        super().__init__(settings)
        self.origin = origin

    def save_pretrained(self, folder):
        raise UserError(f"{folder}: save_pretrained writes decoders; keep an encoder's run, or save its state_dict")


def objective_of(objective, kind):
    """What an encoder answers: kind, answers and what is read of a row. Of masks only training and evaluation know."""
    if kind != "encoder":
        objective.choice("kind", ("next_byte",), "next_byte")
        objective.done()
        return {}
    asked = {"kind": objective.choice("kind", ("masked", "classes", "labels", "spans", "sentences"))}
    if asked["kind"] == "sentences":
        asked["classes"] = objective.whole("classes", 2)
    elif asked["kind"] in ("classes", "labels"):
        asked[asked["kind"]] = objective.whole(asked["kind"])
        asked["read"] = objective.choice("read", ("classify", "mean"), "classify")
    if asked["kind"] != "masked":
        objective.done()
    return asked


def windows_of_stage(train, step, where):
    """The windows of the stage in which a run saved the checkpoint of a step; empty: those of `model.distance`."""
    stages = Keys(train, where).take("stages", [])
    for values in stages if isinstance(stages, list) else [stages]:
        stage = Keys(values, f"{where}.stages")
        if step <= stage.whole("until"):
            return stage.take("window", [])
    return []


def settings_of(recipe, step, where):
    """Settings, kind of data and whether the run keeps an average of its weights, from the resolved recipe of a step.

    Every key of `data`, `model` and `objective` is known or refused. Of the other sections only the windows of stages change what
    the model computes.
    """
    sections = Keys(recipe_text.parse(recipe, where), where)
    data, model = Keys(sections.take("data"), f"{where}: data"), sections.take("model")
    train = sections.take("train")
    objective = Keys(sections.take("objective", {}), f"{where}: objective")
    kind_of_model = model.get("kind") if isinstance(model, dict) else None
    asked = objective_of(objective, kind_of_model)
    for name in SECTIONS:
        sections.left.pop(name, None)
    sections.done()
    kind, context = data.choice("kind", KINDS), data.whole("context", most=1 << 24)
    vocabulary = data.whole("vocabulary", 256, least=2, most=65535)
    data.take("path")
    data.flag("cross_files")
    data.choice("order", ("windows", "streams"), "windows")
    data.choice("documents", ("joined", "separate", "rows"), "joined")  # a sequence is one document here
    data.choice("document_positions", ("automatic", "restart", "continue"), "automatic")
    data.done()
    model = dict(model) if isinstance(model, dict) else model
    picture = ()
    if kind in ("cifar10", "images"):
        side = math.isqrt(context // 3)
        if 3 * side * side != context:
            raise UserError(f"{where}: data.context is {context}, but must be 3 x size x size, the bytes of a picture")
        picture = (side, side, 3)
    if isinstance(model, dict):
        model.pop("recompute", None)  # says what training stores, not what the model computes
        for key in {"context", "picture", "vocabulary"} & set(model):
            raise UserError(f"{where}: unknown key '{key}' in model")
        model.update(context=context, picture=picture, vocabulary=vocabulary)
        if kind_of_model == "encoder":
            model["objective"] = asked
        windows = windows_of_stage(train, step, f"{where}: train")
        if windows and isinstance(model.get("distance"), dict):
            model["distance"] = {**model["distance"], "window": windows}
    average = Keys(train, f"{where}: train").number("ema", 0, 0, 1) > 0
    return Settings(model, f"{where}: model"), kind, average


def own_pieces(path, kept):
    """The SentencePiece model of a run's tokens, of which its checkpoints, or its folder's config.json, keep the
    checksum. Folders of earlier versions keep none."""
    pieces = read_file(path)
    if kept is not None and hashlib.sha256(pieces).hexdigest() != kept:
        raise UserError(f"{path}: is not the tokenizer that the run was trained with; put that back, from the data's "
                        "source")
    return pieces


def from_run(run, checkpoint, weights):
    directory, state = checkpoints.choose(run, checkpoint)
    settings, kind, keeps_average = settings_of(state.recipe, state.step, directory / "state.json")
    if weights == "average" and not keeps_average:
        raise UserError(f"{run}: the run keeps no average of its weights (train.ema is 0); use weights=\"last\"")
    averaged = keeps_average and weights != "last"
    origin = {"run": str(run), "step": state.step, "weights": "average" if averaged else "last", "data": kind}
    if keeps_average:
        origin["other_weights"] = "last" if averaged else "average"
    kept = state.data.get("tokenizer") if kind == "tokens" and isinstance(state.data, dict) else None
    pieces = own_pieces(inside(run, hub.PIECES), kept) if kept is not None else None
    return settings, origin, pieces, lambda shapes: checkpoints.read_weights(directory, state, averaged, shapes)


def weight_files(folder):
    """What save_pretrained has written; that of transformers divides a large model between files, with an index.

    In the cache of downloads all of them are links, which are followed.
    """
    whole, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    if whole.is_file() or not index.is_file():
        return [whole]
    content = read_file(index)
    try:
        names = set(json.loads(content.decode("utf-8"))["weight_map"].values())
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        names = {None}
    if not all(isinstance(name, str) and checkpoints.FILE.fullmatch(name) for name in names):
        raise UserError(f"{index}: must be JSON whose 'weight_map' names a file of this folder for every tensor")
    return [folder / name for name in sorted(names)]


def from_pretrained(folder, checkpoint, weights):
    if checkpoint != "last" or weights != "automatic":
        raise UserError(f"{folder}: is written by save_pretrained and holds one set of weights; leave checkpoint and "
                        "weights out")
    path = folder / "config.json"
    content = read_file(path)
    try:
        config = json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError):
        raise UserError(f"{path}: is not JSON") from None
    if not isinstance(config, dict) or not hub.is_ours(config):
        raise UserError(f"{path}: is not of a model that Longstride wrote (export --hf, or save_pretrained), whose code is "
                        f"{hub.CLASS}")

    def read(shapes):
        found = [part for file in weight_files(folder) for part in parts_of(file)[0]]
        for part in found:
            part.name = part.name[len(hub.PREFIX):] if part.name.startswith(hub.PREFIX) else part.name
        double = any(part.dtype == torch.float64 for part in found)
        return checkpoints.joined(found, shapes, folder, torch.float64 if double else torch.float32, TYPES.values())

    origin = config.get("origin")
    origin = origin if isinstance(origin, dict) else {}
    has_pieces = origin.get("data") == "tokens" and (folder / hub.PIECES).is_file()
    pieces = own_pieces(folder / hub.PIECES, origin.get("tokenizer")) if has_pieces else None
    return Settings(config.get("settings"), f"{path}: settings"), origin, pieces, read


def device_of(device):
    try:
        device = torch.device(device)
        torch.empty(0, device=device)
    except (RuntimeError, TypeError, AssertionError, NotImplementedError, ImportError) as error:
        why = str(error).strip().split("\n")[0].split(". ")[0]
        raise UserError(f"device is {shown(str(device))}, but must be one that PyTorch has here, such as \"cpu\": {why}"
                        ) from None
    if device.type == "meta":
        raise UserError('device is "meta", whose tensors hold no values, but must be one that keeps the weights, such '
                        'as "cpu"')
    return device


def load(run, checkpoint="last", weights="automatic", device="cpu", dtype=torch.float32, attention="auto"):
    """A module that computes what the run computes, in evaluation mode.

    run         a run's directory, or a folder that `save_pretrained` has written
    checkpoint  "last", "best" (lowest validation loss) or a step, as `longstride eval --checkpoint`
    weights     "automatic" (the average if the run keeps one), "last" or "average"
    dtype       of weights and activations: torch.float32, float64, bfloat16 or float16
    attention   "kernels" (Longstride's), "reference" (PyTorch, a mask over scores), or "auto": kernels if they are
                built and take this model on this device, otherwise the reference
    """
    if weights not in ("automatic", "last", "average"):
        raise UserError(f"weights is {shown(weights)}, but must be automatic, last or average")
    if dtype not in DTYPES:
        raise UserError(f"dtype is {shown(str(dtype))}, but must be one of {', '.join(map(str, DTYPES))}")
    run, device = path_of("run", run), device_of(device)
    read = from_pretrained if (run / "config.json").is_file() else from_run
    settings, origin, pieces, read_weights = read(run, checkpoint, weights)
    encoder = settings.kind == "encoder"
    if encoder and attention == "kernels":
        raise UserError('attention is "kernels", but encoders are computed by PyTorch alone; use "reference"')
    model = EncoderModel(settings, origin) if encoder else Model(settings, origin, pieces)
    shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    model.to(device=device, dtype=dtype)
    model.load_state_dict(read_weights(shapes))
    if not encoder:
        use_attention(model, attention)
    return model.eval()
