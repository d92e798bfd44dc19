// Pictures of what one query of one head attends to, like the paper's figure 2: the sequence is darkened, white where
// the attention is; the byte that is being generated is outlined, and the future is black.
#pragma once
#include <cstdint>
#include <vector>

#include "datasets/data_config.h"
#include "framework/mixers/mixer.h"
#include "framework/models/model_config.h"
#include "launch/console/canvas.h"

namespace longstride {

struct AttentionView {
  DataKind kind = DataKind::bytes;
  Geometry geometry;       // rows, columns and channels of pictures
  std::int64_t lines = 0;  // positions per line of text or sound, a multiple of the stride
  const std::vector<std::uint8_t>& bytes;
  KeyRows keys = {};                          // rows that are remembered before them; none by default
  std::vector<std::uint8_t> remembered = {};  // the bytes before these, at most keys.memory + 1
};

// weights[j] of the key rows 0 .. keys.before() + query. Of a segment, row j holds byte j - 1, and byte `query` is
// being generated. With a memory the picture is a strip in two or three parts, divided by lines: compressed rows, of
// which no bytes are drawn, the remembered bytes, and the segment. Rows that the model adds are a part like compressed
// ones, and row j of the segment behind them holds byte j.
Canvas attention_picture(const AttentionView& view, const std::vector<double>& weights, std::int64_t query);

// Positions per line so that those of a segment make at most 8 lines of whole strides, and with what is remembered, in
// lines as long, at most 256.
std::int64_t strip_line(const KeyRows& keys, std::int64_t stride);

// Pictures of one size in rows of `across`, with margins between them.
Canvas contact_sheet(const std::vector<Canvas>& pictures, std::int64_t across);
// How many pixels it has for `count` pictures like this one.
std::int64_t pixels_of_sheet(const Canvas& picture, std::int64_t count, std::int64_t across);

}  // namespace longstride
