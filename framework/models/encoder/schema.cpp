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
  v.section("global", Need::optional, global.given(), [&] {
    v.field("first", global.first, Need::optional, ranges::not_negative);
    v.field("last", global.last, Need::optional, ranges::not_negative);
    v.choice("projections", global.own, Need::optional, Choices<bool>{{"shared", false}, {"own", true}});
  });
  visit_rest(v);
}

bool EncoderConfig::check_global(SettingsChecker& check) const {
  if (!check.none_in({"model.global"})) return false;
  if (global.own && global.first == 0) {
    check.refuse("model.global.projections",
                 "model.global.projections is own, but model.global.first is 0: no row has "
                 "them; remove it");
    return false;
  }
  if (!global.given()) return true;
  for (const MixerEntry& entry : entries())
    for (const MixerItem& item : entry.beside)
      if (!item.config().has_global_rows()) {
        check.refuse("model.global", "model.global has global rows, but {} cannot have them; use attention alone",
                     item.config().kind());
        return false;
      }
  if (documents.separate && !documents.padded) {
    check.refuse(
        "model.global",
        "model.global has rows at the ends of a row, but data.documents is separate, whose documents would not "
        "see them; remove one");
    return false;
  }
  return true;
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
  if (!check_global(check)) return;
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
