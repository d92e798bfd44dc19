// Blocks that take tasks in order and advance at random, to see whether they ever wait for each other in a circle.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "kernels/attention/sm90/long_band/long_band_order.h"

namespace longstride::kernels::cuda::sm90 {

// Order: LongBandOrder or JoinedOrder, the same in all classes.
template <class Order>
class TurnBlocks {
 public:
  TurnBlocks(const Order& order, const TurnRing& ring, std::int32_t classes, std::size_t blocks)
      : order_(order), ring_(ring), classes_(classes), at_(blocks), counter_(slots()), holder_(slots(), -1) {}

  // True if all tasks end.
  bool run() {
    for (Block& block : at_) take(block);
    std::minstd_rand random(1);
    while (busy_ > 0) {
      std::vector<Block*> able;
      for (Block& block : at_)
        if (block.residue >= 0 && counter_[slot(block)] == turn(block)) able.push_back(&block);
      if (able.empty()) return false;
      step(*able[random() % able.size()]);
    }
    return finished_ == classes_ * ring_.tiles;
  }

 private:
  struct Block {
    std::int32_t residue = -1, task = 0, query = 0;
  };
  std::size_t slots() const { return static_cast<std::size_t>(ring_.lanes) * static_cast<std::size_t>(ring_.ring); }
  std::int32_t lane(const Block& b) const { return b.residue % ring_.lanes; }
  std::size_t slot(const Block& b) const { return static_cast<std::size_t>(ring_.slot(lane(b), b.query)); }
  std::uint32_t turn(const Block& b) const {
    return ring_.first_turn(b.residue / ring_.lanes, b.query) +
           static_cast<std::uint32_t>(order_.turn(b.task, b.query));
  }
  void take(Block& block) {
    busy_ -= block.residue >= 0 ? 1 : 0;
    block.residue = -1;
    const std::int32_t group = taken_ / (ring_.lanes * order_.tasks()),
                       rest = taken_ - group * ring_.lanes * order_.tasks(),
                       lanes = std::min(ring_.lanes, classes_ - group * ring_.lanes);
    if (taken_ == classes_ * order_.tasks()) return;
    ++taken_;
    ++busy_;
    block = {group * ring_.lanes + rest % lanes, rest / lanes, order_.end_of(rest / lanes) - 1};
  }
  void step(Block& block) {
    const std::size_t at = slot(block);
    const std::int32_t owner = block.residue * ring_.tiles + block.query;
    const bool first = order_.turn(block.task, block.query) == 0, last = order_.is_last(block.task, block.query);
    EXPECT_EQ(holder_[at], first ? -1 : owner);
    holder_[at] = last ? -1 : owner;
    finished_ += last;
    const std::uint32_t begin = ring_.first_turn(block.residue / ring_.lanes, block.query);
    EXPECT_LT(counter_[at] - begin, ring_.most_turns);
    counter_[at] = last ? begin + ring_.most_turns : counter_[at] + 1;
    if (--block.query < order_.begin_of(block.task)) take(block);
  }

  Order order_;
  TurnRing ring_;
  std::int32_t classes_, taken_ = 0, finished_ = 0, busy_ = 0;
  std::vector<Block> at_;
  std::vector<std::uint32_t> counter_;
  std::vector<std::int32_t> holder_;  // the query tile whose sum a slot has
};

}  // namespace longstride::kernels::cuda::sm90
