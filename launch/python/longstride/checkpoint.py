"""Finds a checkpoint of a run and reads its state and weights, with the rules of `longstride eval`.

RUN/checkpoints/step-00001000/ has state.json (framework/train/checkpoint/checkpoint.h), model.safetensors with the
weights and, if the run keeps their average, ema*.safetensors.
"""
import hashlib
import json
import math
import os
import pathlib
import re
import warnings

import torch

from .model.keys import UserError, as_whole, shown
from .tensors import inside, is_hollow, open_file, pairs_once, parts_of, read_file

NEWEST_VERSION = 4
STEP = re.compile(r"step-([0-9]{8,18})")
RANGE = re.compile(r"(.+)\[([0-9]{1,18}):([0-9]{1,18})\]")
FILE = re.compile(r"[^/.\0][^/\0]*")


class Number(str):
    """A number of a JSON file, as it is written there: its checksum covers these characters."""


def canonical(value):
    """JSON with sorted keys and without spaces, which is what state.json's checksum is of."""
    if isinstance(value, dict):
        pairs = (f"{canonical(key)}:{canonical(value[key])}" for key in sorted(value))
        return "{" + ",".join(pairs) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(canonical, value)) + "]"
    return str(value) if isinstance(value, Number) else json.dumps(value, ensure_ascii=False)


class State:
    """What state.json says, checked."""

    def __init__(self, path):
        self.path = path
        content = read_file(path)
        try:
            text = content.decode("utf-8")
            self.values = json.loads(text, object_pairs_hook=pairs_once, parse_int=Number, parse_float=Number)
        except (ValueError, RecursionError):
            raise UserError(f"{path}: is not a JSON object") from None
        if not isinstance(self.values, dict) or self.values.get("format") != "longstride checkpoint":
            raise UserError(f"{path}: is not the state of a checkpoint")
        checksum = self.values.pop("checksum", None)
        if checksum != self.checksum():
            raise UserError(f"{path}: its content does not match its checksum")
        self.version = self.whole("version", least=1)
        self.later = self.version > NEWEST_VERSION
        if self.later:
            return
        self.step = self.whole("step")
        self.recipe = self.values.get("recipe")
        if not isinstance(self.recipe, str):
            raise UserError(f"{path}: 'recipe' must be text")
        self.data = self.values.get("data", {})
        self.valid_bytes = self.whole("valid_bytes") if "valid_bytes" in self.values else 0
        self.valid_loss = self.number_or_none("valid_loss")
        self.files = self.values.get("files")
        self.check_files()

    def checksum(self):
        try:
            return hashlib.sha256(canonical(self.values).encode("utf-8")).hexdigest()
        except (ValueError, RecursionError):  # a lone surrogate, or nesting without end
            return None

    def whole(self, key, least=0):
        value = self.values.get(key)
        if not isinstance(value, Number) or not re.fullmatch("[0-9]{1,18}", value) or int(value) < least:
            raise UserError(f"{self.path}: '{key}' must be a whole number of at least {least}")
        return int(value)

    def number_or_none(self, key):
        value = self.values.get(key)
        if value is not None and not isinstance(value, Number):
            raise UserError(f"{self.path}: '{key}' must be a number or null")
        return None if value is None else float(value)

    def check_files(self):
        entries = self.files.items() if isinstance(self.files, dict) else [("", None)]
        for name, digest in entries:
            good = FILE.fullmatch(name) and isinstance(digest, dict) and isinstance(digest.get("sha256"), str)
            if not good or not re.fullmatch("[0-9]{1,18}", str(digest.get("bytes"))):
                raise UserError(f"{self.path}: 'files' must map names in this directory to their size and checksum")

    def files_of(self, prefix):
        return sorted(name for name in self.files if name.startswith(prefix))


def directory_of(run, step):
    return pathlib.Path(run) / "checkpoints" / f"step-{step:08}"


def steps_of(run):
    """Steps that have a checkpoint directory, ascending."""
    folder = inside(run, "checkpoints")
    found = [int(match[1]) for match in map(STEP.fullmatch, (p.name for p in folder.glob("step-*"))) if match]
    return sorted(step for step in set(found) if inside(run, "checkpoints", directory_of(run, step).name).is_dir())


