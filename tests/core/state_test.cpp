#include "framework/core/state.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "framework/core/errors.h"

namespace longstride {
namespace {

// Two types, as in training in 16 bits: the count is not rounded.
struct Instance {
  explicit Instance(std::int64_t rows) {
    const std::int64_t bytes = rows * set.row_bytes(types);
    now.resize(static_cast<std::size_t>(bytes));
    next.resize(now.size());
    states = RowStates(rows, types, Tensor(now.data(), Dtype::u8, {bytes}), Tensor(next.data(), Dtype::u8, {bytes}));
  }
  std::uint8_t* now_at(std::int64_t byte) { return now.data() + byte; }
  StateTypes types{Dtype::bf16, Dtype::f32};
  StateSet set;
  const State& wide = set.add("a", {5, 3}, StateType::compute);
  const State& count = set.add("count", {1}, StateType::exact);
  const State& narrow = set.add("b", {70}, StateType::compute);
  std::vector<std::uint8_t> now, next;
  RowStates states;
};

TEST(States, ARowsElementsAreNextToThoseOfTheRowBefore) {
  Instance of(4);
  EXPECT_EQ(of.set.row_bytes(of.types), (64 + 128) * 2 + 64 * 4);
  EXPECT_EQ(of.states.now(of.wide).shape(), Shape({4, 5, 3}));
  EXPECT_EQ(of.states.now(of.wide).as<std::uint8_t>(), of.now_at(0));
  EXPECT_EQ(of.states.now(of.count).as<std::uint8_t>(), of.now_at(4 * 64 * 2));
  EXPECT_EQ(of.states.next(of.narrow).shape(), Shape({4, 70}));
  EXPECT_EQ(of.states.next(of.narrow).as<std::uint8_t>(), of.next.data() + 4 * (64 * 2 + 64 * 4));
}

TEST(States, EveryStateHasItsTypeAndLiesWithinTheBuffer) {
  Instance of(3);
  EXPECT_EQ(of.states.now(of.wide).dtype(), Dtype::bf16);
  EXPECT_EQ(of.states.now(of.count).dtype(), Dtype::f32);
  EXPECT_EQ(of.set.row_bytes({Dtype::f32, Dtype::f32}), (64 + 128 + 64) * 4);
  EXPECT_EQ(of.set.row_bytes({Dtype::f64, Dtype::f64}), (64 + 128 + 64) * 8);
  std::vector<std::uint8_t> written(of.now.size(), 0);
  for (const State& state : of.set.all()) {
    const Tensor t = of.states.now(state);
    for (std::size_t i = 0; i < t.bytes(); ++i) {
      const std::ptrdiff_t at = t.as<std::uint8_t>() + i - of.now.data();
      EXPECT_EQ(written.at(static_cast<std::size_t>(at))++, 0) << state.name << " " << i;
    }
  }
}

TEST(States, AMicroBatchHasItsOwnRows) {
  Instance of(4);
  const RowStates part = of.states.slice(1, 4).slice(1, 3);  // rows 2 and 3
  EXPECT_EQ(part.count(), 2);
  EXPECT_EQ(part.now(of.wide).as<std::uint8_t>(), of.now_at(2 * 15 * 2));
  EXPECT_EQ(part.now(of.count).as<std::uint8_t>(), of.now_at(4 * 64 * 2 + 2 * 4));
  EXPECT_EQ(part.now(of.narrow).as<std::uint8_t>(), of.now_at(4 * (64 * 2 + 64 * 4) + 2 * 70 * 2));
  EXPECT_EQ(part.all_now().count(), of.states.all_now().count());
  EXPECT_THROW(of.states.slice(1, 4).slice(0, 4), InternalError);
}

TEST(States, AreTheSameRowsInOtherMemory) {
  Instance of(4), other(4);
  const RowStates part = of.states.slice(1, 3).at(other.states.all_next(), other.states.all_now());
  EXPECT_EQ(part.count(), 2);
  EXPECT_EQ(part.now(of.count).dtype(), Dtype::f32);
  EXPECT_EQ(part.now(of.count).as<std::uint8_t>(), other.next.data() + 4 * 64 * 2 + 4);
}

TEST(States, AreRefusedTwiceOrWithoutMemory) {
  Instance of(1);
  EXPECT_THROW(of.set.add("a", {1}, StateType::compute), InternalError);
  EXPECT_THROW(of.set.add("c", {0}, StateType::compute), InternalError);
  EXPECT_THROW(RowStates().now(of.wide), InternalError);
  EXPECT_THROW(RowStates(1, of.types, Tensor(of.now.data(), Dtype::f32, {1}), of.states.all_next()), InternalError);
  EXPECT_TRUE(StateSet().empty());
}

}  // namespace
}  // namespace longstride
