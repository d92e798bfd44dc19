#include "kernels/attention/pattern/random_blocks.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "kernels/base/philox.h"

namespace longstride::kernels {
namespace {

// Whole numbers drawn in order for one head of a layer.
class Draw {
 public:
  Draw(const PatternConfig& pattern, std::int64_t layer, std::int64_t head)
      : seed_(static_cast<std::uint64_t>(pattern.seed)),
        head_(static_cast<std::uint32_t>(head)),
        domain_(domain_of(Purpose::blocks, static_cast<std::uint32_t>(layer))) {}

  std::int64_t below(std::int64_t end) {
    const Philox4 words = philox(seed_, drawn_++, head_, domain_);
    const std::uint64_t wide = std::uint64_t{words.word[0]} << 32 | words.word[1];
    return static_cast<std::int64_t>(wide % static_cast<std::uint64_t>(end));
  }
  void shuffle(std::vector<std::int32_t>& all) {  // Fisher and Yates
    for (std::int64_t i = std::ssize(all) - 1; i > 0; --i)
      std::swap(all[static_cast<std::size_t>(i)], all[static_cast<std::size_t>(below(i + 1))]);
  }

 private:
  std::uint64_t seed_, drawn_ = 0;
  std::uint32_t head_, domain_;
};

// Permutations of m blocks: of[b] is the block that b reads.
class Balanced {
 public:
  Balanced(std::int64_t m, bool window) : m_(m), window_(window), taken_(static_cast<std::size_t>(m)) {}

  // Draws a permutation, keeps its pairs that are free, and completes it.
  std::vector<std::int32_t> next(Draw& draw) {
    std::vector<std::int32_t> drawn(static_cast<std::size_t>(m_));
    std::iota(drawn.begin(), drawn.end(), 0);
    draw.shuffle(drawn);
    std::vector<std::int32_t> order = drawn;
    of_.assign(drawn.size(), -1);
    reader_.assign(drawn.size(), -1);
    for (std::int32_t b = 0; b < m_; ++b)
      if (is_free(b, at(drawn, b))) pair(b, at(drawn, b));
    draw.shuffle(order);
    for (const std::int32_t b : order) {
      if (at(of_, b) >= 0) continue;
      draw.shuffle(drawn);
      complete(b, drawn);
    }
    for (std::int32_t b = 0; b < m_; ++b) taken_[static_cast<std::size_t>(b)].push_back(at(of_, b));
    return of_;
  }

 private:
  static std::int32_t& at(std::vector<std::int32_t>& all, std::int64_t i) { return all[static_cast<std::size_t>(i)]; }

  bool is_free(std::int32_t b, std::int32_t c) const {
    const std::int64_t apart = std::abs(b - c);
    if (window_ && (apart <= 1 || apart == m_ - 1)) return false;
    const auto& taken = taken_[static_cast<std::size_t>(b)];
    return std::find(taken.begin(), taken.end(), c) == taken.end();
  }
  void pair(std::int32_t b, std::int32_t c) { at(of_, b) = c, at(reader_, c) = b; }

  // Finds a block for b, in this order: those that others read are given up for free ones, by the shortest chain.
  void complete(std::int32_t b, const std::vector<std::int32_t>& order) {
    std::vector<std::int32_t> asked(static_cast<std::size_t>(m_), -1), queue = {b};  // asked: who wants a block
    for (std::size_t next = 0; next < queue.size(); ++next)
      for (const std::int32_t c : order) {
        const std::int32_t who = queue[next];
        if (at(asked, c) >= 0 || !is_free(who, c)) continue;
        at(asked, c) = who;
        if (at(reader_, c) >= 0) {
          queue.push_back(at(reader_, c));
          continue;
        }
        for (std::int32_t give = c, reader = who;; reader = at(asked, give)) {
          const std::int32_t given_up = at(of_, reader);
          pair(reader, give);
          if (reader == b) return;
          give = given_up;
        }
      }
    throw std::logic_error("no permutation of blocks is left");
  }

