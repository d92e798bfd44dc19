// The recipe keys of an encoder beyond those of every stack.
#include <algorithm>

#include "framework/mixers/attention/config.h"
#include "framework/models/encoder/encoder.h"

namespace longstride {

bool EncoderConfig::answers(std::string_view asked) const {
  const auto kinds = Encoder::answered();
  return std::find(kinds.begin(), kinds.end(), asked) != kinds.end();
}

std::unique_ptr<Model> EncoderConfig::make_model() const { return std::make_unique<Encoder>(*this); }

void EncoderConfig::visit(SettingsVisitor& v) {
  visit_blocks(v);
  v.field("embedding_norm", embedding_norm, Need::optional);
  visit_attention_section(v, mixers.empty());
  visit_rest(v);
}

void EncoderConfig::check(SettingsChecker& check, std::int64_t sequence_ranks) const {
  check_blocks(check);
  if (!mixers.empty() && attention_given)
    check.refuse(
        "model.mixers",
        "model has both mixers and attention, but must have one of them: attention is the short form of a list "
        "with one entry; remove one");
  else if (mixers.empty() && !attention_given && check.none_in({"model.attention", "model.mixers"}))
    check.refuse("model",
                 "model has neither attention nor mixers, but must have one of them: a pattern for all layers, "
                 "or a list");
  check_all_mixers(check, sequence_ranks, [&] {
    if (attention_given)
      AttentionConfig(attention, attention_sink).check({check, "model.attention", "", form_of_all(), sequence_ranks});
  });
}

std::vector<std::string> EncoderConfig::toy_overrides() const {
  auto [out, has_list] = toy_sizes();
  if (!has_list)
    for (std::string& changed : toy_pattern()) out.push_back(std::move(changed));
  return out;
}

}  // namespace longstride
