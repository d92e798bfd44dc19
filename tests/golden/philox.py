"""Philox4x32-10 (Salmon et al. 2011) and the dropout masks that come of it, from docs/numerics.md."""
import numpy
import torch

LOW = numpy.uint64(0xFFFFFFFF)
DROPOUT = 2  # the purpose, in the top byte of the last counter word


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


def dropout(p, seed, step):
    """keep(layer, branch, y): branch 0 is attention, 1 the feed-forward layer."""
    p = float(numpy.float32(p))
    limit = int(numpy.ceil(p * 2.0**32))

    def keep(layer, branch, y):
        groups = numpy.arange(-(-y.numel() // 4))
        words = philox(seed, groups, step, DROPOUT << 24 | (2 * layer + branch)).reshape(-1)[: y.numel()]
        kept = torch.from_numpy((words >= numpy.uint64(limit)).reshape(y.shape))
        return y * kept.to(y.dtype) / (1 - p)

    return keep
