// One query per head, as in a step of decoding: its keys are divided among blocks, whose results are merged. Query
// heads that read one key head are rows of one tile, so that their keys are read once.
#pragma once
#include <cstddef>
#include <cstdint>

#include "kernels/attention/pattern/tile_span.h"

namespace longstride::kernels::cuda::portable {

struct OneQueryPlan {
  static constexpr int most_parts = 6, most_geometries = 8, most_heads = 256, most_rows = 16, tile_keys = 64;
  static constexpr std::int64_t wanted_blocks = 3 * 132;  // several for every multiprocessor of an H200

  struct Keys {  // entries `in` of a row set
    RowSet set;
    Interval in;
  };
  struct Geometry {  // of a head
    std::int32_t parts = 0;
    Keys part[most_parts];
  };
  Geometry geometry[most_geometries];
  std::uint8_t of_head[most_heads];  // its geometry
  std::int32_t heads = 0, rows = 1;  // query heads, and those of a block
  std::int32_t splits = 1;           // blocks that share a unit's keys

  // False if the plan has other queries, or more parts or geometries than there is room for. packs: heads of a group
  // may be rows of one block, as bounds do not tell them apart.
  bool find(const AttentionPlan& plan, std::int64_t batch, std::int64_t key_heads, bool packs);
  // Partial sums of values, and their lse.
  std::size_t scratch_bytes(std::int64_t batch, std::int64_t value_size) const {
    return static_cast<std::size_t>(batch * heads * splits * (value_size + 1)) * sizeof(float);
  }
};

}  // namespace longstride::kernels::cuda::portable
