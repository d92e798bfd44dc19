"""Reads and writes safetensors files. The reader survives whatever a file holds: it refuses, in one sentence."""
import errno
import json
import math
import os
import pathlib
import struct

import torch

from .model.keys import UserError, shown

TYPES = {
    "F64": torch.float64, "F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16,
    "I64": torch.int64, "I32": torch.int32, "U8": torch.uint8,
}
NAMES = {dtype: name for name, dtype in TYPES.items()}
MOST_HEADER = 100_000_000
MOST_RANK = 8


def path_of(name, value):
    """What the caller gives as the name of a file or folder, which need not exist."""
    if not isinstance(value, (str, os.PathLike)):
        raise UserError(f"{name} is {type(value).__name__}, but must be the path of a file or folder")
    path = pathlib.Path(value)
    try:
        path.exists()
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    return path


def pairs_once(pairs):
    """For json.loads: a name that occurs twice is damage, though JSON would keep the last."""
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a name occurs twice")
    return made


def is_size(value):
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63


def check_entry(entry, data_bytes):
    """What is wrong with a tensor's description; nothing if it is right."""
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        return "must have exactly dtype, shape and data_offsets"
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in TYPES:
        return f"has dtype {shown(dtype)}, but must have one of {', '.join(TYPES)}"
    if not isinstance(shape, list) or len(shape) > MOST_RANK or not all(map(is_size, shape)):
        return f"must have a shape of at most {MOST_RANK} sizes"
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(map(is_size, offsets)):
        return "must have two data_offsets"
    if not offsets[0] <= offsets[1] <= data_bytes:
        return f"claims bytes {offsets[0]} to {offsets[1]} of {data_bytes}; the file is truncated or damaged"
    needed = math.prod(shape) * torch.empty(0, dtype=TYPES[dtype]).element_size()
    if offsets[1] - offsets[0] != needed:
        return f"has {offsets[1] - offsets[0]} bytes, but its shape and dtype need {needed}"
    return None


def read_header(file, path):
    """Descriptions by name, in the order of their data, of which the first is next in the file."""
    def wrong(what):
        return UserError(f"{path}: not a valid safetensors file: {what}")

    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    start = file.read(8)
    if len(start) < 8:
        raise wrong(f"it holds {size} bytes, fewer than the 8 of a header length")
    length = struct.unpack("<Q", start)[0]
    if length > MOST_HEADER or length > size - 8:
        raise wrong(f"the header claims {length} bytes, but the file holds {size}")
    try:
        header = json.loads(file.read(length).decode("utf-8"), object_pairs_hook=pairs_once)
    except (ValueError, RecursionError):
        raise wrong(f"the header of {length} bytes is not JSON, or names a tensor twice") from None
    if not isinstance(header, dict):
        raise wrong("the header is not a JSON object")
    header.pop("__metadata__", None)
    for name, entry in header.items():
        problem = check_entry(entry, size - 8 - length)
        if problem:
            raise wrong(f"tensor {shown(name)} {problem}")
    ordered = dict(sorted(header.items(), key=lambda item: item[1]["data_offsets"]))
    at = 0
    for name, entry in ordered.items():
        if entry["data_offsets"][0] != at:
            raise wrong(f"tensor {shown(name)} starts at byte {entry['data_offsets'][0]} of the data, but the one "
                        f"before it ends at {at}")
        at = entry["data_offsets"][1]
    if at != size - 8 - length:
        raise wrong(f"its tensors end at byte {at} of the data, but the file has {size - 8 - length}")
    return ordered


def parse(file, path):
    """Every tensor of an open file by name; `path` is for messages."""
    tensors = {}
    for name, entry in read_header(file, path).items():
        data, dtype = bytearray(entry["data_offsets"][1] - entry["data_offsets"][0]), TYPES[entry["dtype"]]
        if file.readinto(data) != len(data):
            raise UserError(f"{path}: ended while it was read")
        flat = torch.frombuffer(data, dtype=dtype) if data else torch.empty(0, dtype=dtype)
        tensors[name] = flat.reshape(entry["shape"])
    return tensors


def read_tensors(path):
    """Every tensor of a file by name."""
    try:
        with open(path, "rb") as file:
            return parse(file, path)
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None


def write_tensors(path, tensors, metadata):
    """Writes a new file; the caller gives it its final name."""
    header, at, parts = {"__metadata__": metadata}, 0, []
    for name, tensor in tensors.items():
        part = tensor.detach().cpu().contiguous()
        size = part.numel() * part.element_size()
        header[name] = {"dtype": NAMES[part.dtype], "shape": list(part.shape), "data_offsets": [at, at + size]}
        parts.append(part)
        at += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % 64)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for part in parts:
            if part.numel() > 0:
                file.write(part.reshape(-1).view(torch.uint8).numpy())
        file.flush()
        try:
            os.fsync(file.fileno())
        except OSError as error:  # of a disk that cannot flush, such as a mounted bucket
            if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS):
                raise
