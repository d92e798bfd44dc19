// The walk of Hopper's attention kernels over lists of blocks: the tasks of blocks, and the tiles of a task.
#include "kernels/attention/sm90/general/list_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "kernels/attention/pattern/tile_span.h"
#include "tests/support/drawn_lists.h"

namespace longstride::kernels::cuda::sm90 {
namespace {

TEST(ListOrder, TakesEveryTaskOnceTheEndsFirstThenHeadByHead) {
  for (const std::int32_t units : {1, 3, 16})
    for (const std::int32_t tiles : {1, 2, 3, 40}) {
      std::vector<std::int32_t> tasks;
      for (std::int32_t block = 0; block < units * tiles; ++block) tasks.push_back(listed_task(block, units, tiles));
      for (std::int32_t at = 0; at < std::min(2, tiles) * units; ++at)
        EXPECT_EQ(tasks[static_cast<std::size_t>(at)] / units, at < units ? 0 : tiles - 1);
      for (auto at = static_cast<std::size_t>(2 * units) + 1; at < tasks.size(); ++at)
        EXPECT_GE(tasks[at] % units, tasks[at - 1] % units);
      std::sort(tasks.begin(), tasks.end());
      for (std::size_t at = 0; at < tasks.size(); ++at) EXPECT_EQ(tasks[at], static_cast<std::int32_t>(at));
    }
}

// In tiles of a block and of parts of it, within every span; the last of a list is known when it is reached.
TEST(ListOrder, WalksTheTilesOfListedBlocksWithinTheSpan) {
  for (const std::int32_t block : {64, 128, 192})
    for (const std::int32_t rows : {32, 64}) {
      const DrawnLists drawn(9, block, 1, 1, 40 * block, 11 * block);
      const ListsOfHead lists = ListsView::of_queries(drawn.view()).of(0, 0);
      for (std::int32_t query = 0; query < 40 * block; query += block)
        for (std::int32_t begin = 0; begin < 12 * block / rows; begin += 3)
          for (const std::int32_t end : {begin - 1, begin + 1, begin + 7, 11 * block / rows}) {
            std::vector<std::int32_t> expected, found;
            for (std::int32_t tile = begin; tile < std::min(end, 11 * block / rows); ++tile)
              if (drawn.hold(0, 0, query, tile * rows)) expected.push_back(tile);
            for (TileWalk walk({begin, begin, end, end}, lists.of_row(query), rows); walk.more(); walk.advance())
              found.push_back(walk.tile());
            EXPECT_EQ(found, expected) << "lists of " << block << ", query " << query << ", tiles of " << rows
                                       << " from " << begin << " to " << end;
          }
    }
}

}  // namespace
}  // namespace longstride::kernels::cuda::sm90
