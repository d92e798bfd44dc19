#include "kernels/distance_attention/sm90/problem.h"

#include <algorithm>

#include "kernels/gpu/tensor_map.h"

namespace longstride::kernels::cuda::distance::sm90 {
namespace {

// TMA takes strides from 1 up to 2^40 bytes.
bool is_mappable(const HeadMatrix& m, std::int32_t longest_step) {
  constexpr std::int64_t longest = std::int64_t{1} << 38;  // elements
  return m.batch > 0 && m.row > 0 && m.head > 0 && m.batch < longest && m.row < longest / longest_step &&
         m.head < longest;
}

// The entries of a residue class of `step`: rows that are `step` apart.
CUtensorMap map_of(const HeadMatrix& m, Dtype dtype, std::int64_t size, std::int64_t heads, std::int64_t entries,
                   std::int64_t step, std::int64_t batch) {
  return tensor_map(m.data, dtype,
                    {.size = {size, heads, entries, step, batch},
                     .stride = {m.head, m.row * step, m.row, m.batch},
                     .columns = tile_rows,
                     .box = {1, tile_rows, 1, 1}});
}

Problem problem_of(const Call& call, Dtype dtype, std::int32_t step) {
  Problem problem = {};
  problem.call = call;
  problem.step = step;
  problem.queries = call.n_q / step;
  problem.keys = call.n_k / step;
  for (std::int32_t h = 0; h < call.heads; ++h)
    if (call.step[h] == step) problem.head[problem.heads++] = static_cast<std::uint8_t>(h);
  problem.units = problem.heads * call.batch;
  const auto queries = [&](const HeadMatrix& m, std::int32_t size) {
    return map_of(m, dtype, size, call.heads, problem.queries, step, call.batch);
  };
  const auto keys = [&](const HeadMatrix& m, std::int32_t size) {
    return map_of(m, dtype, size, call.heads, problem.keys, step, call.batch);
  };
  problem.content = queries(call.content, call.size);
  problem.k = keys(call.k, call.size);
  problem.v = keys(call.v, call.value_size);
  if (call.dout.data != nullptr) problem.dout = queries(call.dout, call.value_size);
  if (call.table == nullptr) return problem;
  problem.position = queries(call.position, call.size);
  HeadMatrix table;
  table.data = const_cast<void*>(call.table);
  table.row = call.table_row * step;
  table.head = call.table_head > 0 ? call.table_head : call.table_row;
  table.batch = call.table_row * call.distances;
  problem.table =
      map_of(table, dtype, call.size, call.table_head > 0 ? call.heads : 1, (call.distances - 1) / step + 1, 1, 1);
  return problem;
}

}  // namespace

bool can_map(const Call& call) {
  const std::int32_t longest = *std::max_element(call.step, call.step + call.heads);
  bool can = call.aligned && call.scale > 0;
  for (const HeadMatrix* m : {&call.q, &call.content, &call.position, &call.k, &call.v})
    can &= is_mappable(*m, longest);
  if (call.dout.data != nullptr) can &= is_mappable(call.dout, longest);
  return can && (call.table == nullptr || (call.table_row > 0 && call.table_head >= 0));
}

std::vector<Problem> problems_of(const Call& call, Dtype dtype) {
  std::vector<Problem> problems;
  for (std::int32_t h = 0; h < call.heads; ++h) {
    const bool begun =
        std::any_of(problems.begin(), problems.end(), [&](const Problem& p) { return p.step == call.step[h]; });
    if (!begun) problems.push_back(problem_of(call, dtype, call.step[h]));
  }
  return problems;
}

}  // namespace longstride::kernels::cuda::distance::sm90
