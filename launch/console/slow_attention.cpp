#include <fmt/format.h>

#include "framework/models/attention_views.h"
#include "kernels/attention/fast_path.h"
#include "kernels/distance_attention/fast_path.h"
#include "launch/console/device_option.h"

namespace longstride {
namespace {

constexpr const char* portable = "use kernels that are several times as slow as those written for Hopper";

// Of a FastPath or a DistanceFastPath.
std::string nearest(const auto& path) {
  if (path.below > 0 && path.above > 0) return fmt::format("{} and {} are", path.below, path.above);
  return fmt::format("{} is", path.below > 0 ? path.below : path.above);
}

std::string sentence(const kernels::FastPath& path) {
  switch (path.slowness) {
    case kernels::Slowness::head_size:
      return fmt::format("heads of size {} {}; {} fast (model.width / model.heads)", path.value, portable,
                         nearest(path));
    case kernels::Slowness::narrow_window:
      return fmt::format(
          "windows of {} take {:.1f} times as long as their operations suggest with heads above 64; {} is fast "
          "(model.attention.window), or heads of 64 (model.width / model.heads)",
          path.value, path.work, path.above);
    case kernels::Slowness::short_column:
      return fmt::format(
          "columns of {} positions take {:.1f} times as long as their operations suggest; strides of up to {} are fast "
          "(model.attention.stride)",
          path.value, path.work, path.below);
    case kernels::Slowness::narrow_summary:
      return fmt::format(
          "summaries of {} positions take {:.1f} times as long as their operations suggest; {} is fast "
          "(model.attention.summary)",
          path.value, path.work, path.above);
    case kernels::Slowness::column_head:
      return fmt::format(
          "columns with heads of {} take {:.1f} times as long as with heads of {} (model.width / model.heads)",
          path.value, path.work, path.above);
    case kernels::Slowness::geometry:
      return fmt::format(
          "patterns with too many kinds of key rows {}; fewer widths in model.attention.summary are fast", portable);
    default:
      return "";
  }
}

std::string sentence(const kernels::DistanceFastPath& path) {
  switch (path.slowness) {
    case kernels::DistanceSlowness::head_size:
      return fmt::format("heads of size {} with model.distance {}; {} fast (model.width / model.heads)", path.value,
                         portable, nearest(path));
    case kernels::DistanceSlowness::dropout:
      return fmt::format("probabilities that are dropped {}; 0 is fast (model.distance.dropout)", portable);
    case kernels::DistanceSlowness::dilation:
      return fmt::format(
          "heads with a dilation of {} {}, unless it divides the context and the memory; 1 is fast "
          "(model.distance.dilation)",
          path.value, portable);
    case kernels::DistanceSlowness::table:
      return fmt::format(
          "tables of {} rows, of which the last stands for several distances, {}; a row for every distance is fast "
          "(model.distance.distances)",
          path.value, portable);
    default:
      return "";
  }
}

std::string slow_distance_attention(const AttendsByDistance& model) {
  for (const AttendsByDistance::Layer& layer : model.distance_attention()) {
    const auto path = kernels::fast_path_of(layer.scores, layer.value_size);
    if (path.slowness != kernels::DistanceSlowness::none) return sentence(path);
  }
  return "";
}

}  // namespace

std::string slow_attention(const Model& model) {
  if (const auto* by_distance = capability<AttendsByDistance>(model)) return slow_distance_attention(*by_distance);
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
