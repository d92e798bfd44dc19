// The recipe keys of a bigram model.
#include <fmt/format.h>

#include "framework/models/registry.h"
#include "tests/second_model/bigram.h"

namespace longstride {

std::unique_ptr<Model> BigramConfig::make_model() const { return std::make_unique<Bigram>(*this); }

void BigramConfig::visit(SettingsVisitor& v) {
  v.field("layers", layers, Need::optional, ranges::layers);
  v.field("width", width, Need::required, ranges::width);
  v.field("dropout", dropout, Need::optional, ranges::fraction);
  v.field("recompute", recompute, Need::optional);
}

void BigramConfig::check(SettingsChecker& check, std::int64_t /*sequence_ranks*/) const {
  if (check.none_in({"model.width"}) && width % 8 != 0)
    check.refuse("model.width", "model.width is {}, but must be a multiple of 8", width);
}

double BigramConfig::activation_bytes() const {
  return static_cast<double>(layers * (inner_width() + 2 * width)) * sizeof(float);
}

std::string BigramConfig::summary() const { return fmt::format("{} layers, width {}", layers, width); }

[[maybe_unused]] const bool registered = register_model<BigramConfig>();

}  // namespace longstride
