"""Bits per byte of sequences, with the windows of `longstride eval` (docs/develop/numerics.md)."""
import itertools
import math

import torch

from .model.keys import UserError, as_whole, shown
from .tensors import open_file, path_of


class Evaluation:
    """The sum of -log p over every byte scored, in nats."""

    def __init__(self, nats, scored, windows, of_bytes=True):
        self.nats, self.bytes, self.windows, self.of_bytes = nats, scored, windows, of_bytes

    @property
    def loss(self):
        return self.nats / self.bytes

    @property
    def bits_per_byte(self):
        if not self.of_bytes:
            raise UserError("tokens were scored, whose bytes are not known here; use loss, in nats per token")
        return self.loss / math.log(2)

    def __repr__(self):
        if not self.of_bytes:
            return f"Evaluation(loss={self.loss:.10f}, tokens={self.bytes}, windows={self.windows})"
        return f"Evaluation(bits_per_byte={self.bits_per_byte:.10f}, bytes={self.bytes}, windows={self.windows})"


def windows_of(length, context, min_context):
    """(start, length, first scored offset) of every window of one sequence."""
    scored = 0
    while scored < length:
        start = max(0, scored - min_context)
        if min_context > 0:
            start = max(0, min(start, length - context))
        end = min(start + context, length)
        yield start, end - start, scored - start
        scored = end


def sequence_of(data):
    if isinstance(data, (bytes, bytearray)):
        return torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)
    try:
        sequence = torch.as_tensor(data)
    except (TypeError, ValueError, RuntimeError):
        raise UserError(f"a sequence is {type(data).__name__}, but must be bytes or an array of them") from None
    if sequence.dim() != 1 or sequence.is_floating_point() or sequence.dtype == torch.bool:
        raise UserError(f"a sequence is {sequence.dtype} {tuple(sequence.shape)}, but must have one dimension of bytes")
    return sequence


def score_apart(model, sequences, windows, batch):
    """Every window by itself: (nats, bytes)."""
    nats, scored, device = 0.0, 0, next(model.parameters()).device
    for length, group in itertools.groupby(windows, key=lambda w: w[2]):
        group = list(group)
        for at in range(0, len(group), batch):
            part = group[at:at + batch]
            rows = torch.stack([sequences[s][start:start + length] for s, start, _, _ in part])
            losses = model.losses(rows.to(device)).double().cpu()
            for row, (_, _, _, first) in zip(losses, part):
                nats += float(row[first:].sum())
                scored += length - first
    return nats, scored


class WindowRun:
    """Consecutive windows that one stream reads, the first ones only to be remembered."""

    def __init__(self, windows, stream, streams, lead):
        self.windows, count = windows, len(windows)
        self.first_scored, self.end = stream * count // streams, (stream + 1) * count // streams
        self.begin = self.first_scored
        while windows[self.begin][1] > 0 and windows[self.first_scored][1] - windows[self.begin][1] < lead:
            self.begin -= 1

    def row(self, sequences, step, context, start_token):
        """The bytes of a window, padded, the one before, or `start_token` where a stream starts, and how many are scored."""
        at = self.begin + step
        if at >= self.end:
            return torch.zeros(context, dtype=torch.long), start_token, 0
        sequence, start, length, _ = self.windows[at]
        data = sequences[sequence][start:start + length].long()
        before = start_token if step == 0 or start == 0 else int(sequences[sequence][start - 1])
        return torch.nn.functional.pad(data, (0, context - length)), before, length if at >= self.first_scored else 0


def score_in_order(model, sequences, windows, streams, lead):
    """The windows as `streams` runs of consecutive ones, side by side: (nats, bytes)."""
    context, device = model.settings.context, next(model.parameters()).device
    streams = min(streams, len(windows))
    runs = [WindowRun(windows, stream, streams, lead) for stream in range(streams)]
    stream, nats, scored = model.cache(streams, context), 0.0, 0
    for step in range(max(run.end - run.begin for run in runs)):
        rows, before, counts = zip(*(run.row(sequences, step, context, model.start) for run in runs))
        stream.end_segment()
        before = torch.tensor(before, device=device)
        stream.begin(before == model.start)
        losses = model.losses(torch.stack(rows).to(device), stream, before).double().cpu()
        nats += sum(float(row[:count].sum()) for row, count in zip(losses, counts))
        scored += sum(counts)
    return nats, scored


