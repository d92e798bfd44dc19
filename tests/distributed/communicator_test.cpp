#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "framework/comm/collectives.h"
#include "framework/comm/failure.h"
#include "tests/distributed/world.h"

namespace longstride {
namespace {

using testing::world;

// Rank r's contribution to element i, which any rank can compute. The sizes differ greatly, so that the order of
// addition shows in the bits.
template <class T>
T contribution(int r, std::int64_t i) {
  // Powers of two make the products exact, so that a fused multiply-add cannot change the expected value.
  constexpr double scale[] = {1, 0x1p3, 0x1p6, 0x1p9, 0x1p12, 0x1p15, 0x1p18};
  const std::uint64_t hash =
      (static_cast<std::uint64_t>(i) * 7 + static_cast<std::uint64_t>(r) + 1) * 0x9e3779b97f4a7c15u;
  return static_cast<T>((static_cast<double>(hash >> 11) * 0x1p-52 - 1) * scale[(i + r) % 7]);
}

template <class T>
void expect_the_sum_in_the_order_of_ranks(std::int64_t count) {
  std::vector<T> values(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) values[static_cast<std::size_t>(i)] = contribution<T>(world().rank(), i);
  world().all_reduce_sum(values.data(), count);
  std::int64_t wrong = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    T expected = contribution<T>(0, i);
    for (int r = 1; r < world().size(); ++r) expected += contribution<T>(r, i);
    wrong += std::memcmp(&expected, &values[static_cast<std::size_t>(i)], sizeof(T)) != 0;
  }
  EXPECT_EQ(wrong, 0) << "of " << count;
}

TEST(Distributed, SumsHaveTheBitsOfAdditionInTheOrderOfRanks) {
  for (std::int64_t count : {0, 1, 2, 3, 5, 7, 1000, 4097}) {
    expect_the_sum_in_the_order_of_ranks<float>(count);
    expect_the_sum_in_the_order_of_ranks<double>(count);
  }
}

TEST(Distributed, OneOfTheRanksThatFailTogetherReportsIt) {
  constexpr double enough = 60;  // seconds; rank 0's word takes far less
  EXPECT_EQ(reports_failure(enough), world().rank() == 0);
  world().barrier();
}

TEST(Distributed, ARankThatFailsWithoutRankZeroReportsItItself) {
  const int last = world().size() - 1;
  if (world().rank() == last) {
    EXPECT_TRUE(reports_failure(0.1));
  }
  world().barrier();
  if (world().rank() != last) {
    EXPECT_FALSE(reports_failure(60)) << "the last rank has said it";
  }
  world().barrier();
}

TEST(Distributed, SumsOverSeveralChunksToo) {
  const auto chunk = static_cast<std::int64_t>(communicator_workspace_bytes(2));  // bytes; two chunks and a bit
  expect_the_sum_in_the_order_of_ranks<float>(2 * chunk / 4 + 12345);
  expect_the_sum_in_the_order_of_ranks<double>(chunk / 8 + 1);
}

// memcmp takes no null pointer, even for zero bytes.
bool same_bits(const void* a, const void* b, std::size_t bytes) { return bytes == 0 || std::memcmp(a, b, bytes) == 0; }

template <class T>
void expect_own_pieces_summed(std::int64_t each) {
  const int size = world().size(), rank = world().rank();
  std::vector<T> values(static_cast<std::size_t>(each * size)), all;
  for (std::int64_t i = 0; i < each * size; ++i) values[static_cast<std::size_t>(i)] = contribution<T>(rank, i);
  all = values;
  world().reduce_scatter_sum(values.data(), each);
  world().all_reduce_sum(all.data(), each * size);
  const auto begin = static_cast<std::size_t>(rank * each), bytes = static_cast<std::size_t>(each) * sizeof(T);
  EXPECT_TRUE(same_bits(values.data() + begin, all.data() + begin, bytes)) << each << " a rank";
  world().all_gather(values.data(), static_cast<std::int64_t>(bytes));
  EXPECT_TRUE(same_bits(values.data(), all.data(), all.size() * sizeof(T))) << each << " a rank";
}

TEST(Distributed, SumsOfPiecesGatheredAreTheSumsOfAll) {
  for (std::int64_t each : {0, 1, 5, 64, 4097, 700001}) {
    expect_own_pieces_summed<float>(each);
    expect_own_pieces_summed<double>(each);
  }
}

TEST(Distributed, EveryRankGetsItsPieceOfEveryRank) {
  const int size = world().size(), rank = world().rank();
  std::vector<int> from, to(static_cast<std::size_t>(3 * size), -1), expected;
  for (int r = 0; r < size; ++r)
    for (int i = 0; i < 3; ++i) {
      from.push_back(100 * rank + 10 * r + i);
      expected.push_back(100 * r + 10 * rank + i);
    }
  world().all_to_all(from.data(), to.data(), 3 * sizeof(int));
  EXPECT_EQ(to, expected);
}

TEST(Distributed, RanksOfOneColourKeepTheirOrder) {
  const int rank = world().rank(), size = world().size();
  const auto some = world().split(rank % 2);
  EXPECT_EQ(some->rank(), rank / 2);
  EXPECT_EQ(some->size(), (size + 1 - rank % 2) / 2);
  double sum = rank;
  some->all_reduce_sum(&sum, 1);
  double expected = 0;
  for (int r = rank % 2; r < size; r += 2) expected += r;
  EXPECT_EQ(sum, expected);
}

TEST(Distributed, RanksOfAHostAreCounted) {
  EXPECT_EQ(world().local_size(), world().size());  // the tests run on one
  EXPECT_EQ(world().local_rank(), world().rank());
  EXPECT_EQ(count_nodes(world()), 1);
}

TEST(Distributed, BroadcastGivesEveryRankTheRootsBytes) {
  for (int root = 0; root < world().size(); ++root) {
    std::vector<int> values(1000, world().rank());
    world().broadcast(values.data(), 4000, root);
    EXPECT_EQ(values, std::vector<int>(1000, root));
  }
  world().broadcast(nullptr, 0, 0);
}

TEST(Distributed, AnyIsTrueOnEveryRankWhenOneSaysSo) {
  EXPECT_FALSE(world().any(false));
  for (int r = 0; r < world().size(); ++r) EXPECT_TRUE(world().any(world().rank() == r));
  EXPECT_TRUE(world().any(true));
}

TEST(Distributed, EveryRankHasItsOwnNumberAndAHost) {
  std::vector<float> seen(static_cast<std::size_t>(world().size()));
  seen[static_cast<std::size_t>(world().rank())] = 1;
  world().all_reduce_sum(seen.data(), world().size());
  EXPECT_EQ(seen, std::vector<float>(seen.size(), 1));
  EXPECT_FALSE(world().host().empty());
  world().barrier();
}

TEST(Distributed, WorkspaceIsOfOneSizeForAllRanks) {
  EXPECT_EQ(communicator_workspace_bytes(1), 0u);
  EXPECT_EQ(communicator_workspace_bytes(2), std::size_t{4} << 20);
  EXPECT_EQ(communicator_workspace_bytes(1024), std::size_t{64} << 20);
}

}  // namespace
}  // namespace longstride
