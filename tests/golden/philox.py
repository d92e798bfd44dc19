"""Philox4x32-10 (Salmon et al. 2011), and the initial values and dropout masks made from it (docs/develop/numerics.md)."""
import math

import numpy
import torch

LOW = numpy.uint64(0xFFFFFFFF)
INITIALISE, DROPOUT = 1, 2  # purposes, in the top byte of the last counter word


def philox(key, element, step, domain):
    """Four words for every entry of `element`: (..., 4)."""
    element = numpy.asarray(element, dtype=numpy.uint64)
    counter = [element & LOW, element >> numpy.uint64(32)]
    counter += [numpy.full_like(element, step), numpy.full_like(element, domain)]
    keys = [key & 0xFFFFFFFF, key >> 32]
    for _ in range(10):
        first, second = numpy.uint64(0xD2511F53) * counter[0], numpy.uint64(0xCD9E8D57) * counter[2]
        counter = [
            (second >> numpy.uint64(32)) ^ counter[1] ^ numpy.uint64(keys[0]),
            second & LOW,
            (first >> numpy.uint64(32)) ^ counter[3] ^ numpy.uint64(keys[1]),
            first & LOW,
        ]
        keys = [(keys[0] + 0x9E3779B9) & 0xFFFFFFFF, (keys[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return numpy.stack(counter, -1)


def check_known_answers():
    """From the Random123 distribution, kat_vectors."""
    for key, element, step, domain, words in [
        (0, 0, 0, 0, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        (2**64 - 1, 2**64 - 1, 2**32 - 1, 2**32 - 1, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
        (0x299F31D0A4093822, 0x85A308D3243F6A88, 0x13198A2E, 0x03707344,
         [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1]),
    ]:
        assert philox(key, [element], step, domain)[0].tolist() == words


def dropout(model, seed, step):
    """keep(what, y, layer): the output of a branch, "attention" or "feed_forward"; what is "inner" to the latter; or, of
    the whole model, "embedding" or "output". `model` is a recipe's."""

    def keep(what, y, layer=0):
        rate = {"attention": "dropout", "feed_forward": "dropout"}.get(what, f"{what}_dropout")
        p = float(numpy.float32(model.get(rate, 0.0)))
        limit = int(numpy.ceil(p * 2.0**32))
        identity = {"attention": 2 * layer, "feed_forward": 2 * layer + 1, "inner": 2**20 + 2 * layer + 1,
                    "embedding": 2**21, "output": 2**21 + 1}[what]
        groups = numpy.arange(-(-y.numel() // 4))
        words = philox(seed, groups, step, DROPOUT << 24 | identity).reshape(-1)[: y.numel()]
        kept = torch.from_numpy((words >= numpy.uint64(limit)).reshape(y.shape))
        return y * kept.to(y.dtype) / (1 - p)

    return keep


def deviation(model, name, shape):
    """Of an initial weight; 0 if all are zero."""
    if name.endswith(".bias"):
        return 0.0
    of_tables = model.model.get("init_deviations", {})
    table = {"embedding.start": "embedding", "embedding.token.weight": "embedding"}.get(
        name, "distance_table" if name.endswith("distance.table") else "")
    if of_tables.get(table, 0.0) > 0:
        return of_tables[table]
    own = model.model.get("init_deviation", 0.0)
    if own > 0 or name == "output.weight":
        return own
    fan_in = shape[-1] * (len(model.positions) if ".position." in name else 1)
    value = 0.125 / fan_in
    if model.model.get("init", "variance") == "variance":
        value = math.sqrt(value)
    shrinks = name.endswith(("attention.output.weight", "feed_forward.outer.weight"))
    return value / math.sqrt(2 * model.layers) if shrinks else value


def initial(model, seed):
    """Every parameter of a Reference as a run with this seed starts."""
    made = {}
    for index, (name, shape) in enumerate(model.shapes().items()):
        count = math.prod(shape)
        uniform = (philox(seed, numpy.arange(count), 0, INITIALISE << 24 | index) + 0.5) / 2.0**32
        normal = numpy.sqrt(-2 * numpy.log(uniform[:, 0])) * numpy.cos(2 * math.pi * uniform[:, 1])
        values = numpy.ones(count) if name.endswith("norm.weight") else deviation(model, name, shape) * normal
        made[name] = torch.from_numpy(values.astype(numpy.float32).astype(numpy.float64)).reshape(shape)
    return made
