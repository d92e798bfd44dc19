"""Bytes of a text: its splits, rows that read it in order, and windows from anywhere."""
import pathlib

import torch

from decoders.stepping import inputs_of


def split(path, name, shares):
    """Of a file from `longstride prepare`, or of any other file, divided by `shares` as `prepare` does."""
    path = pathlib.Path(path)
    with path.open("rb") as file:
        hdf5 = file.read(8) == b"\x89HDF\r\n\x1a\n"
    if hdf5:
        try:
            import h5py
        except ModuleNotFoundError:
            raise SystemExit(f"{path}: reading it needs the Python package h5py; give the text itself instead") from None
        with h5py.File(path, "r") as file:
            return torch.from_numpy(file[name][()]).flatten()
    whole = torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.uint8)
    first, second = round(shares[0] * len(whole)), round((shares[0] + shares[1]) * len(whole))
    return {"train": whole[:first], "valid": whole[first:second], "test": whole[second:]}[name]


class Streams:
    """Row r reads part r of the text, one window per step, and begins again at the end."""

    def __init__(self, text, rows, segment, device):
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
    """Each from a random place, and the start of a stream of its own."""

    def __init__(self, text, rows, segment, device):
        self.text, self.shape = text.to(device), (rows, segment)
        self.offsets = torch.arange(segment, device=device)
        if len(text) < segment:
            raise SystemExit(f"the text has {len(text)} bytes, fewer than a window of {segment}")

    def next(self):
        rows, segment = self.shape
        begin = torch.randint(0, len(self.text) - segment + 1, (rows, 1), device=self.text.device)
        targets = self.text[begin + self.offsets].long()
        return inputs_of(targets, targets[:, :1], True), targets, True
