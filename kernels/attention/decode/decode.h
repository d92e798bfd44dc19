// Attention one position at a time, with a cache that keeps only the rows that later positions can attend to: a ring of
// w or l rows for a window, the summary rows for a summary, all rows for column and dense. The result equals the row of
// the whole attention up to rounding.
#pragma once
#include <cstddef>
#include <memory>

#include "kernels/attention/pattern/plan.h"
#include "kernels/base/op.h"

namespace longstride::kernels {

// A ring of rows of the cache: entry t of `set` lives in row first_row + t mod capacity.
struct CacheRing {
  RowSet set;
  std::int32_t capacity = 0;
  std::int64_t first_row = 0;
};

// The keys of a part, by position, in one ring of a head.
struct CachedPart {
  Part part;
  std::int32_t classes = 1;  // the query at position i reads class i mod classes
  std::int32_t ring = 0;
};

struct DecodeHead {
  std::int32_t first_ring = 0, rings = 0, first_part = 0, parts = 0;
  bool shares = false;  // the rings are those of an earlier head, which reads the same key head
};

struct DecodePlan {
  std::int32_t n = 0;  // most positions
  std::int64_t key_heads = 0;
  std::int64_t rows = 0;  // rows of the cache, for one sequence, over all heads
  std::vector<DecodeHead> heads;
  std::vector<CacheRing> rings;
  std::vector<CachedPart> parts;
};

// For the layer of `plan`, which is not needed afterwards. key_heads: those of k and v, which divide the heads; 0: as
// many. Heads that read one key head share its rings if they see the same keys. Throws std::invalid_argument if the
// plan looks ahead.
std::shared_ptr<const DecodePlan> make_decode_plan(const AttentionPlan& plan, std::int64_t key_heads = 0);

// The keys and values of one layer that later positions can still attend to. The initial content does not matter: start
// by appending position 0.
struct DecodeCache {
  const DecodePlan* plan = nullptr;
  Tensor keys, values;  // (batch, plan->rows, size), contiguous
};

// q, k, v, o and the cache have one type: f32 or f64 on the CPU; bf16, f16 or f32 on the GPU, where scores and
// softmax are f32.
//
// Stores rows [first, first + rows) of k and v. Positions are appended in order, each once.
struct AppendArgs {
  DecodeCache cache;
  Tensor k, v;  // (batch, rows, key heads, size), last dimension dense
  std::int64_t first = 0;
  const std::int64_t* first_at = nullptr;  // GPU: if given, the kernel reads `first` from it

  void check(Device device) const;
  Cost cost() const { return {WorkKind::other, 2 * bytes_of(k, v), 0}; }
};
LONGSTRIDE_OP(append, AppendArgs)

// Attends from `position`, the last one appended.
struct DecodeArgs {
  DecodeCache cache;
  Tensor q;  // (batch, 1, heads, key size)
  Tensor o;  // (batch, 1, heads, value size), written
  std::int64_t position = 0;
  double scale = 1;
  const std::int64_t* position_at = nullptr;  // GPU: if given, the kernel reads `position` from it
  Tensor sink = {};                           // (heads), as attention's

  void check(Device device) const;
  Cost cost() const { return {WorkKind::attention_forward, bytes_of(q, o), 0}; }
};
LONGSTRIDE_OP(decode, DecodeArgs)

}  // namespace longstride::kernels
