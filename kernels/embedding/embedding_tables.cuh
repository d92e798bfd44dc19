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
  std::int64_t slots, seq, first;
  const std::int64_t* first_at;
  int width, count;
  float scale;
  float* start;
  float* token;
  DeviceTable position[EmbeddingArgs::max_tables];
};

inline EmbeddingTables tables_of(const EmbeddingArgs& args) {
  EmbeddingTables t = {};
  t.tokens = ids_of(args.tokens);
  t.starts = args.starts.as<const std::uint8_t>();
  t.slots = args.tokens.count();
  t.seq = args.tokens.size(1);
  t.first = args.first;
  t.first_at = args.first_at;
  t.width = static_cast<int>(args.start.size(0));
  t.count = args.tables;
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
