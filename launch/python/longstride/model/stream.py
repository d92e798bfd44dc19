"""What rows of a batch remember while they read a stream, segment by segment (docs/develop/numerics.md)."""
import torch

from .keys import UserError


class Memory:
    """Before a segment: the last inputs of every layer, (batch, length, width), and rows made of those that left.

    `seen` and `compressed_seen` (batch) count a row's last rows that are not hidden.
    """

    def __init__(self, settings, batch, like):
        s, m = settings, settings.memory
        self.settings = m

        def zeros(rows):
            return [like.new_zeros(batch, rows, s.width) for _ in range(s.layers)]

        def seen(rows):
            return torch.full((batch,), rows if m.start == "zeros" else 0, device=like.device)

        self.rows, self.compressed = zeros(m.length), zeros(m.compressed)
        self.seen, self.compressed_seen = seen(m.length), seen(m.compressed)

    def begin(self, starts):
        """Rows where `starts` (batch) is true remember nothing of what they have read."""
        kept = ~starts
        for rows in (self.rows, self.compressed):
            rows[:] = [t * kept[:, None, None] for t in rows]
        zeros = self.settings.start == "zeros"
        self.seen = torch.where(starts, self.settings.length if zeros else 0, self.seen)
        self.compressed_seen = torch.where(starts, self.settings.compressed if zeros else 0, self.compressed_seen)

    def hidden(self):
        """How many of a row's first rows, of [compressed | memory], are hidden, (batch)."""
        return self.settings.rows - self.seen - self.compressed_seen

    def advance(self, parts, attentions):
        """After a segment, of which parts[layer] has the inputs: the losses by which compressors learn, added up. Only
        whole segments fill a compressed memory."""
        m, n, losses = self.settings, parts[0].inputs.shape[1], 0.0
        if m.compressed > 0 and n % m.rate != 0:
            return losses
        full = self.seen == m.length
        for layer, (part, attention) in enumerate(zip(parts, attentions)):
            if m.compressed > 0:
                evicted = self.rows[layer][:, :n]
                made = attention.shorten(evicted, part.received)
                if m.learns_to_compress and torch.is_grad_enabled():
                    losses = losses + attention.reconstruction(part.inputs, evicted, made, full)
                made = made.detach() * full[:, None, None]
                self.compressed[layer] = torch.cat([self.compressed[layer], made], 1)[:, made.shape[1]:]
            joined = torch.cat([self.rows[layer], part.inputs.detach()], 1)
            self.rows[layer] = joined[:, joined.shape[1] - m.length:]
        if m.compressed > 0:
            grown = torch.where(full, n // m.rate, 0)
            self.compressed_seen = (self.compressed_seen + grown).clamp(max=m.compressed)
        self.seen = (self.seen + n).clamp(max=m.length)
        return m.reconstruction * losses


class Part:
    """What one layer has of the segment that is being read: its inputs, and the keys and values of all rows.

    Without gradients keys and values fill buffers and the table of distances is kept, so that a segment can be read
    position by position.
    """

    def __init__(self):
        self.inputs = self.keys = self.values = self.received = self.buffers = self.table = None

    def extend(self, x, k, v, room):
        """Adds the inputs x (batch, n, width), and keys and values (batch, heads, n, size), of further rows."""
        def join(old, new, axis):
            return new if old is None else torch.cat([old, new], axis)

        if x is not None:
            self.inputs = join(self.inputs, x, 1)
        if torch.is_grad_enabled():
            self.keys, self.values = join(self.keys, k, 2), join(self.values, v, 2)
            return
        if self.buffers is None:
            batch, heads = k.shape[:2]
            self.buffers = [t.new_empty(batch, heads, room, t.shape[-1]) for t in (k, v)]
            self.filled = 0
        end = self.filled + k.shape[2]
        for buffer, new in zip(self.buffers, (k, v)):
            buffer[:, :, self.filled:end] = new
        self.keys, self.values = (buffer[:, :, :end] for buffer in self.buffers)
        self.filled = end


class Segment:
    """A window of a stream, after what a memory holds, if there is one.

    `first` is where the next position lies in it, `before` how many rows precede it, `shared` what all layers share.
    """

    def __init__(self, settings, memory, shared):
        self.parts = [Part() for _ in range(settings.layers)]
        self.memory, self.shared, self.first, self.sines = memory, shared, 0, None
        self.before = memory.settings.rows if memory is not None else 0
        self.hidden = memory.hidden() if memory is not None else None

    def remembered(self, layer):
        """[compressed | memory] of a layer, (batch, rows, width)."""
        return torch.cat([self.memory.compressed[layer], self.memory.rows[layer]], 1)


class Stream:
    """Reads rows of a batch from their start on, in segments of the model's context."""

    def __init__(self, decoder, batch):
        self.decoder, self.settings = decoder, decoder.settings
        like = next(decoder.parameters()).detach()
        self.memory = Memory(self.settings, batch, like) if self.settings.memory else None
        self.segment, self.reconstruction, self.ended = None, 0.0, 0

    def end_segment(self):
        """Afterwards the memory is the next one's."""
        if self.segment is not None and self.memory is not None:
            attentions = [layer.attention for layer in self.decoder.layers]
            self.reconstruction = self.reconstruction + self.memory.advance(self.segment.parts, attentions)
        self.ended += self.segment is not None
        self.segment = None

    def begin(self, starts):
        """Between segments: rows where `starts` (batch) is true remember nothing of what they have read."""
        if self.memory is not None:
            self.memory.begin(starts)

    def pieces(self, previous):
        """The further slots `previous` (batch, n), cut at the borders of segments, each with its segment."""
        context, done, count = self.settings.context, 0, previous.shape[1]
        read = self.segment.first if self.segment else 0
        if count < 1 or (self.memory is None and read + count > context):
            most = "1" if self.memory is not None else f"1 to its context, {context}"
            raise UserError(f"the model was given {read + count} positions, but must be given from {most}")
        while done < count:
            if self.segment is not None and self.segment.first == context:
                self.end_segment()
            if self.segment is None:
                self.segment = Segment(self.settings, self.memory, self.decoder.distance)
            n = min(count - done, context - self.segment.first)
            yield previous[:, done:done + n], self.segment
            self.segment.first += n
            done += n

    def auxiliary_loss(self):
        """What training adds to the mean loss of what was read: the price of spans, and compressors' mean loss."""
        self.end_segment()
        span = self.settings.distance.span
        price = 0.0
        if span:
            spans = [layer.attention.span.mean() for layer in self.decoder.layers]
            price = span.loss * span.longest * sum(spans)
        return price + self.reconstruction / max(1, self.ended)