  std::int64_t m_;
  bool window_;
  std::vector<std::vector<std::int32_t>> taken_;  // by every block in earlier permutations
  std::vector<std::int32_t> of_, reader_;
};

KeyBlocks balanced(const PatternConfig& pattern, std::int64_t layer, std::int64_t head, std::int64_t blocks) {
  KeyBlocks all(static_cast<std::size_t>(blocks));
  const std::int64_t count = std::min(pattern.random, most_random_blocks(pattern, blocks)),
                     first = pattern.global_first;
  if (count < 1) return all;
  Draw draw(pattern, layer, head);
  Balanced permutations(blocks - first - pattern.global_last, uses(pattern, PartKind::block_window));
  for (std::int64_t t = 0; t < count; ++t) {
    const std::vector<std::int32_t> read = permutations.next(draw);
    for (std::size_t b = 0; b < read.size(); ++b)
      all[b + static_cast<std::size_t>(first)].push_back(read[b] + static_cast<std::int32_t>(first));
  }
  return all;
}

// bigbird_block_rand_mask of the released code, whose last_idx is 1,024.
KeyBlocks published(const PatternConfig& pattern, std::int64_t layer, std::int64_t head, std::int64_t blocks) {
  KeyBlocks all(static_cast<std::size_t>(blocks));
  constexpr std::int64_t known = 1024;
  const std::int64_t last = known > 2 * pattern.block ? std::min(known / pattern.block, blocks) - 1 : blocks - 1;
  Draw draw(pattern, layer, head);
  for (std::int64_t i = 1; i < blocks - 1; ++i) {
    std::vector<std::int32_t> from;
    const auto add = [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t c = begin; c <= std::min(end, blocks - 2); ++c) from.push_back(static_cast<std::int32_t>(c));
    };
    if (i <= 2) {
      add(i + 2, last);
    } else if (i >= blocks - 3) {
      add(1, last);
    } else {
      add(1, std::min(i - 2, last));
      if (i - 2 <= last && i + 1 != last) add(i + 2, last);
    }
    draw.shuffle(from);
    from.resize(std::min(from.size(), static_cast<std::size_t>(pattern.random)));
    all[static_cast<std::size_t>(i)] = std::move(from);
  }
  return all;
}

}  // namespace

bool has_lists(const PatternConfig& pattern, std::int64_t layer, std::int64_t heads) {
  const std::vector<PartKind> parts = parts_of(pattern, layer, heads, 0);
  return std::find(parts.begin(), parts.end(), PartKind::random_blocks) != parts.end();
}

std::int64_t most_random_blocks(const PatternConfig& pattern, std::int64_t blocks) {
  constexpr std::int64_t of_window = 3;
  const std::int64_t between = std::max<std::int64_t>(blocks - pattern.global_first - pattern.global_last, 0);
  return uses(pattern, PartKind::block_window) ? std::max<std::int64_t>(between - of_window, 0) : between;
}

KeyBlocks drawn_blocks(const PatternConfig& pattern, std::int64_t layer, std::int64_t head, std::int64_t blocks) {
  return pattern.draw == BlockDraw::balanced ? balanced(pattern, layer, head, blocks)
                                             : published(pattern, layer, head, blocks);
}

KeyBlocks key_blocks(const PatternConfig& pattern, std::int64_t layer, std::int64_t head, std::int64_t blocks) {
  KeyBlocks all = drawn_blocks(pattern, layer, head, blocks);
  const std::int64_t last = std::max(blocks - pattern.global_last, pattern.global_first);
  const bool window = uses(pattern, PartKind::block_window);
  for (std::int64_t b = 0; b < blocks; ++b) {
    std::vector<std::int32_t>& list = all[static_cast<std::size_t>(b)];
    const auto add = [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t c = std::max<std::int64_t>(begin, 0); c < std::min(end, blocks); ++c)
        list.push_back(static_cast<std::int32_t>(c));
    };
    if (b < pattern.global_first || b >= last) add(0, blocks);
    add(0, pattern.global_first);
    add(last, blocks);
    if (window) add(b - 1, b + 2);
    std::sort(list.begin(), list.end());
    list.erase(std::unique(list.begin(), list.end()), list.end());
  }
  return all;
}

ListsOfHeads lists_of_heads(const PatternConfig& pattern, std::int64_t layer, std::int64_t heads, std::int64_t blocks) {
  ListsOfHeads lists;
  std::vector<std::vector<std::int32_t>> of_heads;
  for (std::int64_t head = 0; head < heads; ++head) {
    std::vector<std::int32_t>& keys = of_heads.emplace_back();
    lists.key_begin.push_back(0);
    for (const std::vector<std::int32_t>& list : key_blocks(pattern, layer, head, blocks)) {
      keys.insert(keys.end(), list.begin(), list.end());
      lists.key_begin.push_back(static_cast<std::int32_t>(keys.size()));
    }
    lists.entries = std::max(lists.entries, std::ssize(keys));
  }
  for (std::vector<std::int32_t>& keys : of_heads) {
    keys.resize(static_cast<std::size_t>(lists.entries));
    lists.keys.insert(lists.keys.end(), keys.begin(), keys.end());
  }
  return lists;
}

}  // namespace longstride::kernels
