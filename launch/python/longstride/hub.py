"""Writes a model in the layout of Hugging Face: config.json, model.safetensors, the code that reads them and, for text,
a tokenizer. `longstride export --hf` (launch/hub) writes the same folder."""
import hashlib
import json
import os
import pathlib
import shutil
import tempfile

from .model.keys import UserError
from .tensors import path_of, write_tensors

PREFIX = "model."  # prefix of the names in model.safetensors: transformers puts the module beneath its own
CODE = ("configuration_longstride.py", "modeling_longstride.py", "attention.py", "blocks.py", "decoder.py", "distance.py",
        "distance_settings.py", "encoder.py", "keys.py", "patterns.py", "sampling.py", "settings.py", "stream.py")
# Files of a tokenizer, by their names in the package: of bytes, each a token, and of a SentencePiece model's pieces.
OF_BYTES = {"tokenizer.json": "tokenizer.json", "tokenizer_config.json": "tokenizer_config.json"}
OF_PIECES = {"tokenization_longstride.py": "tokenization_longstride.py",
             "tokenization_config.json": "tokenizer_config.json"}
PIECES = "tokenizer.model"  # SentencePiece's, in runs too
CLASS = "LongstrideForCausalLM"


def is_ours(config):
    """Whether a config.json is of a model whose code is this package's: the code in its folder is not run here."""
    code = config.get("auto_map")
    code = code.get("AutoModelForCausalLM") if isinstance(code, dict) else None
    return (config.get("model_type") == "longstride" and config.get("architectures") in (None, [CLASS])
            and (code is None or str(code).endswith(f"modeling_longstride.{CLASS}")))


def config_of(model):
    dtype = str(next(model.parameters()).dtype).split(".")[-1]
    origin = dict(model.origin)
    if "run" in origin:
        origin["run"] = pathlib.Path(origin["run"]).name  # without the path, which is this machine's
    if model.pieces is not None:
        origin["tokenizer"] = hashlib.sha256(model.pieces).hexdigest()
    return {
        "architectures": [CLASS],
        "auto_map": {
            "AutoConfig": "configuration_longstride.LongstrideConfig",
            "AutoModelForCausalLM": f"modeling_longstride.{CLASS}",
        },
        "model_type": "longstride",
        "torch_dtype": dtype,
        "origin": origin,
        "settings": model.settings.to_dict(),
    }


def files_of(model):
    """Files that are copied as the package has them, with their names in the folder. Pictures and sound are no text for
    a tokenizer."""
    code = {name: name for name in CODE}
    if model.pieces is not None:
        return {**code, **OF_PIECES}
    of_text = model.start == 256 and model.origin.get("data", "bytes") == "bytes" and not model.settings.picture
    return {**code, **(OF_BYTES if of_text else {})}


def save_pretrained(model, folder):
    """Everything is written next to `folder`, which then appears whole. An existing one is not touched."""
    folder = path_of("folder", folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder}: exists already and is not an empty folder; choose another, or remove it")
    code = pathlib.Path(__file__).parent / "model"
    longest = model.settings.context + 1
    generation = {"bos_token_id": model.start, "do_sample": True, "max_length": longest, "use_cache": False}
    weights = {PREFIX + name: tensor for name, tensor in model.state_dict().items()}
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        made = pathlib.Path(tempfile.mkdtemp(prefix=".tmp-" + folder.name + "-", dir=folder.parent))
    except OSError as error:
        raise UserError(f"{folder}: cannot be written: {error.strerror}") from None
    try:
        for name, there in files_of(model).items():
            shutil.copyfile(code / name, made / there)
        if model.pieces is not None:
            (made / PIECES).write_bytes(model.pieces)
        for name, values in [("config.json", config_of(model)), ("generation_config.json", generation)]:
            (made / name).write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
        write_tensors(made / "model.safetensors", weights, {"format": "pt"})
        umask = os.umask(0)
        os.umask(umask)
        made.chmod(0o777 & ~umask)  # mkdtemp's are the owner's alone
        os.rename(made, folder)
    except OSError as error:
        raise UserError(f"{folder}: cannot be written: {error.strerror}") from None
    finally:
        shutil.rmtree(made, ignore_errors=True)
