// Which rows the heads of a panel of columns read, for the host and a GPU alike, and how the blocks of a grid share the
// tiles of rows of all panels.
#pragma once
#include <cstdint>

#include "kernels/base/host_device.h"
#include "kernels/distance_attention/visible.h"

namespace longstride::kernels {

// The first row that a head reads if its farthest key is `farthest` positions before a query; `before` rows precede the
// segment.
template <class Int>
LONGSTRIDE_HOST_DEVICE inline Int first_read_row(Int before, Int farthest) {
  const Int first = before - farthest;
  return first < 0 ? 0 : first > before ? before : first;
}

// The parts of `read` and of the columns that a kernel needs.
struct ReadRows {
  static constexpr int most_panels = 32;
  static constexpr int tile_rows = 64, columns = 128;  // size of a panel's tile
  // For the weights' gradient: the columns of x that a block multiplies with a panel of dy, and how many blocks there
  // are at most, those of the largest Hopper. It is not the number of this GPU, so that memory is planned without one.
  static constexpr int gradient_columns = 256, most_gradient_blocks = 132;

  const float* span;
  float longest_span, ramp;
  std::int32_t n_k, n_q, window;
  std::int32_t batch, panels;
  std::int32_t heads, key_size, value_size;  // columns: keys of all heads, then their values
  bool self;

  LONGSTRIDE_HOST_DEVICE std::int32_t first_of_head(std::int32_t head) const {
    const Reach reach = reach_of(n_k, window, self, 1, Ramp<float>(span[head], longest_span, ramp));
    return first_read_row(n_k - n_q, reach.end - 1);
  }
  LONGSTRIDE_HOST_DEVICE std::int32_t tiles_of_sequence() const { return n_k / tile_rows; }
  LONGSTRIDE_HOST_DEVICE std::int32_t head_of(std::int32_t column) const {
    const std::int32_t keys = heads * key_size;
    return column < keys ? column / key_size : (column - keys) / value_size;
  }
  // The first tile of a sequence in which a head of this panel reads a row.
  LONGSTRIDE_HOST_DEVICE std::int32_t first_tile(std::int32_t panel) const {
    const std::int32_t keys = heads * key_size, end = (panel + 1) * columns;
    std::int32_t first = n_k;
    for (std::int32_t column = panel * columns; column < end;) {
      const std::int32_t head = head_of(column), of_head = first_of_head(head);
      first = of_head < first ? of_head : first;
      column = column < keys ? (head + 1) * key_size : keys + (head + 1) * value_size;
    }
    return first / tile_rows;
  }
};

// The tiles that a block takes: of one panel, and in its numbering of the tiles that are read, sequence by sequence,
// numbers index, index + groups, ... So blocks of all panels meet the same sequence at about the same time, and its
// rows are in the second-level cache for all but the first of them.
struct PanelShare {
  std::int32_t panel, index, groups;
  std::int32_t first, tiles;  // per sequence: the first tile that is read, and how many are

  LONGSTRIDE_HOST_DEVICE bool idle() const { return groups == 0; }
  LONGSTRIDE_HOST_DEVICE std::int32_t count(std::int32_t batch) const { return batch * tiles; }
  // The number of tile `number` among all tiles of all sequences, of which each has `of_sequence`.
  LONGSTRIDE_HOST_DEVICE std::int32_t tile(std::int32_t number, std::int32_t of_sequence) const {
    const std::int32_t sequence = number / tiles;
    return sequence * of_sequence + first + number - sequence * tiles;
  }
};

// Blocks are allotted to panels in proportion to their tiles, at least one each, so that all panels end at about the
// same time; of `blocks`, which are no fewer than panels, as many as panels may stay idle. `first_tile` is that of
// every panel, and less than of_sequence.
struct PanelShares {
  const std::int32_t* first_tile;
  std::int32_t panels, of_sequence, blocks;
  std::int32_t all = 0;  // tiles that panels read of a sequence

  LONGSTRIDE_HOST_DEVICE PanelShares(const std::int32_t* first, std::int32_t panel_count, std::int32_t sequence_tiles,
                                     std::int32_t block_count)
      : first_tile(first), panels(panel_count), of_sequence(sequence_tiles), blocks(block_count) {
    for (std::int32_t p = 0; p < panels; ++p) all += of_sequence - first_tile[p];
  }
  LONGSTRIDE_HOST_DEVICE std::int32_t groups(std::int32_t panel) const {
    return (of_sequence - first_tile[panel]) * (blocks - panels) / all + 1;
  }
  LONGSTRIDE_HOST_DEVICE std::int32_t first_block(std::int32_t panel) const {
    std::int32_t before = 0;
    for (std::int32_t p = 0; p < panel; ++p) before += groups(p);
    return before;
  }
  // Without groups if the block is idle.
  LONGSTRIDE_HOST_DEVICE PanelShare of_block(std::int32_t block) const {
    for (std::int32_t p = 0; p < panels; ++p) {
      const std::int32_t count = groups(p);
      if (block < count) return {p, block, count, first_tile[p], of_sequence - first_tile[p]};
      block -= count;
    }
    return {0, 0, 0, 0, 1};
  }
};

}  // namespace longstride::kernels
