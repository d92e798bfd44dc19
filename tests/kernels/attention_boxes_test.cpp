// Summary rows as Hopper's kernels read them: tiles that are one box, and tiles in pieces.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <vector>

#include "kernels/attention/sm90/general/geometry.h"
#include "kernels/attention/sm90/general/tile_pieces.h"

namespace longstride::kernels::cuda::sm90 {
namespace {

RowSet summary_rows(std::int32_t period, std::int32_t width, std::int32_t block, std::int32_t n) {
  return rows_within({period - (block + 1) * width, width, period, 0}, 0, n);
}

TilePieces pieces_of(const RowSet& set, std::int32_t entry, std::int32_t rows) {
  return {set.base, set.run, set.period, entry, rows, [&](std::int32_t x) { return x / set.run; }};
}

// The tile as TMA writes it: position p of a sequence of n is the number p, and zero beyond. -1: not written.
std::vector<std::int32_t> tile_of(const TilePieces& pieces, std::int32_t n, std::int32_t rows, int& copies) {
  std::vector<std::int32_t> tile(static_cast<std::size_t>(rows), -1);
  copies = 0;
  for (std::int32_t i = 0; i < pieces.count(); ++i) {
    const Piece piece = pieces.piece(i);
    copies += piece.rows > 0;
    for (std::int32_t r = 0; r < piece.rows; ++r) {
      std::int32_t& row = tile.at(static_cast<std::size_t>(piece.row + r));
      EXPECT_EQ(row, -1) << "row " << piece.row + r << " is written twice";
      row = piece.position + r < n ? piece.position + r : 0;
    }
  }
  return tile;
}

TEST(TilePieces, WriteEveryRowOfATileOnceInOrder) {
  for (const std::int32_t rows : {32, 64, 128})
    for (const std::int32_t period : {7, 40, 64, 100, 128, 300, 700})
      for (std::int32_t width = 2; width < period; width += width < 70 ? 1 : 37)
        for (const std::int32_t n : {1, period - 1, 3 * period + 3, 6 * period - 1}) {
          const RowSet set = summary_rows(period, width, 0, n);
          for (std::int32_t begin = 0; begin < set.length; begin += rows) {
            int copies = 0;
            const auto tile = tile_of(pieces_of(set, begin, rows), n, rows, copies);
            for (std::int32_t r = 0; r < rows; ++r)
              ASSERT_EQ(tile[static_cast<std::size_t>(r)], begin + r < set.length ? set.position(begin + r) : 0)
                  << "row " << r << " from entry " << begin << " of " << width << " in " << period << ", n " << n;
          }
        }
}

TEST(TilePieces, HaveTheRowsOfTheirMaps) {
  for (const std::int32_t width : {3, 25, 33, 48, 100, 200})
    for (std::int32_t begin = 0; begin < 64 * width; begin += 64) {
      const TilePieces pieces = pieces_of({0, width, 2 * width, 128 * width}, begin, 64);
      for (std::int32_t i = 0; i < pieces.count(); ++i) {
        const std::int32_t rows = pieces.piece(i).rows;
        if (i >= TilePieces::first_run)
          EXPECT_EQ(rows, width);
        else
          EXPECT_TRUE(rows == 0 || rows == 1 << i % TilePieces::powers) << rows << " rows at " << i;
      }
    }
}

// A warp copies most tiles in one round: a run is one copy, and only the tile's ends are divided.
TEST(TilePieces, AreFew) {
  for (std::int32_t width = 8; width <= 200; ++width)
    for (std::int32_t begin = 0; begin < 128 * width; begin += 128) {
      int copies = 0;
      tile_of(pieces_of({0, width, 2 * width, 512 * width}, begin, 128), 1 << 24, 128, copies);
      EXPECT_LE(copies, 128 / width + 2 * std::bit_width(static_cast<unsigned>(std::min(width, 128) - 1)));
    }
}

Part summaries_of(std::int32_t period, std::int32_t width, std::int32_t n, std::int32_t block) {
  return {PartKind::fixed_summary, summary_rows(period, width, 0, n), {}, {block > 0 ? 1 : 0, block}};
}

TEST(TilePieces, AreNotUsedWhereTilesAreBoxes) {
  for (const std::int32_t width : {1, 2, 4, 8, 16, 32, 64, 128, 256, 384})
    EXPECT_TRUE(has_boxes(summaries_of(1000, width, 5000, 1000), 5000)) << width;
  for (const std::int32_t width : {3, 20, 25, 31, 48, 96, 192})
    EXPECT_FALSE(has_boxes(summaries_of(1000, width, 5000, 1000), 5000)) << width;
}

// TMA's boxes hold whole periods.
TEST(TilePieces, ReadWhatAQuerySeesOfAnIncompletePeriod) {
  EXPECT_TRUE(has_boxes(summaries_of(100, 32, 550, 100), 550));  // own blocks are left out
  EXPECT_TRUE(has_boxes(summaries_of(100, 32, 500, 0), 500));    // none is incomplete
  EXPECT_TRUE(has_boxes(summaries_of(100, 32, 560, 0), 560));    // it begins after the sequence's end
  EXPECT_FALSE(has_boxes(summaries_of(100, 32, 570, 0), 570));
  EXPECT_FALSE(has_boxes(summaries_of(100, 32, 599, 0), 599));
}

}  // namespace
}  // namespace longstride::kernels::cuda::sm90