def checked_min_context(settings, min_context):
    found, memory = as_whole(min_context), settings.memory
    reach = memory.reach(settings.context, settings.layers) if memory else settings.context - 1
    if found is not None and 0 <= found <= reach:
        return found
    if memory is None:
        allowed = f"from 0 to below the context of {settings.context}"
    elif reach == math.inf:
        allowed = "at least 0"
    else:
        allowed = f"from 0 to {reach}, the bytes that this model looks back at most"
    raise UserError(f"min_context is {shown(min_context)}, but must be {allowed}")


def evaluate(model, sequences, min_context=0, batch=None):
    """Scores each byte of each sequence (bytes, or arrays of them) once; `read_split` has a dataset's.

    `min_context` is the number of bytes before every scored byte but the first ones, like --min-context of
    `longstride eval`; `batch` the number of windows scored together, which changes only the rounding. A model that
    remembers reads the windows in order, as `batch` streams, by default 1, each of which first reads at least
    `min_context` bytes before those that it scores.
    """
    context, remembers = model.settings.context, model.settings.memory is not None
    min_context = checked_min_context(model.settings, min_context)
    usual = 1 if remembers else max(1, min(16, 8192 // context))
    at_once = usual if batch is None else as_whole(batch)
    if at_once is None or at_once < 1:
        raise UserError(f"batch is {shown(batch)}, but must be a positive whole number")
    if isinstance(sequences, (bytes, bytearray)):
        raise UserError("sequences is bytes, but must be a list of sequences; for one, write [sequence]")
    if isinstance(sequences, str) or not hasattr(sequences, "__iter__"):
        raise UserError(f"sequences is {type(sequences).__name__}, but must be a list of sequences of bytes")
    sequences = [sequence_of(data) for data in sequences]
    overlap = 0 if remembers else min_context
    windows = [(s, *w) for s, data in enumerate(sequences) for w in windows_of(len(data), context, overlap)]
    if not windows:
        raise UserError("there is no byte to score")
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            if remembers:
                nats, scored = score_in_order(model, sequences, windows, at_once, min_context)
            else:
                nats, scored = score_apart(model, sequences, windows, at_once)
    finally:
        model.train(training)
    return Evaluation(nats, scored, len(windows), model.settings.vocabulary == 256)


def read_split(path, split="test", cross_files=False):
    """The sequences of a split of a prepared dataset, as arrays of bytes. Needs h5py.

    Sound of several files is one sequence per file, unless cross_files (the recipe's `data.cross_files`), and text that
    has kept its documents one per document, whose windows then begin with it; `data.documents: joined` joins them, as
    cross_files=True does, and `separate` cuts windows from the joined text, which `longstride eval` alone scores.
    """
    try:
        import h5py
    except ImportError:
        raise UserError("reading a dataset needs h5py, which this Python lacks: install it, as in pip install h5py"
                        ) from None
    if split not in ("train", "valid", "test"):
        raise UserError(f"split is {shown(split)}, but must be train, valid or test")
    path = path_of("path", path)
    try:
        open_file(path).close()
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    try:
        with h5py.File(path, "r") as file:
            if split not in file:
                raise UserError(f"{path}: has no split '{split}'")
            data = file[split]
            if str(data.dtype) not in ("uint8", "uint16") or data.ndim not in (1, 2):
                raise UserError(f"{path}: '{split}' is {data.dtype} {data.shape}, but must be bytes or 16-bit ids")
            data = data[()]
            data = data if data.dtype == "uint8" else data.astype("int32")  # PyTorch may lack uint16
            bounds = file.get(f"{split}_boundaries")
            if data.ndim == 2:
                return list(data)
            if bounds is None or cross_files:
                return [data]
            bounds = [int(b) for b in bounds[()].reshape(-1)]
    except OSError:
        raise UserError(f"{path}: is damaged or not HDF5; give a dataset that `longstride prepare` has made") from None
    if len(bounds) < 2 or bounds[0] != 0 or bounds[-1] != len(data) or bounds != sorted(bounds):
        raise UserError(f"{path}: '{split}_boundaries' must go from 0 to the {len(data)} bytes of '{split}'")
    return [data[a:b] for a, b in zip(bounds, bounds[1:])]
