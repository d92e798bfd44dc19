"""Blocks of keys that are drawn for every head: the part random_blocks (docs/develop/numerics.md)."""
import collections
import functools

PURPOSE = 9  # of the draws
LOW = 0xFFFFFFFF


def philox(key, element, step, domain):
    """Four words of Philox4x32-10 (Salmon et al. 2011)."""
    a, b, c, d, k0, k1 = element & LOW, element >> 32, step, domain, key & LOW, key >> 32
    for _ in range(10):
        first, second = 0xD2511F53 * a, 0xCD9E8D57 * c
        a, b, c, d = (second >> 32) ^ b ^ k0, second & LOW, (first >> 32) ^ d ^ k1, first & LOW
        k0, k1 = (k0 + 0x9E3779B9) & LOW, (k1 + 0xBB67AE85) & LOW
    return a, b, c, d


class Draw:
    """Whole numbers for one head of a layer, in order."""

    def __init__(self, seed, layer, head):
        self.seed, self.head, self.domain, self.drawn = seed, head, PURPOSE << 24 | layer, 0

    def below(self, end):
        high, low = philox(self.seed, self.drawn, self.head, self.domain)[:2]
        self.drawn += 1
        return (high << 32 | low) % end

    def shuffled(self, numbers):
        numbers = list(numbers)
        for i in range(len(numbers) - 1, 0, -1):
            j = self.below(i + 1)
            numbers[i], numbers[j] = numbers[j], numbers[i]
        return numbers


def permutation(draw, count, forbidden):
    """The block that each block reads. Pairs of a drawn permutation stay where they are allowed; then each block without
    one, in a drawn order, takes what the shortest chain of exchanges frees, searched in an order drawn for it."""
    drawn = draw.shuffled(range(count))
    of = {b: c for b, c in enumerate(drawn) if (b, c) not in forbidden}
    for b in draw.shuffled(drawn):
        if b in of:
            continue
        drawn = draw.shuffled(drawn)
        reader, asked, queue, end = {c: r for r, c in of.items()}, {}, collections.deque([b]), None
        while end is None:
            who = queue.popleft()
            for c in drawn:
                if c in asked or (who, c) in forbidden:
                    continue
                asked[c] = who
                if c not in reader:
                    end = c
                    break
                queue.append(reader[c])
        who = None
        while who != b:
            who = asked[end]
            of[who], end = end, of.get(who)
    return [of[block] for block in range(count)]


def balanced(pattern, draw, blocks):
    window, first = "block_window" in pattern.parts, pattern.global_first
    between = max(0, blocks - first - pattern.global_last)
    most = max(0, between - 3) if window else between
    near = (0, 1, between - 1)
    forbidden = {(b, c) for b in range(between) for c in range(between) if window and abs(b - c) in near}
    lists = [[] for _ in range(blocks)]
    for _ in range(min(pattern.random, most)):
        of = permutation(draw, between, forbidden)
        forbidden |= set(enumerate(of))
        for b, c in enumerate(of):
            lists[b + first].append(c + first)
    return lists


def published(pattern, draw, blocks):
    """As the released code draws, which knows blocks of the first 1,024 positions alone."""
    known = 1024
    last = min(known // pattern.block, blocks) - 1 if known > 2 * pattern.block else blocks - 1
    lists = [[] for _ in range(blocks)]
    for i in range(1, blocks - 1):
        if i <= 2:
            ranges = [(i + 2, last)]
        elif i >= blocks - 3:
            ranges = [(1, last)]
        else:
            ranges = [(1, min(i - 2, last))] + ([(i + 2, last)] if i - 2 <= last and i + 1 != last else [])
        choices = [c for begin, end in ranges for c in range(begin, min(end, blocks - 2) + 1)]
        lists[i] = draw.shuffled(choices)[:pattern.random]
    return lists


@functools.lru_cache(maxsize=4096)
def drawn_blocks(pattern, layer, head, blocks):
    """For every block of queries the drawn blocks of keys, in the order of the draws."""
    draw = Draw(pattern.seed, layer, head)
    return (balanced if pattern.draw == "balanced" else published)(pattern, draw, blocks)
