// The pairs of tiles of attention to the query's own block and, in one softmax, to summary rows of the blocks before
// (fixed, merged), and the order in which GPU blocks sum dQ over it in turns, as host code.
//
// A summary row is a key of its own block's queries and of all later ones: of every query from its position on. So it
// has one task, and every row of dK and dV has one writer:
//   summary tasks  are tiles of 128 or 192 summary rows (long_band_order.h), of all blocks that are complete, and all
//                  queries from the first row's position on. They come first, in ascending order, as the longest of
//                  them have the most to do.
//   block tasks    are tiles of as many positions and the queries of their blocks. Keys that are summary rows count as
//                  unseen. They are short, and leave no GPU block without work at the end. The last positions come
//                  first, as summary tasks do, but by eight tiles, which ascend: of two tiles that share queries the
//                  lower one visits those first and the other one last, so in descending order every task would wait
//                  for the whole of the one before.
// The turns at a query tile follow the order of tasks (long_band_order.h), so a block task is the last and stores dQ.
#pragma once
#include <algorithm>
#include <cstdint>

#include "kernels/attention/sm90/long_band/long_band_order.h"

namespace longstride::kernels::cuda::sm90 {

// One head.
struct JoinedOrder {
  LongBandOrder block;              // shape.block positions each
  std::int32_t run = 1, first = 0;  // summary rows of a block: positions [first, first + run) of it

  constexpr std::int32_t period() const { return block.shape.block; }
  constexpr std::int32_t query_tiles() const { return (block.length + band_rows - 1) / band_rows; }
  constexpr std::int32_t complete() const { return block.length / period(); }  // blocks
  constexpr std::int32_t rows() const { return complete() * run; }
  constexpr std::int32_t position(std::int32_t row) const { return first + row / run * period() + row % run; }
  // The summary rows of positions before this one.
  constexpr std::int32_t rows_before(std::int32_t position) const {
    const std::int32_t at = position / period();
    if (at >= complete()) return rows();
    return at * run + std::clamp(position % period() - first, 0, run);
  }
  constexpr bool is_summary_row(std::int32_t position) const {
    return rows_before(position + 1) > rows_before(position);
  }

  constexpr std::int32_t summary_tasks() const { return (rows() + block.key_rows() - 1) / block.key_rows(); }
  constexpr std::int32_t tasks() const { return summary_tasks() + block.key_tiles(); }
  constexpr bool is_summary(std::int32_t task) const { return task < summary_tasks(); }
  // The key tile of a block task: those of the last group, which may be smaller, then of the one before.
  static constexpr std::int32_t group = 8;
  constexpr std::int32_t key_tile(std::int32_t task) const {
    const std::int32_t at = task - summary_tasks(), last = (block.key_tiles() - 1) / group * group,
                       in_last = block.key_tiles() - last, beyond = at - in_last;
    if (beyond < 0) return last + at;
    return last - (beyond / group + 1) * group + beyond % group;
  }
  // The position of key `i` of a task, or -1. It is seen by the queries from there on.
  constexpr std::int32_t key_of(std::int32_t task, std::int32_t i) const {
    if (is_summary(task)) {
      const std::int32_t row = task * block.key_rows() + i;
      return row < rows() ? position(row) : -1;
    }
    const std::int32_t at = key_tile(task) * block.key_rows() + i;
    return at < block.length && !is_summary_row(at) ? at : -1;
  }
  // The end of the task's queries that see this key.
  constexpr std::int32_t end_of_key(std::int32_t task, std::int32_t position) const {
    return is_summary(task) ? block.length : std::min((position / period() + 1) * period(), block.length);
  }
  // The query tiles of a task, and of each strip of its keys.
  constexpr std::int32_t begin_of(std::int32_t task) const { return begin_of(task, 0); }
  constexpr std::int32_t end_of(std::int32_t task) const {
    return is_summary(task) ? query_tiles() : block.end_of(key_tile(task));
  }
  constexpr std::int32_t begin_of(std::int32_t task, std::int32_t strip) const {
    if (!is_summary(task)) return block.begin_of(key_tile(task), strip);
    const std::int32_t row = task * block.key_rows() + strip * band_rows;
    return row < rows() ? position(row) / band_rows : query_tiles();
  }
  constexpr std::int32_t end_of(std::int32_t task, std::int32_t strip) const {
    return is_summary(task) ? query_tiles() : block.end_of(key_tile(task), strip);
  }
  // Whose turn it is at a query tile that a task has.
  constexpr std::int32_t turn(std::int32_t task, std::int32_t query) const {
    if (is_summary(task)) return task;
    const std::int32_t key = key_tile(task), begin = std::max(key / group * group, block.first_key(query)),
                       end = std::min((key / group + 1) * group - 1, block.last_key(query));
    const std::int32_t summaries = rows_before((query + 1) * band_rows);
    return (summaries + block.key_rows() - 1) / block.key_rows() + block.last_key(query) - end + key - begin;
  }
  constexpr bool is_last(std::int32_t task, std::int32_t query) const {
    if (is_summary(task)) return false;
    const std::int32_t key = block.first_key(query);
    return key_tile(task) == std::min((key / group + 1) * group - 1, block.last_key(query));
  }
  // More than any query tile has.
  constexpr std::int32_t most_turns() const {
    return summary_tasks() + (period() + band_rows + block.key_rows() - 2) / block.key_rows() + 2;
  }
};

}  // namespace longstride::kernels::cuda::sm90
