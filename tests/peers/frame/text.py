"""Data: sequences of bytes, rows that read a text in order, windows from anywhere, and batches from a file."""
import json
import pathlib
import struct

import numpy
import torch

from frame.stepping import inputs_of


def sequences(path, split, shares=(0.9, 0.05, 0.05), across=False):
    """Those of a file from `longstride prepare`, or the part of any other file that `prepare` would give to `split`.
    across: files that follow each other are one."""
    path = pathlib.Path(path)
    with path.open("rb") as file:
        hdf5 = file.read(8) == b"\x89HDF\r\n\x1a\n"
    if not hdf5:
        whole = torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.uint8)
        first, second = round(shares[0] * len(whole)), round((shares[0] + shares[1]) * len(whole))
        return [{"train": whole[:first], "valid": whole[first:second], "test": whole[second:]}[split]]
    try:
        import h5py
    except ModuleNotFoundError:
        raise SystemExit(f"{path}: reading it needs the Python package h5py; give the text itself instead") from None
    with h5py.File(path, "r") as file:
        data, bounds = torch.from_numpy(file[split][()]), file.get(f"{split}_boundaries")
        if data.ndim == 2:
            return list(data)
        bounds = [0, len(data)] if bounds is None or across else [int(bound) for bound in bounds[()]]
    return [data[begin:end] for begin, end in zip(bounds, bounds[1:])]


def windows_of(length, context, min_context=0):
    """(start, length, first scored offset) of every window of one sequence, as `longstride eval` has them."""
    if min_context == 0 or length <= context:
        return [(start, min(context, length - start), 0) for start in range(0, length, context)]
    made, scored = [(0, context, 0)], context
    while scored < length:
        end = min(scored + context - min_context, length)
        made.append((end - context, context, scored - (end - context)))
        scored = end
    return made


class Streams:
    """Row r reads part r of the text, one window per step, and begins again at the end."""

    def __init__(self, data, rows, segment, device):
        text = torch.cat(data)
        length = len(text) // rows
        self.rows, self.segment, self.windows = text[: rows * length].view(rows, length).to(device), segment, length // segment
        if self.windows == 0:
            raise SystemExit(f"the text has {len(text)} bytes, fewer than {rows} rows of {segment}")
        self.at = 0

    def next(self):
        """(inputs, targets, whether streams start)."""
        begin, starts = self.at * self.segment, self.at == 0
        targets = self.rows[:, begin : begin + self.segment].long()
        before = targets[:, :1] if starts else self.rows[:, begin - 1 : begin].long()
        self.at = (self.at + 1) % self.windows
        return inputs_of(targets, before, starts), targets, starts


class Windows:
    """Each from a random place of a sequence, and the start of a stream of its own."""

    def __init__(self, data, rows, segment, device):
        long_enough = [sequence for sequence in data if len(sequence) >= segment]
        if not long_enough:
            raise SystemExit(f"no sequence has {segment} bytes, those of a window")
        lengths = torch.tensor([len(sequence) for sequence in long_enough])
        self.bytes, self.shape = torch.cat(long_enough).to(device), (rows, segment)
        self.choices = (lengths - segment + 1).to(device)
        self.begins, self.ends = (lengths.cumsum(0) - lengths).to(device), self.choices.cumsum(0)
        self.offsets = torch.arange(segment, device=device)

    def next(self):
        at = torch.randint(0, int(self.ends[-1]), (self.shape[0],), device=self.bytes.device)
        which = torch.searchsorted(self.ends, at, right=True)
        begin = self.begins[which] + at - (self.ends[which] - self.choices[which])
        targets = self.bytes[begin[:, None] + self.offsets].long()
        return inputs_of(targets, targets[:, :1], True), targets, True


class Batches:
    """Given ones, (steps, rows, positions). Rows that are equal to those of the first step begin their streams again."""

    def __init__(self, batches, streams, device):
        self.batches, self.streams, self.at = batches.long().to(device), streams, 0

    def next(self):
        targets, first = self.batches[self.at], self.at == 0
        starts = not self.streams or first or torch.equal(targets, self.batches[0])
        before = self.batches[self.at - 1][:, -1:] if not first else targets[:, :1]
        self.at += 1
        return inputs_of(targets, before, starts), targets, starts


DTYPES = {"F32": numpy.float32, "U8": numpy.uint8, "U16": numpy.uint16, "I32": numpy.int32}


def read_safetensors(path):
    data = pathlib.Path(path).read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header, out = json.loads(data[8 : 8 + size]), {}
    header.pop("__metadata__", None)
    for name, entry in header.items():
        begin, end = (8 + size + offset for offset in entry["data_offsets"])
        array = numpy.frombuffer(data[begin:end], DTYPES[entry["dtype"]]).reshape(entry["shape"])
        wide = array.dtype == numpy.uint16  # few operations of PyTorch take it
        out[name] = torch.from_numpy(array.astype(numpy.int32) if wide else array.copy())
    return out


def write_safetensors(path, tensors):
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, tensor in tensors.items():
        packed = tensor.contiguous().numpy().astype("<f4").tobytes()
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [len(data), len(data) + len(packed)]}
        data += packed
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def read_recipe(text):
    """A resolved recipe: maps by indentation, and values that are numbers, words, quoted text or lists of these."""
    root = {}
    stack = [(-1, root)]
    for line in text.splitlines():
        depth, (key, _, value) = (len(line) - len(line.lstrip())) // 2, line.strip().partition(": ")
        while stack[-1][0] >= depth:
            stack.pop()
        if line.endswith(":") and not value:
            stack[-1][1][key[:-1]] = child = {}
            stack.append((depth, child))
        else:
            stack[-1][1][key] = value_of(value)
    return root


def value_of(text):
    if text.startswith("[") and text.endswith("]"):
        return [value_of(item.strip()) for item in text[1:-1].split(",") if item.strip()]
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text