def check_file(path, digest, step):
    try:
        with open_file(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size != int(digest["bytes"]):
                raise UserError(f"{path}: holds {size} bytes, but {digest['bytes']} were written")
            if is_hollow(file, size):
                raise UserError(f"{path}: of its {size} bytes next to none are stored; copy it again")
            sha = hashlib.sha256()
            for piece in iter(lambda: file.read(1 << 20), b""):
                sha.update(piece)
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    if sha.hexdigest() != digest["sha256"]:
        raise UserError(f"{path}: its content does not match its checksum")
    written = parts_of(path)[1].get("step", str(step)) if path.suffix == ".safetensors" else str(step)
    if written != str(step):
        raise UserError(f"{path}: holds tensors of step {shown(written)}, but the checkpoint is of step {step}; copy the "
                        "checkpoint again")


def verified(run, step):
    """The state of a checkpoint of which every file is whole. A UserError says what is missing or damaged."""
    directory = directory_of(run, step)
    state = State(inside(directory, "state.json"))
    if state.later:
        return state
    if state.step != step:
        raise UserError(f"{state.path}: is of step {state.step}, not of the step in the directory's name")
    if "model.safetensors" not in state.files:
        raise UserError(f"{state.path}: does not list model.safetensors")
    if not state.files_of("optimizer-"):
        raise UserError(f"{state.path}: does not list the optimizer's moments")
    for name, digest in state.files.items():
        check_file(inside(directory, name), digest, step)
    return state


def checked_version(run, state, step):
    if state.later:
        raise UserError(f"{directory_of(run, step)}: is a checkpoint of a later version of Longstride; read it with "
                        "that version, or move it away")
    return state


def steps_by_valid_loss(run, steps):
    """The lowest validation loss first and of equals the newest; only those that scored as many bytes as the newest."""
    scored = []
    for step in steps:
        try:
            state = State(inside(directory_of(run, step), "state.json"))
        except UserError as error:
            warnings.warn(f"the checkpoint of step {step} is skipped: {error}", stacklevel=2)
            continue
        if not state.later and state.step == step and state.valid_loss is not None:
            scored.append(state)
    scored = [state for state in scored if state.valid_bytes == scored[-1].valid_bytes]
    return [state.step for state in sorted(reversed(scored), key=lambda state: state.valid_loss)]


def listed(steps):
    """"2, 4 and 10"; the middle of a long list is left out."""
    texts = [str(step) for step in steps]
    if len(texts) > 12:
        texts = texts[:4] + ["... " + texts[-4]] + texts[-3:]
    return texts[0] if len(texts) == 1 else ", ".join(texts[:-1]) + " and " + texts[-1]


def whole_of_step(run, step, steps):
    try:
        return checked_version(run, verified(run, step), step)
    except UserError as error:
        others = [other for other in steps if other != step]
        advice = f"choose from {listed(others)}" if others else "it is the only one"
        raise UserError(f"{run}: the checkpoint of step {step} cannot be read ({error}); {advice}") from None


def choose(run, checkpoint="last"):
    """The directory and state of the checkpoint: "last", "best", or the one of a step.

    A damaged one that is the last or the best gives way to the next, with a warning.
    """
    step = as_whole(checkpoint)
    is_step = step is not None and step >= 0
    if not is_step and checkpoint not in ("last", "best"):
        raise UserError(f"checkpoint is {shown(checkpoint)}, but must be best, last, or a step such as 1000")
    steps = steps_of(run)
    if not steps and not pathlib.Path(run).exists():
        raise UserError(f"{run}: there is no such run; give the directory of one that has saved a checkpoint, or a "
                        "folder that save_pretrained has written")
    if not steps:
        raise UserError(f"{run}: holds no checkpoint; give the directory of a run that has saved one, or a folder that "
                        "save_pretrained has written")
    if is_step:
        if step not in steps:
            raise UserError(f"{run}: holds no checkpoint of step {step}; choose from {listed(steps)}")
        return directory_of(run, step), whole_of_step(run, step, steps)
    wanted = steps[::-1] if checkpoint == "last" else steps_by_valid_loss(run, steps)
    if not wanted:
        raise UserError(f"{run}: none of its checkpoints has a validation loss to choose the best by, because training "
                        f"evaluated at other steps (train.evaluate_every); choose from {listed(steps)}")
    for step in wanted:
        try:
            state = verified(run, step)
        except UserError as error:
            warnings.warn(f"the checkpoint of step {step} is skipped: {error}", stacklevel=2)
            continue
        return directory_of(run, step), checked_version(run, state, step)
    raise UserError(f"{run}: none of its {len(steps)} checkpoints is complete; start the run again")


def joined(parts, shapes, directory, dtype=torch.float32, stored=(torch.float32,)):
    """Whole tensors, from shards of which each has some, and of others a range of elements, "name[begin:end]".

    A part is read, one at a time, once it is known to fit. `stored`: the types that it may have.
    """
    made = {name: torch.empty(shape, dtype=dtype) for name, shape in shapes.items()}
    read = {name: [] for name in shapes}
    for part in parts:
        name = part.name
        match = None if name in shapes else RANGE.fullmatch(name)
        target = match[1] if match else name
        if target not in shapes:
            raise UserError(f"{directory}: holds tensor {shown(name)} {part.shape}, which the model lacks")
        whole = math.prod(shapes[target])
        begin, end = (int(match[2]), int(match[3])) if match else (0, whole)
        fits = begin < end <= whole and part.shape == ((end - begin,) if match else shapes[target])
        if not fits or part.dtype not in stored:
            raise UserError(f"{directory}: tensor {shown(name)} is {part.dtype} {part.shape}, but the "
                            f"model's '{target}' is {dtype} {shapes[target]}")
        made[target].view(-1)[begin:end] = part.read().reshape(-1)
        read[target].append((begin, end))
    for name, shape in shapes.items():
        at = 0
        for begin, end in sorted(read[name]):
            at = end if begin == at else -1
        if at != math.prod(shape):
            raise UserError(f"{directory}: does not hold each element of '{name}' {shape}, which the model has, once")
        if not bool(torch.isfinite(made[name]).all()):
            raise UserError(f"{directory}: weights of '{name}' are not finite, so the model is unusable")
    return made


def read_weights(directory, state, average, shapes):
    """The weights, or their average, of a verified checkpoint, by name."""
    files = state.files_of("ema") if average else ["model.safetensors"]
    if not files:
        raise UserError(f"{directory}: holds no running average of the weights; use weights=\"last\"")
    return joined([part for name in files for part in parts_of(directory / name)[0]], shapes, directory)
