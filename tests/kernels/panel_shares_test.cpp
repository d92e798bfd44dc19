// How the blocks of the kernels for Hopper share the rows that heads with spans read (kernels/span_projection).
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "kernels/base/philox.h"
#include "kernels/span_projection/read_rows.h"
#include "kernels/span_projection/span_projection.h"

namespace longstride::kernels {
namespace {

std::int32_t drawn(std::uint64_t n, std::int32_t below) {
  return static_cast<std::int32_t>(philox(5, n, 0, domain_of(Purpose::test, 3)).word[0] %
                                   static_cast<std::uint32_t>(below));
}

TEST(PanelShares, EveryTileThatIsReadHasOneBlock) {
  for (std::uint64_t round = 0; round < 300; ++round) {
    const std::int32_t panels = 1 + drawn(8 * round, 32), of_sequence = 1 + drawn(8 * round + 1, 50);
    const std::int32_t blocks = panels + drawn(8 * round + 2, 140), batch = 1 + drawn(8 * round + 3, 9);
    std::vector<std::int32_t> first;
    for (std::int32_t p = 0; p < panels; ++p)
      first.push_back(drawn(100000 + 32 * round + static_cast<std::uint64_t>(p), of_sequence));
    const PanelShares shares(first.data(), panels, of_sequence, blocks);
    std::vector<int> taken(static_cast<std::size_t>(panels * batch * of_sequence));
    std::int32_t idle = 0;
    for (std::int32_t b = 0; b < blocks; ++b) {
      const PanelShare share = shares.of_block(b);
      idle += share.idle();
      if (share.idle()) continue;
      ASSERT_EQ(shares.first_block(share.panel) + share.index, b);
      ASSERT_EQ(shares.groups(share.panel), share.groups);
      ASSERT_LT(share.index, share.groups);
      for (std::int32_t n = share.index; n < share.count(batch); n += share.groups)
        ++taken[static_cast<std::size_t>(share.panel * batch * of_sequence + share.tile(n, of_sequence))];
    }
    EXPECT_LE(idle, panels) << round;
    for (std::int32_t i = 0; i < panels * batch * of_sequence; ++i) {
      const bool read = i % of_sequence >= first[static_cast<std::size_t>(i / (batch * of_sequence))];
      ASSERT_EQ(taken[static_cast<std::size_t>(i)], read ? 1 : 0) << round << " " << i;
    }
  }
}

// One panel reads seven times as much as each of seven others. Were blocks divided evenly among them, its would take 8
// x 7 / 14 = 4 times as long as the average.
TEST(PanelShares, BlocksTakeTheSameTimeWhateverPanelsRead) {
  const std::vector<std::int32_t> first = {0, 30, 30, 30, 30, 30, 30, 30};
  const PanelShares shares(first.data(), 8, 35, 132);
  const double average = (35 + 7 * 5) / 132.0;
  for (std::int32_t p = 0; p < 8; ++p)
    EXPECT_LT((35 - first[static_cast<std::size_t>(p)]) / static_cast<double>(shares.groups(p)), 1.07 * average) << p;
}

// Keys of 24 elements and values of 40: panels hold parts of heads.
TEST(ReadRows, APanelBeginsWithTheTileOfItsFirstHead) {
  std::vector<float> spans = {0.1f, 0.9f, 0, 0.4f, 2, 0.25f, -1, 0.02f};
  const std::int64_t heads = 8, key_size = 24, value_size = 40, n_q = 64, n_k = 640, columns = 512;
  DistanceScores read{.q = Tensor(nullptr, Dtype::f32, {1, n_q, heads, key_size}),
                      .k = Tensor(nullptr, Dtype::f32, {1, n_k, heads, key_size})};
  read.span = Tensor(spans.data(), Dtype::f32, {heads});
  read.longest_span = 400;
  read.ramp = 16;
  const ReadRows rows{spans.data(), 400, 16, n_k, n_q, 0, 1, columns / 128, heads, key_size, value_size, true};
  for (std::int32_t panel = 0; panel < columns / 128; ++panel) {
    std::int64_t first = n_k;
    for (std::int64_t column = 128 * panel; column < 128 * panel + 128; ++column) {
      const std::int64_t head =
          column < heads * key_size ? column / key_size : (column - heads * key_size) / value_size;
      EXPECT_EQ(rows.head_of(static_cast<std::int32_t>(column)), head);
      EXPECT_EQ(rows.first_of_head(static_cast<std::int32_t>(head)), first_row(read, head));
      first = std::min(first, first_row(read, head));
    }
    EXPECT_EQ(rows.first_tile(panel), first / 64) << panel;
  }
}

}  // namespace
}  // namespace longstride::kernels
