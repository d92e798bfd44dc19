// The tile of queries of one (sequence, head, class) that is a task of the forward kernel.
#pragma once
#include <cstdint>

#include "kernels/attention/sm90/forward/forward_problem.h"

namespace longstride::kernels::cuda::sm90 {

struct ForwardTask {
  std::int32_t head, key_head, sequence, residue, pass;
  std::int32_t begin, length;  // first query, and number of queries, in entries of the class's row set
  std::int32_t parts, step;

  __device__ std::int32_t position(std::int32_t entry) const { return residue + entry * step; }
  __device__ TileCorner corner(std::int32_t entry) const {
    return step == 1 ? TileCorner{entry, 0} : TileCorner{residue, entry};
  }

  // Longest rows first. Consecutive tasks have neighbouring heads, then classes, because their rows are neighbours in
  // memory.
  template <class Problem>
  __device__ bool find(const Problem& problem, std::int32_t rows, std::int32_t index) {
    const auto take = [&](const Divisor& divisor) {
      const std::int32_t quotient = divisor.quotient(index);
      const std::int32_t rest = index - quotient * static_cast<std::int32_t>(divisor.value);
      index = quotient;
      return rest;
    };
    head = take(problem.heads);
    key_head = problem.heads_per_key.quotient(head);
    pass = problem.pass_of[head];
    if (pass == Geometry::none) return false;
    const PassShape& shape = problem.pass[pass];
    parts = shape.parts;
    step = shape.step;
    residue = take(shape.classes);
    sequence = take(problem.batch);
    begin = (shape.tiles - 1 - index) * rows;
    // Entries of the class below n.
    length = shape.step == 1 ? problem.queries() : shape.part[0].period.quotient(problem.n - residue + shape.step - 1);
    return index < shape.tiles && begin < length;
  }
};

}  // namespace longstride::kernels::cuda::sm90
