"""Reads and writes safetensors files. The reader survives whatever a file holds: it refuses, in one sentence."""
import errno
import json
import math
import os
import pathlib
import stat
import struct

import torch

from .model.keys import UserError, shown

TYPES = {
    "F64": torch.float64, "F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16,
    "I64": torch.int64, "I32": torch.int32, "U8": torch.uint8,
}
NAMES = {dtype: name for name, dtype in TYPES.items()}
MOST_HEADER = 16 << 20
MOST_RANK = 8
MOST_READ = 8 << 20  # bytes of a file that is read whole


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


def inside(folder, *parts):
    """A path below a folder that somebody else may have made, such as a run that was downloaded.

    A link below it may lead to any file of this machine, and is refused; the folder itself may be one.
    """
    at = pathlib.Path(folder)
    for part in parts:
        at = at / part
        if at.is_symlink():
            raise UserError(f"{at}: is a link, and links within a run are not followed, because they may lead to any "
                            "file of this machine; move what it leads to there, or link the whole run instead")
    return at


def open_file(path):
    """A regular file: a pipe is not waited for, and a device not read."""
    mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):  # opening a folder says that it is one
        raise UserError(f"{path}: is not a regular file, but a file is needed")
    return open(path, "rb", opener=lambda name, flags: os.open(name, flags | getattr(os, "O_NONBLOCK", 0)))


def read_file(path):
    """The bytes of a file of a bounded size."""
    try:
        with open_file(path) as file:
            content = file.read(MOST_READ + 1)
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    if len(content) > MOST_READ:
        raise UserError(f"{path}: has more than {MOST_READ} bytes; this is no such file as Longstride writes")
    return content


def is_hollow(file, size):
    """Whether next to nothing of an open file is stored, and the rest is a hole, which takes as long to read."""
    if size <= 1 << 30 or not hasattr(os, "SEEK_DATA"):
        return False
    at = stored = 0
    try:
        while at < size and stored <= size // 1000:
            data = os.lseek(file.fileno(), at, os.SEEK_DATA)
            at = os.lseek(file.fileno(), data, os.SEEK_HOLE)
            stored += at - data
    except OSError as error:
        if error.errno != errno.ENXIO:  # which says that only a hole is left
            return False
    finally:
        os.lseek(file.fileno(), 0, os.SEEK_SET)
    return stored <= size // 1000


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
    """Descriptions by name, in the order of their data, of which the first is next in the file; and the metadata."""
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
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict):
        raise wrong("__metadata__ must map names to text")
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
    return ordered, metadata


def read_next(file, path, entry):
    """The tensor of a description, whose data is next in the file."""
    data, dtype = bytearray(entry["data_offsets"][1] - entry["data_offsets"][0]), TYPES[entry["dtype"]]
    if file.readinto(data) != len(data):
        raise UserError(f"{path}: ended while it was read")
    flat = torch.frombuffer(data, dtype=dtype) if data else torch.empty(0, dtype=dtype)
    return flat.reshape(entry["shape"])


def parse(file, path):
    """Every tensor of an open file by name; `path` is for messages."""
    return {name: read_next(file, path, entry) for name, entry in read_header(file, path)[0].items()}


class Part:
    """A tensor of a file, which is read when it is known to fit."""

    def __init__(self, path, name, entry, begin):
        self.path, self.name, self.entry, self.begin = path, name, entry, begin + entry["data_offsets"][0]
        self.dtype, self.shape = TYPES[entry["dtype"]], tuple(entry["shape"])

    def read(self):
        try:
            with open_file(self.path) as file:
                file.seek(self.begin)
                return read_next(file, self.path, self.entry)
        except OSError as error:
            raise UserError(f"{self.path}: cannot be read: {error.strerror}") from None


def parts_of(path):
    """The tensors of a file, unread; and its metadata."""
    try:
        with open_file(path) as file:
            header, metadata = read_header(file, path)
            begin = file.tell()
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    return [Part(path, name, entry, begin) for name, entry in header.items()], metadata


def read_tensors(path):
    """Every tensor of a file by name."""
    return {part.name: part.read() for part in parts_of(path)[0]}


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
        except OSError as error:  # a disk that cannot flush, such as a mounted bucket
            if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS):
                raise
