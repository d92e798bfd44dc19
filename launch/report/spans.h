// The spans that a run's heads have learned, for its page and `show spans`.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "framework/models/model.h"

namespace longstride {

struct RunSpans {
  double longest = 0, ramp = 0;             // positions: the longest of all layers
  std::vector<std::int64_t> numbers;        // layers whose heads learn them
  std::vector<std::vector<double>> layers;  // spans of their heads, in positions, without the ramp

  const std::vector<double>& of_layer(std::int64_t number) const;
  double mean() const;
  double largest() const;
};

// True if heads of this model learn them.
bool learns_spans(const Model& model);
// The spans in the checkpoint at this step, whose weights are read from its file; no layers if heads learn none.
RunSpans read_spans(const std::string& run, std::int64_t step, const Model& model);

// The spans in the weights that the model is bound to.
RunSpans spans_of(Model& model);

nlohmann::ordered_json spans_as_json(const RunSpans& spans);
// One line per layer.
std::string spans_as_text(const RunSpans& spans);
// A chart with a mark for every head, and a table.
std::string spans_as_html(const RunSpans& spans);

}  // namespace longstride
