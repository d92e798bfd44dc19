"""Draws bytes as `longstride sample` does: by inversion of a number of (seed, sequence, position) alone."""
import numbers

import torch

from .keys import UserError, as_whole, shown

SAMPLING = 4 << 24  # the purpose of these numbers, among all that Longstride draws
LOW = 0xFFFFFFFF


def philox(key, element, step, domain):
    """Word 0 of Philox4x32-10 (Salmon et al. 2011)."""
    c = [element & LOW, element >> 32 & LOW, step & LOW, domain]
    k0, k1 = key & LOW, key >> 32 & LOW
    for _ in range(10):
        p0, p1 = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
        c = [p1 >> 32 ^ c[1] ^ k0, p1 & LOW, p0 >> 32 ^ c[3] ^ k1, p0 & LOW]
        k0, k1 = k0 + 0x9E3779B9 & LOW, k1 + 0xBB67AE85 & LOW
    return c[0]


def uniform(seed, sequence, position):
    return (philox(seed, sequence, position, SAMPLING) + 0.5) / 4294967296.0


class Request:
    """What to draw; refuses what `longstride sample` refuses."""

    def __init__(self, prompt, length, count, temperature, top_k, top_p, seed):
        self.prompts = [prompt] if isinstance(prompt, (bytes, bytearray)) else prompt
        self.length = None if length is None else self.whole("length", length, 1)
        self.count = self.whole("count", count, 1, 1 << 20)
        self.top_k = self.whole("top_k", top_k, 0)
        self.seed = self.whole("seed", seed, 0, (1 << 64) - 1)
        self.temperature, self.top_p = temperature, top_p
        for name, value, most in [("temperature", temperature, 100), ("top_p", top_p, 1)]:
            if isinstance(value, bool) or not isinstance(value, numbers.Real) or not 0 <= value <= most:
                raise UserError(f"{name} is {shown(value)}, but must be a number from 0 to {most}")
        known = isinstance(self.prompts, (list, tuple)) and all(map(self.is_prompt, self.prompts))
        if not known or len(self.prompts) not in (1, self.count):
            raise UserError(f"prompt is {shown(prompt)}, but must be bytes, or a list of bytes for each of {self.count} "
                            "sequences")
        if len({len(p) for p in self.prompts}) != 1:
            raise UserError("the prompts differ in length, but must be equally long; draw those of each length by "
                            "themselves")

    @staticmethod
    def whole(name, value, least, most=None):
        found = as_whole(value)
        if found is None or found < least or (most is not None and found > most):
            upper = "" if most is None else f" and at most {most}"
            raise UserError(f"{name} is {shown(value)}, but must be a whole number of at least {least}{upper}")
        return found

    @staticmethod
    def is_prompt(prompt):
        ids = isinstance(prompt, (list, tuple)) and all(isinstance(i, int) and not isinstance(i, bool) for i in prompt)
        return ids or isinstance(prompt, (bytes, bytearray))

    def fit(self, settings):
        context = settings.context
        self.length = context if self.length is None else self.length
        given = len(self.prompts[0])
        if self.length > context and not settings.memory:
            raise UserError(f"length is {self.length}, but the model's context is {context}")
        if given >= self.length:
            raise UserError(f"the prompt has {given} bytes, but must be shorter than the {self.length} bytes of a "
                            "sample")
        prompts = self.prompts if len(self.prompts) == self.count else self.prompts * self.count
        if any(not 0 <= token < settings.vocabulary for p in prompts for token in p):
            raise UserError(f"a prompt has an id that is not from 0 to {settings.vocabulary - 1}")
        return torch.tensor([list(p) for p in prompts], dtype=torch.long).reshape(self.count, given)

    def draw(self, logits, position):
        """A byte or token for each row of (count, vocabulary) logits, which are in double on the CPU."""
        order = torch.sort(logits, dim=-1, descending=True, stable=True)  # among equals the smaller byte comes first
        if self.temperature == 0:
            return order.indices[:, 0]
        weights = torch.exp((logits - order.values[:, :1]) / self.temperature)
        if self.top_k > 0 or self.top_p < 1:
            weights = self.without_unlikely(weights, order.indices)
        sums = torch.cumsum(weights, -1)
        numbers = torch.tensor([uniform(self.seed, s, position) for s in range(self.count)], dtype=torch.float64)
        beyond = sums > numbers[:, None] * sums[:, -1:]
        # Sums never fall, so the first beyond is the number of those that are not; only rounding can leave none.
        return torch.where(beyond.any(-1), (~beyond).sum(-1), order.indices[:, 0])

    def without_unlikely(self, weights, order):
        ranked = weights.gather(-1, order)
        most = min(self.top_k, weights.shape[-1]) if self.top_k > 0 else weights.shape[-1]
        total = ranked[:, :most].sum(-1, keepdim=True)
        better = torch.cumsum(ranked, -1) - ranked
        kept = torch.arange(weights.shape[-1]) < most
        if self.top_p < 1:
            kept = kept & (better < self.top_p * total)
            kept[:, 0] = True
        return torch.zeros_like(weights).scatter(-1, order, torch.where(kept, ranked, torch.zeros_like(ranked)))


class Cache:
    """Keys and values of every layer, (batch, key heads, length, size)."""

    def __init__(self, settings, batch, length, like):
        def rows(size):
            return [like.new_empty(batch, settings.key_heads, length, size) for _ in range(settings.layers)]

        self.keys, self.values = rows(settings.key_size), rows(settings.value_size)

    def extend(self, layer, first, k, v):
        """Those of all positions so far, with the new ones, which begin at `first`."""
        end = first + k.shape[2]
        self.keys[layer][:, :, first:end], self.values[layer][:, :, first:end] = k, v
        return self.keys[layer][:, :, :end], self.values[layer][:, :, :end]


@torch.no_grad()
def generate(module, request):
    tokens = request.fit(module.settings)
    like = next(module.parameters())
    training = module.training
    module.eval()
    try:
        cache = module.cache(request.count, request.length)
        slots = torch.cat([torch.full((request.count, 1), module.start), tokens], 1)  # the start vector, then tokens
        first = 0
        for position in range(tokens.shape[1], request.length):
            logits = module.slots(slots[:, first:].to(like.device), first, cache)[:, -1].double().cpu()
            slots = torch.cat([slots, request.draw(logits, position)[:, None]], 1)
            first = position + 1
    finally:
        module.train(training)
    return [bytes(row) if module.start == 256 else row for row in slots[:, 1:].tolist()]
