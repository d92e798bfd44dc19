// Shared by the forward and backward loops over tiles on the CPU: the division of a call into units of work and of a
// thread's workspace into tiles, and the masking of a partial tile.
#pragma once
#include <omp.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "kernels/attention/cpu/tile_math.h"
#include "kernels/base/fast_math.h"
#include "kernels/base/op.h"

namespace longstride::kernels::cpu {

// Hands out pieces of a workspace, each aligned to a cache line. Without memory it only counts.
class Carver {
 public:
  explicit Carver(void* base) : base_(static_cast<std::byte*>(base)) {}

  template <class T>
  T* take(std::int64_t count) {
    const std::size_t begin = used_;
    used_ += (static_cast<std::size_t>(count) * sizeof(T) + line - 1) / line * line;
    return base_ != nullptr ? reinterpret_cast<T*>(base_ + begin) : nullptr;
  }
  std::size_t used() const { return used_; }

 private:
  static constexpr std::size_t line = 64;
  std::byte* base_;
  std::size_t used_ = 0;
};

// The rows of (sequence, head) of a (batch, n, heads, size) view.
template <class T>
inline HeadRows<T> rows_of(const Tensor& view, std::int64_t sequence, std::int64_t head) {
  return {view.as<T>() + sequence * view.stride(0) + head * view.stride(2), view.stride(1), view.size(3)};
}

// Those that query head `head` of `heads` reads, where several read one head of the view.
template <class T>
inline HeadRows<T> shared_rows_of(const Tensor& view, std::int64_t sequence, std::int64_t head, std::int64_t heads) {
  return rows_of<T>(view, sequence, head / (heads / view.size(2)));
}

// The work of one head per sequence.
struct HeadShare {
  std::int64_t classes = 0, tiles = 0;  // one unit per tile and class
  bool operator==(const HeadShare&) const = default;
};
struct WorkUnit {
  std::int64_t sequence, head;
  std::int32_t residue, tile;
};

// A call as a numbered list of units of work. Units of one head follow each other and find its keys in the cache. Where
// the rows of a class lie far apart, the heads of one class follow each other instead, because their parts of a row
// are contiguous in memory.
class WorkList {
 public:
  template <class F>
  WorkList(std::int64_t batch, std::int64_t heads, F&& share_of_head) : batch_(batch), first_{0} {
    for (std::int64_t h = 0; h < heads; ++h) {
      shares_.push_back(share_of_head(h));
      first_.push_back(first_.back() + shares_.back().classes * shares_.back().tiles);
      heads_together_ &= shares_.back().classes > 1 && shares_.back() == shares_.front();
    }
  }
  std::int64_t size() const { return batch_ * first_.back(); }
  // Number of neighbouring units that one thread should take.
  int chunk() const { return heads_together_ ? static_cast<int>(shares_.size()) : 1; }
  WorkUnit at(std::int64_t number) const {
    const std::int64_t sequence = number / first_.back(), rest = number % first_.back();
    const auto heads = static_cast<std::int64_t>(shares_.size());
    if (heads_together_) return unit(sequence, rest % heads, rest / heads);
    const auto next = std::upper_bound(first_.begin(), first_.end(), rest);
    return unit(sequence, next - first_.begin() - 1, rest - *(next - 1));
  }

 private:
  WorkUnit unit(std::int64_t sequence, std::int64_t head, std::int64_t index) const {
    const std::int64_t tiles = shares_[static_cast<std::size_t>(head)].tiles;
    return {sequence, head, static_cast<std::int32_t>(index / tiles), static_cast<std::int32_t>(index % tiles)};
  }

