// The attention of a model over one window of a text, with what its layers remember of the windows before.
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "framework/core/objective.h"
#include "framework/models/mixes_positions.h"
#include "framework/models/model.h"

namespace longstride {

// How many windows before one can change what the model computes for it, at most: all that must be read for it to have
// the figures of an evaluation that has read the text from its beginning. None without states.
std::int64_t windows_that_matter(const Model& model);

struct ShownText {
  std::vector<std::uint8_t> windows;         // bytes, or 16-bit ids, each of the model's context, one after another
  bool wide = false;                         // ids
  std::vector<std::int64_t> documents = {};  // where documents end, if the model reads them (write_groups)
  std::vector<std::int64_t> groups = {};     // likewise its groups (Batch::sentences), from groups_offset on
  std::int64_t groups_offset = 0;
  std::int64_t offset = 0;  // position in that text of the first window
  std::uint64_t seed = 0;   // the run's, and its steps: what layers draw by
  std::int64_t trained = 0;
};

// Reads windows, the last of which is shown; a stream starts with the first. On the CPU, in memory of its own. `read`,
// if given, is called with the number of windows read so far.
void show_attention(const Model& model, const Objective& objective, const ShownText& text,
                    const std::vector<std::int64_t>& queries, const MixesPositions::AttentionVisitor& visit,
                    const std::function<void(std::int64_t)>& read = {});

}  // namespace longstride
