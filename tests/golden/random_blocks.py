"""The lists of random_blocks (kernels/attention/pattern/random_blocks.h) drawn again: own code for the balanced draw."""
import collections

import numpy

from philox import philox

BLOCKS = 9  # the purpose


class Draw:
    def __init__(self, seed, layer, head):
        self.key, self.head, self.domain, self.drawn = seed, head, BLOCKS << 24 | layer, 0

    def shuffled(self, numbers):
        numbers = list(numbers)
        for i in range(len(numbers) - 1, 0, -1):
            high, low = (int(w) for w in philox(self.key, [self.drawn], self.head, self.domain)[0][:2])
            self.drawn += 1
            j = (high << 32 | low) % (i + 1)
            numbers[i], numbers[j] = numbers[j], numbers[i]
        return numbers


def permutation(draw, m, forbidden):
    """of[b]: the block that b reads. Pairs of a drawn permutation stay where they are allowed; then every block without one,
    in a drawn order, takes what the shortest chain of exchanges frees, searched in an order drawn for it."""
    drawn = draw.shuffled(range(m))
    of = {b: c for b, c in enumerate(drawn) if (b, c) not in forbidden}
    for b in draw.shuffled(drawn):
        if b in of:
            continue
        order, reader = draw.shuffled(drawn), {c: r for r, c in of.items()}
        drawn, asked, queue, end = order, {}, collections.deque([b]), None
        while end is None:
            who = queue.popleft()
            for c in order:
                if c in asked or (who, c) in forbidden:
                    continue
                asked[c] = who
                if c not in reader:
                    end = c
                    break
                queue.append(reader[c])
        while True:
            who = asked[end]
            of[who], end = end, of.get(who)
            if who == b:
                break
    return [of[b] for b in range(m)]


def drawn_blocks(seed, layer, head, blocks, random, window=True, first=1, last=1):
    """Of every block of queries the drawn blocks, in order of their permutations."""
    m, draw = blocks - first - last, Draw(seed, layer, head)
    forbidden = {(b, c) for b in range(m) for c in range(m) if window and (abs(b - c) <= 1 or abs(b - c) == m - 1)}
    lists = [[] for _ in range(blocks)]
    for _ in range(random):
        of = permutation(draw, m, forbidden)
        forbidden |= set(enumerate(of))
        for b, c in enumerate(of):
            lists[b + first].append(c + first)
    return lists


def main():
    for head in range(2):
        print(drawn_blocks(7, 1, head, 11, 3))


if __name__ == "__main__":
    main()
