"""Numbers that Python and C++ derive in the same way, so that golden files need not store them.

    word(name, i) = splitmix64(fnv1a64(name) + (i + 1) * 0x9E3779B97F4A7C15)
    unit(name, i) = ((word >> 44) * 2 + 1 - 2^20) / 2^20      in (-1, 1), exact in float32
"""
import numpy

WORD = (1 << 64) - 1


def fnv1a64(name):
    hashed = 0xCBF29CE484222325
    for byte in name.encode():
        hashed = ((hashed ^ byte) * 0x100000001B3) & WORD
    return hashed


def words(name, count):
    z = numpy.uint64(fnv1a64(name)) + numpy.arange(1, count + 1, dtype=numpy.uint64) * numpy.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
    return z ^ (z >> numpy.uint64(31))


def units(name, count):
    return ((words(name, count) >> numpy.uint64(44)).astype(numpy.float64) * 2 + 1 - 2**20) / 2**20


def tokens(name, count):
    return (words(name, count) >> numpy.uint64(56)).astype(numpy.uint8)