  std::int64_t batch_;
  bool heads_together_ = true;
  std::vector<HeadShare> shares_;
  std::vector<std::int64_t> first_;
};

inline std::int32_t tiles_of(const RowSet& set, std::int32_t tile) { return (set.length + tile - 1) / tile; }

// One tile of a row set: entries [begin, begin + rows).
struct Tile {
  std::int32_t begin, rows;
};
inline Tile tile_at(const RowSet& set, std::int32_t index, std::int32_t size) {
  const std::int32_t begin = index * size;
  return {begin, std::clamp(set.length - begin, 0, size)};
}

// tile(r, :) = scale (row of entry begin + r + bias), with zeros as in gather; without a bias if that is null.
template <class T>
inline void gather_biased(const HeadRows<const T>& rows, const RowSet& set, Tile tile, T scale, const T* bias, T* to,
                          std::int64_t ld, std::int64_t padded_rows) {
  gather(rows, set, tile.begin, tile.rows, bias != nullptr ? T(1) : scale, to, ld, padded_rows);
  for (std::int32_t r = 0; bias != nullptr && r < tile.rows; ++r)
    for (std::int64_t d = 0; d < rows.size; ++d) to[r * ld + d] = scale * (to[r * ld + d] + bias[d]);
}

// The interval of each query lane, in entries of the keys; lanes beyond the tile's rows have none.
template <class T>
struct Bounds {
  T* low;
  T* high;

  template <class Term>
  void set(const Term& term, const RowSet& queries, Tile tile, std::int64_t lanes) const {
    each_entry(queries, tile.begin, tile.rows, [&](std::int32_t r, std::int32_t position) {
      const Interval in = term.interval(position);
      low[r] = static_cast<T>(in.begin);  // below 2^24: exact in f32
      high[r] = static_cast<T>(in.end);
    });
    std::fill(low + tile.rows, low + lanes, T(0));
    std::fill(high + tile.rows, high + lanes, T(0));
  }
};

// The rows of a key tile and the query lanes, whole vectors of them, that are computed together.
struct Block {
  std::int32_t first_row, rows;
  std::int64_t first_lane, lanes;
};

// Calls f with the blocks of a tile. A full tile is one block. A partial one is cut into strips of keys, each without
// the lanes that may attend to none of its keys; this skips most of the masked half of a diagonal tile.
template <class T, class F>
inline void each_block(const Bounds<T>& bounds, Tile queries, Tile keys, bool full, F&& f) {
  constexpr std::int32_t strip = 16;
  if (full) return f(Block{0, keys.rows, 0, padded<T>(queries.rows)});
  Block block{};
  std::int32_t first = 0, last = 0;  // queries [first, last) attend to the strip; neither end ever decreases
  for (std::int32_t r = 0; r < keys.rows; r += strip) {
    const std::int32_t rows = std::min(strip, keys.rows - r);
    while (first < queries.rows && bounds.high[first] <= static_cast<T>(keys.begin + r)) ++first;
    while (last < queries.rows && bounds.low[last] < static_cast<T>(keys.begin + r + rows)) ++last;
    const std::int64_t lane = first / lanes_of<T> * lanes_of<T>, lanes = first < last ? padded<T>(last) - lane : 0;
    if (lane == block.first_lane && lanes == block.lanes) {
      block.rows += rows;
      continue;
    }
    if (block.lanes > 0) f(block);
    block = {r, rows, lane, lanes};
  }
  if (block.lanes > 0) f(block);
}

// s(key, query) = -infinity where the query's interval does not hold the key.
template <class T>
inline void mask(T* s, std::int64_t ld, const Block& block, Tile keys, const Bounds<T>& bounds) {
  for (std::int64_t x = block.first_lane; x < block.first_lane + block.lanes; x += lanes_of<T>) {
    const Vector<T> low = load(bounds.low + x), high = load(bounds.high + x);
    const Vector<T> masked = Vector<T>{} - std::numeric_limits<T>::infinity();
    for (std::int32_t r = block.first_row; r < block.first_row + block.rows; ++r) {
      const Vector<T> key = Vector<T>{} + static_cast<T>(keys.begin + r);
      const auto inside = (key >= low) & (key < high);
      store(s + r * ld + x, inside ? load(s + r * ld + x) : masked);
    }
  }
}

}  // namespace longstride::kernels::cpu
