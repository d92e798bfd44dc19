// Pictures of what one query of one head attends to, like the paper's figure 2: the sequence is darkened, white where
// the attention is; the byte that is being generated is outlined, and the future is black.
#pragma once
#include <cstdint>
#include <vector>

#include "datasets/data_config.h"
#include "framework/models/model_config.h"
#include "launch/console/canvas.h"

namespace longstride {

struct AttentionView {
  DataKind kind = DataKind::bytes;
  Geometry geometry;       // of pictures
  std::int64_t lines = 0;  // positions per line of text or sound, a multiple of the stride
  const std::vector<std::uint8_t>& bytes;
};

// weights[j] of the key slots 0 .. query; slot j holds byte j - 1, and byte `query` is being generated.
Canvas attention_picture(const AttentionView& view, const std::vector<double>& weights, std::int64_t query);

// Positions per line so that `positions` make at most 8 lines of whole strides.
std::int64_t strip_line(std::int64_t positions, std::int64_t stride);

// Pictures of one size in rows of `across`, with margins between them.
Canvas contact_sheet(const std::vector<Canvas>& pictures, std::int64_t across);

}  // namespace longstride
