#include "framework/models/mixes_positions.h"

namespace longstride {

LookBack look_back(const MixesPositions& model) {
  Reach reach(model.mixer(0).key_rows().segment);
  for (std::int64_t layer = 0; layer < model.layers(); ++layer) model.mixer(layer).extend(reach);
  return reach.look_back();
}

LookBack look_back_of_layer(const MixesPositions& model, std::int64_t layer) {
  Reach reach(model.mixer(layer).key_rows().segment);
  model.mixer(layer).extend(reach);
  return reach.look_back();
}

}  // namespace longstride
