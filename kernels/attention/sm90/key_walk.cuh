// The key tiles of a query tile: those of every part of its pass, one part after the other. Every warp of a block walks
// the same tiles in the same order; each warpgroup knows which of them its own rows need, and each warp where its rows
// need a mask.
#pragma once
#include <cstdint>

#include "kernels/attention/sm90/geometry.h"
#include "kernels/attention/tile_span.h"

namespace longstride::kernels::cuda::sm90 {

// As Stream and Part count, without a division in natural order.
__device__ inline std::int32_t count_below(const Stream& stream, std::int32_t p) {
  if (stream.run >= stream.period) return min(max(p - stream.base, 0), stream.length);
  return stream.count_below(p);
}
__device__ inline std::int32_t position_of(const Stream& stream, std::int32_t entry) {
  return stream.run >= stream.period ? stream.base + entry : stream.position(entry);
}
__device__ inline Interval interval_of(const Part& part, const Stream& keys, std::int32_t position) {
  return {count_below(keys, part.low.of(position)), count_below(keys, part.high.of(position) + 1)};
}
__device__ inline Stream segment_of(const Stream& stream, const PassGeometry& pass, std::int32_t segment,
                                    std::int32_t n) {
  return pass.segments == 1 ? stream : stream_within(stream, segment, n);
}

template <int Keys>
class KeyWalk {
 public:
  // first, last: positions of the query tile.
  __device__ KeyWalk(const PassGeometry& pass, std::int32_t segment, std::int32_t n, std::int32_t first,
                     std::int32_t last)
      : pass_(pass), segment_(segment), n_(n), first_(first), last_(last) {}

  // To the next tile; false after the last one.
  __device__ bool next() {
    entered_ = false;
    ++tile_;
    while (tile_ >= end_) {
      if (++part_ >= pass_.parts) return false;
      const Part& part = pass_.part[part_];
      keys_ = segment_of(part.keys, pass_, segment_, n_);
      tile_ = interval_of(part, keys_, first_).begin / Keys;
      end_ = tiles_in(interval_of(part, keys_, last_).end, Keys);
      entered_ = true;
    }
    return true;
  }

  __device__ bool entered() const { return entered_; }  // the tile is the first of its part
  __device__ const Part& part() const { return pass_.part[part_]; }
  __device__ std::int32_t part_index() const { return part_; }
  __device__ const Stream& keys() const { return keys_; }
  __device__ std::int32_t begin() const { return tile_ * Keys; }  // stream entry

 private:
  const PassGeometry& pass_;
  std::int32_t segment_, n_, first_, last_;
  std::int32_t part_ = -1, tile_ = 0, end_ = 0;
  bool entered_ = false;
  Stream keys_;
};

}  // namespace longstride::kernels::cuda::sm90
