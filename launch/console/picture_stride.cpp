#include "launch/console/picture_stride.h"

#include <fmt/format.h>

#include "framework/models/mixes_positions.h"

namespace longstride {

std::string stride_of_other_pictures(const Recipe& recipe, const Model& model) {
  const Geometry& g = recipe.model->geometry;
  const auto* mixes = capability<MixesPositions>(model);
  if (g.rows == 0 || mixes == nullptr) return "";
  const std::int64_t row = g.columns * g.channels;
  for (std::int64_t layer = 0; layer < mixes->layers(); ++layer) {
    const Mixer& mixer = mixes->mixer(layer);
    const std::int64_t stride = mixer.stride(), columns = stride / g.channels;
    const PairCost cost = mixer.cost(recipe.model->context);
    if (cost.pairs >= cost.dense_pairs || columns < 8 || stride % g.channels != 0 || stride % row == 0) continue;
    return fmt::format(
        "the stride of attention is {}, the row of pictures of {} columns, but a row of these has {} x {} = {} bytes; "
        "set stride: {}",
        stride, columns, g.columns, g.channels, row, row);
  }
  return "";
}

}  // namespace longstride
