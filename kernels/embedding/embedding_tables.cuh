// The tensors of an embedding as its kernels see them.
#pragma once
#include "kernels/base/ids.h"
#include "kernels/embedding/embedding.h"

namespace longstride::kernels::cuda {

struct DeviceTable {
  std::int64_t divisor, size;
  float* rows;
};

struct EmbeddingTables {
  Ids tokens;
  const std::uint8_t* starts;
  const std::int32_t* begin;
  bool restart, own;
  std::int64_t slots, seq, first;
  const std::int64_t* first_at;
  int width, count;
  int band, ids;  // the first id of a band, negative for all ids, and how many the table has
  float scale;
  float* start;
  float* token;
  DeviceTable position[EmbeddingArgs::max_tables];

  // The position that slot i has in the tables, `at` in its row.
  __device__ __forceinline__ std::int64_t counted(std::int64_t i, std::int64_t at) const {
    return restart ? at - begin[i] : at;
  }
  __device__ __forceinline__ bool reads_start(std::int64_t i, std::int64_t at) const {
    if (own) return false;
    if (at != (begin != nullptr ? begin[i] : 0)) return false;
    return at > 0 || starts == nullptr || starts[i / seq] != 0;
  }
};

inline EmbeddingTables tables_of(const EmbeddingArgs& args) {
  EmbeddingTables t = {};
  t.tokens = ids_of(args.tokens);
  t.starts = args.starts.as<const std::uint8_t>();
  t.begin = args.begin.as<const std::int32_t>();
  t.restart = args.restart && args.begin.given();
  t.own = args.own;
  t.slots = args.tokens.count();
  t.seq = args.tokens.size(1);
  t.first = args.first;
  t.first_at = args.first_at;
  t.width = static_cast<int>(args.width());
  t.count = args.tables;
  t.band = static_cast<int>(args.band);
  t.ids = static_cast<int>(args.token_table.size(0));
  t.scale = static_cast<float>(args.scale);
  t.start = args.start.as<float>();
  t.token = args.token_table.as<float>();
  for (int i = 0; i < args.tables; ++i) {
    const PositionTable& p = args.positions[i];
    t.position[i] = {p.divisor, p.table.size(0), p.table.as<float>()};
  }
  return t;
}

}  // namespace longstride::kernels::cuda
