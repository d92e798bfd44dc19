#include "launch/console/picture_stride.h"

#include <fmt/format.h>

#include <algorithm>

#include "framework/models/attention_views.h"

namespace longstride {

std::string stride_of_other_pictures(const Recipe& recipe, const Model& model) {
  const Geometry& g = recipe.model->geometry;
  const auto* shown = capability<AttendsByPattern>(model);
  if (g.rows == 0 || shown == nullptr) return "";
  const kernels::PatternConfig pattern = shown->attention().pattern;
  const bool strides = std::any_of(pattern.parts.begin(), pattern.parts.end(),
                                   [](kernels::PartKind kind) { return kind != kernels::PartKind::dense; });
  const std::int64_t row = g.columns * g.channels, columns = pattern.stride / g.channels;
  if (!strides || columns < 8 || pattern.stride % g.channels != 0 || pattern.stride % row == 0) return "";
  return fmt::format(
      "model.attention.stride is {}, the row of pictures of {} columns, but a row of these has {} x {} = {} bytes; set "
      "model.attention.stride: {}",
      pattern.stride, columns, g.columns, g.channels, row, row);
}

}  // namespace longstride
