// The two ops on Hopper, for the tiles of rows that heads read (read_rows.h).
#pragma once
#include "kernels/span_projection/read_rows.h"
#include "kernels/span_projection/span_projection.h"

namespace longstride::kernels::cuda::sm90 {

// `columns` are those of y or dy.
inline ReadRows read_rows(const DistanceScores& read, std::int64_t columns) {
  const auto number = [](std::int64_t n) { return static_cast<std::int32_t>(n); };
  const std::int64_t heads = read.k.size(2), key_size = read.k.size(3);
  return {.span = read.span.as<const float>(),
          .longest_span = static_cast<float>(read.longest_span),
          .ramp = static_cast<float>(read.ramp),
          .n_k = number(read.k.size(1)),
          .n_q = number(read.q.size(1)),
          .window = number(read.window),
          .batch = number(read.k.size(0)),
          .panels = number(columns / ReadRows::columns),
          .heads = number(heads),
          .key_size = number(key_size),
          .value_size = number(columns / heads - key_size),
          .self = read.self};
}

void project_panels(const SpanProjectionArgs& args, const Launch& launch);
void project_panels_backward(const SpanProjectionBackwardArgs& args, const Launch& launch);

}  // namespace longstride::kernels::cuda::sm90
