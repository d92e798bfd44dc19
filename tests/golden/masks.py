"""The masks of objective masked, drawn again from docs/develop/numerics.md, in NumPy."""
import numpy

from philox import philox

MASKS = 8  # the purpose
MASK, PAD = 256, 257
LONGEST_WORD = 32


def in_word(byte):
    return chr(byte).isalnum() if byte < 128 else True


def units(objective, row, phase):
    """[begin, end) of everything that may be asked in a row without documents or groups, in order."""
    unit, n = objective.get("unit", "byte"), len(row)
    if unit == "byte":
        return [(i, i + 1) for i in range(n)]
    if unit == "group":
        return [(0, n)]
    if unit == "span":
        cuts = [0, *(i for i in range(1, n) if (i + phase) % objective.get("length", 8) == 0), n]
        return list(zip(cuts, cuts[1:]))
    found, begin = [], None
    for i, byte in enumerate([*row, 0]):
        if i < n and in_word(int(byte)):
            if begin is not None and i - begin == LONGEST_WORD:
                found.append((begin, i))
                begin = i
            begin = i if begin is None else begin
        elif begin is not None:
            found.append((begin, i))
            begin = None
    return found


def draw(objective, row, seed, number):
    """Tokens and weights of a row (n bytes) with this number."""
    def words(position, which):
        return philox(seed, [number], position, MASKS << 24 | which)[0].astype(float)

    share, hidden, replaced = objective.get("share", 0.15), objective.get("mask", 0.8), objective.get("random", 0.1)
    phase = int(words(0, 2)[0]) % objective.get("length", 8)
    every = [(begin, end, words(begin, 0)) for begin, end in units(objective, row, phase)]
    tokens, weights = row.astype(numpy.int64), numpy.zeros(len(row))
    for begin, end, w in every:
        if w[0] >= 2.0**32 * share and w[0] != min(other[0] for _, _, other in every):
            continue
        weights[begin:end] = 1
        if w[1] < 2.0**32 * hidden:
            tokens[begin:end] = MASK
        elif w[1] < 2.0**32 * (hidden + replaced):
            tokens[begin:end] = [int(words(i, 1)[0]) % 256 for i in range(begin, end)]
    return tokens, weights
