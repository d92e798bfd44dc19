#include <fmt/format.h>

#include "kernels/attention/fast_path.h"
#include "launch/console/device_option.h"

namespace longstride {
namespace {

std::string nearest(const kernels::FastPath& path) {
  if (path.below > 0 && path.above > 0) return fmt::format("{} and {} are", path.below, path.above);
  return fmt::format("{} is", path.below > 0 ? path.below : path.above);
}

std::string sentence(const kernels::FastPath& path) {
  constexpr const char* portable = "use kernels that are several times as slow as those written for Hopper";
  switch (path.slowness) {
    case kernels::Slowness::head_size:
      return fmt::format("heads of size {} {}; {} fast (model.width / model.heads)", path.value, portable,
                         nearest(path));
    case kernels::Slowness::narrow_window:
      return fmt::format(
          "windows of {} cost {:.1f} times their work with heads above 64; {} is fast (model.attention.window), or "
          "heads "
          "of 64 (model.width / model.heads)",
          path.value, path.work, path.above);
    case kernels::Slowness::short_column:
      return fmt::format(
          "columns of {} positions cost {:.1f} times their work with heads above 64; heads of 64 are fast (model.width "
          "/ "
          "model.heads)",
          path.value, path.work);
    case kernels::Slowness::narrow_summary:
      return fmt::format("summaries of {} positions cost {:.1f} times their work; {} is fast (model.attention.summary)",
                         path.value, path.work, path.above);
    case kernels::Slowness::column_head:
      return fmt::format(
          "columns with heads of {} take {:.1f} times as long as with heads of {} (model.width / model.heads)",
          path.value, path.work, path.above);
    case kernels::Slowness::geometry:
      return fmt::format("heads of so many kinds {}; fewer widths in model.attention.summary are fast", portable);
    default:
      return "";
  }
}

}  // namespace

std::string slow_attention(const Model& model) {
  const auto* shown = capability<AttendsByPattern>(model);
  if (shown == nullptr) return "";
  const AttentionLayers a = shown->attention();
  kernels::PlanCache plans(a.pattern, a.heads);
  for (std::int64_t layer = 0; layer < a.layers; ++layer) {
    const auto path = kernels::fast_path_of(*plans.get(layer, model.context()), a.key_size, a.value_size);
    if (path.slowness != kernels::Slowness::none) return sentence(path);
  }
  return "";
}

}  // namespace longstride
