// Advice on shapes that the kernels for Hopper do not take, or that take more time than their work deserves. Needs no
// GPU and no CUDA: `plan` asks before anything runs.
#pragma once
#include <cstdint>

#include "kernels/attention/pattern/plan.h"

namespace longstride::kernels {

enum class Slowness : std::uint8_t {
  none,
  head_size,       // no multiple of 8 from 16 to 128
  narrow_window,   // few keys per query, and keys larger than 64
  short_column,    // n / l positions, which one tile holds; below: the widest stride whose columns are longer
  narrow_summary,  // fixed patterns: few keys per query, or a width that is no multiple of 8
  column_head,     // heads of 24 in columns
  geometry         // too many kinds of heads
};

// The setting that makes an attention slow, its value, and the nearest values on either side that do not; 0: none.
struct FastPath {
  Slowness slowness = Slowness::none;
  std::int64_t value = 0, below = 0, above = 0;
  double work = 0;  // times what the products should take; 0: the portable kernels do it
};
FastPath fast_path_of(const AttentionPlan& plan, std::int64_t key_size, std::int64_t value_size);

}  // namespace longstride::kernels
