#include "framework/core/state.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "framework/core/errors.h"

namespace longstride {
namespace {

struct Instance {
  explicit Instance(std::int64_t rows) {
    const std::int64_t count = rows * set.row_size();
    now.resize(static_cast<std::size_t>(count));
    next.resize(now.size());
    std::iota(now.begin(), now.end(), 0.0f);
    states = RowStates(rows, Tensor(now.data(), Dtype::f32, {count}), Tensor(next.data(), Dtype::f32, {count}));
  }
  StateSet set;
  const State& wide = set.add("a", {5, 3});
  const State& narrow = set.add("b", {70});
  std::vector<float> now, next;
  RowStates states;
};

TEST(States, ARowsElementsAreNextToThoseOfTheRowBefore) {
  const Instance of(4);
  EXPECT_EQ(of.set.row_size(), 64 + 128);
  EXPECT_EQ(of.states.now(of.wide).shape(), Shape({4, 5, 3}));
  EXPECT_EQ(of.states.now(of.wide).as<float>(), of.now.data());
  EXPECT_EQ(of.states.next(of.narrow).shape(), Shape({4, 70}));
  EXPECT_EQ(of.states.next(of.narrow).as<float>(), of.next.data() + 4 * 64);
}

TEST(States, AMicroBatchHasItsOwnRows) {
  const Instance of(4);
  const RowStates part = of.states.slice(1, 4).slice(1, 3);  // rows 2 and 3
  EXPECT_EQ(part.count(), 2);
  EXPECT_EQ(part.now(of.wide).as<float>(), of.now.data() + 2 * 15);
  EXPECT_EQ(part.now(of.narrow).as<float>(), of.now.data() + 4 * 64 + 2 * 70);
  EXPECT_EQ(part.all_now().count(), of.states.all_now().count());
  EXPECT_THROW(of.states.slice(1, 4).slice(0, 4), InternalError);
}

TEST(States, AreRefusedTwiceOrWithoutMemory) {
  Instance of(1);
  EXPECT_THROW(of.set.add("a", {1}), InternalError);
  EXPECT_THROW(of.set.add("c", {0}), InternalError);
  EXPECT_THROW(RowStates().now(of.wide), InternalError);
  EXPECT_TRUE(StateSet().empty());
}

}  // namespace
}  // namespace longstride
