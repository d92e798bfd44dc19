// Lists of key blocks drawn by a number: every head of some of them has its own, some lists are empty, and entries that
// no list holds are none.
#pragma once
#include <cstdint>
#include <vector>

#include "kernels/base/philox.h"
#include "kernels/block_lists/block_lists.h"

namespace longstride::kernels {

class DrawnLists {
 public:
  // sequences, heads: with lists of their own.
  DrawnLists(std::uint64_t number, std::int32_t block, std::int64_t sequences, std::int64_t heads, std::int64_t queries,
             std::int64_t keys)
      : block_(block),
        sequences_(sequences),
        heads_(heads),
        key_blocks_(tiles_in(static_cast<std::int32_t>(keys), block)) {
    const std::int64_t query_blocks = tiles_in(static_cast<std::int32_t>(queries), block);
    entries_ = query_blocks * key_blocks_;
    for (std::int64_t head = 0; head < sequences * heads; ++head) {
      begin_.push_back(0);
      for (std::int64_t b = 0; b < query_blocks; ++b) {
        const auto word = [&](std::uint32_t at) {
          return philox(number, static_cast<std::uint64_t>(head), static_cast<std::uint32_t>(b), at).word[0];
        };
        for (std::int64_t c = 0; c < key_blocks_ && word(0) % 8 != 0; ++c)
          if (word(static_cast<std::uint32_t>(c + 1)) % 2 == 0) keys_.push_back(static_cast<std::int32_t>(c));
        begin_.push_back(static_cast<std::int32_t>(std::ssize(keys_) - head * entries_));
      }
      keys_.resize(static_cast<std::size_t>((head + 1) * entries_), -1);
    }
    query_begin_.resize(static_cast<std::size_t>(sequences * heads * (key_blocks_ + 1)));
    queries_.resize(keys_.size());
    cpu::block_lists({view()}, {});
  }

  BlockLists view() const {
    const auto of = [&](const std::vector<std::int32_t>& x) {
      return Tensor(const_cast<std::int32_t*>(x.data()), Dtype::i32,
                    {sequences_, heads_, std::ssize(x) / (sequences_ * heads_)});
    };
    return {block_, of(begin_), of(keys_), of(query_begin_), of(queries_)};
  }

  // The definition.
  bool hold(std::int64_t sequence, std::int64_t head, std::int64_t i, std::int64_t j) const {
    const std::int64_t unit = (sequences_ > 1 ? sequence : 0) * heads_ + (heads_ > 1 ? head : 0);
    const std::int64_t blocks = std::ssize(begin_) / (sequences_ * heads_);
    const auto* const begin = begin_.data() + unit * blocks + i / block_;
    bool holds = false;
    for (std::int64_t at = begin[0]; at < begin[1]; ++at)
      holds |= keys_[static_cast<std::size_t>(unit * entries_ + at)] == j / block_;
    return holds;
  }

 private:
  std::int32_t block_;
  std::int64_t sequences_, heads_, key_blocks_, entries_ = 0;
  std::vector<std::int32_t> begin_, keys_, query_begin_, queries_;
};

}  // namespace longstride::kernels
