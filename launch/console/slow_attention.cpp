#include "framework/models/mixes_positions.h"
#include "launch/console/device_option.h"

namespace longstride {

std::string slow_attention(const Model& model) {
  const auto* mixes = capability<MixesPositions>(model);
  for (std::int64_t layer = 0; mixes != nullptr && layer < mixes->layers(); ++layer)
    if (std::string slow = mixes->mixer(layer).slow(model.context()); !slow.empty()) return slow;
  return "";
}

}  // namespace longstride
