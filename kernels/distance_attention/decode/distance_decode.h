// Attention with a distance term (../distance_attention.h) one position at a time, with a cache of keys and values that
// keeps only the rows that later positions can see.
//
// A stream is decoded as training reads it, in segments that each have `memory` positions before them: the query at
// position p sees positions from p - p mod segment - memory on. So the first position of a segment sees `memory`
// positions before its own and the last one segment - 1 more, and every result equals the row of the whole segment with
// its memory, up to rounding. Within that, window, dilation, span and `self` are those of DistanceScores.
//
// Rows of a compressed memory count as the positions just before the memory. Before the first position of a segment the
// caller appends those that the segment sees, at positions whose own rows are no longer seen.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/base/host_device.h"
#include "kernels/base/op.h"

namespace longstride::kernels {

struct DecodedStream {
  std::int64_t positions = 0;  // that are decoded
  std::int64_t segment = 0, memory = 0;
  std::int64_t compressed = 0,
               rate = 1;     // rows of the compressed memory, each of `rate` positions that left the memory
  std::int64_t before = 0;   // rows of both memories that count at the stream's start: positions -before to -1
  std::int64_t window = 0;   // as in DistanceScores
  std::int64_t longest = 0;  // distances from here on have weight 0, whatever the span; 0: none
  bool self = true;
  std::vector<std::int32_t> dilation = {};  // per head
};

// A head's rows: position p is in row first_row + (p + before) mod capacity.
struct DistanceRing {
  std::int64_t first_row = 0;
  std::int32_t capacity = 0, dilation = 1;
};

struct DistanceDecodePlan {
  DecodedStream stream;
  std::vector<DistanceRing> rings;  // one per head
  std::int64_t rows = 0;            // cache rows for one sequence, over all heads
};
std::shared_ptr<const DistanceDecodePlan> make_distance_decode_plan(DecodedStream stream);

// The positions that a query may see.
struct SeenPositions {
  std::int64_t segment, memory, compressed, rate, before;

  explicit SeenPositions(const DecodedStream& s)
      : segment(s.segment), memory(s.memory), compressed(s.compressed), rate(s.rate), before(s.before) {}
  // Rows that have been compressed before the segment that begins at `start`.
  LONGSTRIDE_HOST_DEVICE std::int64_t compressed_before(std::int64_t start) const {
    return compressed > 0 && start > memory ? (start - memory) / rate : 0;
  }
  // How many of them that segment sees, with those of the stream's start.
  LONGSTRIDE_HOST_DEVICE std::int64_t compressed_rows(std::int64_t start) const {
    const std::int64_t rows = compressed_before(start) + (before > memory ? before - memory : 0);
    return rows < compressed ? rows : compressed;
  }
  // The first position that the query at `position` may see.
  LONGSTRIDE_HOST_DEVICE std::int64_t first(std::int64_t position) const {
    const std::int64_t start = position - position % segment, seen = start - memory - compressed_rows(start);
    return seen > -before ? seen : -before;
  }
};

struct DistanceCache {
  const DistanceDecodePlan* plan = nullptr;
  Tensor keys, values;  // (batch, plan->rows, size), contiguous
};

// q, k, v, o, the table and the cache have the compute type, biases and spans the exact type, as in DistanceScores. On
// a GPU scores and softmax are f32, and q + u and q + v are not rounded.
//
// Stores positions [first, first + rows) of k and v. Positions are appended in order, each once, from -before on; those
// that stand for compressed rows as well, once for each segment.
struct DistanceAppendArgs {
  DistanceCache cache;
  Tensor k, v;  // (batch, rows, heads, size), last dimension dense
  std::int64_t first = 0;
  const std::int64_t* first_at = nullptr;  // GPU: if given, the kernel reads `first` from it

  void check(Device device) const;
  Cost cost() const { return {WorkKind::other, 2 * bytes_of(k, v), 0}; }
};
LONGSTRIDE_OP(distance_append, DistanceAppendArgs)

// Attends from `position`, the last one appended.
struct DistanceDecodeArgs {
  DistanceCache cache;
  Tensor q;           // (batch, 1, heads, key size)
  Tensor o;           // (batch, 1, heads, value size), written
  Tensor table = {};  // as in DistanceScores, and all that follows
  Tensor content_bias = {}, position_bias = {}, span = {};
  double longest_span = 0, ramp = 0, scale = 1;
  std::int64_t position = 0;
  const std::int64_t* position_at = nullptr;  // GPU: if given, the kernel reads `position` from it

  void check(Device device) const;
  Cost cost() const { return {WorkKind::attention_forward, bytes_of(q, o), 0}; }
};
LONGSTRIDE_OP(distance_decode, DistanceDecodeArgs)

}  // namespace longstride::kernels
