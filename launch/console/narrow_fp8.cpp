#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "framework/ops/linear.h"
#include "launch/console/device_option.h"

namespace longstride {

std::string narrow_fp8(Model& model) {
  std::int64_t layers = 0, unsupported = 0, narrowest = 0;
  std::string example;
  for (const Parameter& p : model.parameters().all()) {
    if (p.stacked.empty()) continue;
    const std::int64_t out = p.shape[0], in = p.shape[1];
    ++layers;
    narrowest = narrowest == 0 ? in : std::min(narrowest, in);
    if (ops::fits_fp8(in, out)) continue;
    if (unsupported++ == 0) example = fmt::format("{} with {} x {}", p.name, out, in);
  }
  if (layers == 0) return "this model has no linear layers that multiply in fp8";
  if (unsupported > 0)
    return fmt::format("{} of {} linear layers multiply in bf16, because their sizes are not multiples of 16, as {}",
                       unsupported, layers, example);
  if (narrowest >= ops::fp8_gains_from) return "";
  return fmt::format(
      "products {} wide are expected to take longer in fp8 than in bf16; fp8 gains from a width of about {} "
      "(model.width)",
      narrowest, ops::fp8_gains_from);
}

}  // namespace longstride
