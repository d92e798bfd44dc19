#include "kernels/distance_attention/sm90/problem.h"

#include <algorithm>

#include "kernels/gpu/tensor_map.h"

namespace longstride::kernels::cuda::distance::hopper {
namespace {

// TMA takes strides from 1 up to 2^40 bytes.
bool is_mappable(const HeadMatrix& m) {
  constexpr std::int64_t longest = std::int64_t{1} << 38;  // elements
  return m.batch > 0 && m.row > 0 && m.head > 0 && m.batch < longest && m.row < longest && m.head < longest;
}

CUtensorMap map_of(const HeadMatrix& m, Dtype dtype, std::int64_t size, std::int64_t heads, std::int64_t rows,
                   std::int64_t batch) {
  return tensor_map(m.data, dtype,
                    {.size = {size, heads, rows, 1, batch},
                     .stride = {m.head, m.row, m.row * rows, m.batch},
                     .columns = tile_rows,
                     .box = {1, tile_rows, 1, 1}});
}

}  // namespace

bool supports(const Call& call) {
  const auto takes = [](std::int32_t size) { return size > 32 && size <= 64; };
  bool can = call.aligned && call.table != nullptr && call.span == nullptr && call.kept.limit == 0 && call.scale > 0 &&
             takes(call.size) && takes(call.value_size);
  for (std::int32_t h = 0; h < call.heads; ++h) can &= call.step[h] == 1;
  // Every distance has a row of its own.
  can &= call.distances >= (call.window > 0 ? std::min(call.window, call.n_k) : call.n_k);
  for (const HeadMatrix* m : {&call.content, &call.position, &call.k, &call.v}) can &= is_mappable(*m);
  if (call.dout.data != nullptr) can &= is_mappable(call.dout);
  return can && call.table_row > 0 && call.table_head >= 0;
}

Problem problem_of(const Call& call, Dtype dtype) {
  Problem problem = {};
  problem.call = call;
  const auto queries = [&](const HeadMatrix& m, std::int32_t size) {
    return map_of(m, dtype, size, call.heads, call.n_q, call.batch);
  };
  const auto keys = [&](const HeadMatrix& m, std::int32_t size) {
    return map_of(m, dtype, size, call.heads, call.n_k, call.batch);
  };
  problem.content = queries(call.content, call.size);
  problem.position = queries(call.position, call.size);
  problem.k = keys(call.k, call.size);
  problem.v = keys(call.v, call.value_size);
  if (call.dout.data != nullptr) problem.dout = queries(call.dout, call.value_size);
  HeadMatrix table;
  table.data = const_cast<void*>(call.table);
  table.row = call.table_row;
  table.head = call.table_head > 0 ? call.table_head : call.table_row;
  table.batch = call.table_row * call.distances;
  problem.table = map_of(table, dtype, call.size, call.table_head > 0 ? call.heads : 1, call.distances, 1);
  return problem;
}

}  // namespace longstride::kernels::cuda::distance::hopper
