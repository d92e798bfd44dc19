// The recipe keys of an encoder beyond those of every stack.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "framework/core/errors.h"
#include "framework/mixers/attention/config.h"
#include "framework/models/encoder/encoder.h"
#include "kernels/group_contrast/group_contrast.h"

namespace longstride {

bool EncoderConfig::answers(std::string_view asked) const {
  const auto kinds = Encoder::answered();
  return std::find(kinds.begin(), kinds.end(), asked) != kinds.end();
}

std::unique_ptr<Model> EncoderConfig::make_model() const { return std::make_unique<Encoder>(*this); }

void EncoderConfig::visit(SettingsVisitor& v) {
  visit_blocks(v);
  v.field("embedding_norm", embedding_norm, Need::optional);
  v.choice("types", types, Need::optional, Choices<bool>{{"none", false}, {"groups", true}});
  visit_attention_section(v, mixers.empty());
  v.section("global", Need::optional, global.given(), [&] {
    v.field("first", global.first, Need::optional, ranges::not_negative);
    v.field("last", global.last, Need::optional, ranges::not_negative);
    v.field("added", global.added, Need::optional, ranges::not_negative);
    v.choice("of", global.of_groups, Need::optional, Choices<bool>{{"row", false}, {"groups", true}});
    v.choice("sees", global.own_group, Need::optional, Choices<bool>{{"all", false}, {"own_group", true}});
    v.field("contrast", contrast, Need::optional, ranges::not_negative_real);
    v.choice("projections", global.own, Need::optional, Choices<bool>{{"shared", false}, {"own", true}});
  });
  visit_rest(v);
}

bool EncoderConfig::check_global(SettingsChecker& check) const {
  if (!check.none_in({"model.global"})) return false;
  const auto refuse = [&](const char* key, const std::string& sentence) {
    check.refuse(key, "{}", sentence);
    return false;
  };
  if (global.own && global.first == 0 && global.added == 0)
    return refuse(
        "model.global.projections",
        "model.global.projections is own, but model.global.first and added are 0: no row has them; remove it");
  if (global.of_groups && global.added == 0)
    return refuse("model.global.of",
                  "model.global.of is groups, but model.global.added is 0; set it to the most groups that a row has");
  if (global.own_group && !global.of_groups)
    return refuse(
        "model.global.sees",
        "model.global.sees is own_group, but model.global.of is row, whose rows have no group; set of: groups");
  if (global.added > 0 && (global.first > 0 || global.last > 0))
    return refuse("model.global.added",
                  fmt::format("model.global.added is {}, but model.global also has rows at the ends of a row; remove "
                              "one of them",
                              global.added));
  if (global.added > context && check.none_in({"data.context"}))
    return refuse("model.global.added",
                  fmt::format("model.global.added is {}, but must be at most data.context, {}", global.added, context));
  const bool asks_groups =
      objective != nullptr && objective->kind() == std::string_view("masked") && objective->reads_groups();
  if (contrast > 0 && !(global.of_groups && asks_groups) && check.none_in({"objective"}))
    return refuse(
        "model.global.contrast",
        fmt::format("model.global.contrast is {}, but hidden groups find their rows only with "
                    "model.global.of: groups and objective {{kind: masked, unit: group}}; set both, or remove it",
                    contrast));
  constexpr std::int64_t most = kernels::GroupContrastArgs::most_rows;
  if (contrast > 0 && global.added > most)
    return refuse("model.global.added",
                  fmt::format("model.global.added is {}, but must be at most {} with contrast", global.added, most));
  if (!global.given()) return true;
  for (const MixerEntry& entry : entries())
    for (const MixerItem& item : entry.beside)
      if (!item.config().has_global_rows()) {
        check.refuse("model.global", "model.global has global rows, but {} cannot have them; use attention alone",
                     item.config().kind());
        return false;
      }
  if (documents.separate && !documents.padded)
    return refuse("model.global", global.added > 0 ? "model.global has rows that all positions see, but data.documents "
                                                     "is separate; remove one, or set data.documents: rows"
                                                   : "model.global has rows at the ends of a row, but data.documents "
                                                     "is separate, whose documents would not see them; remove one");
  return true;
}

std::shared_ptr<ModelConfig> EncoderConfig::with_documents(const DocumentForm& changed) const {
  if (global.given() && changed.separate && !changed.padded)
    throw user_error(
        "--documents separate cannot be used with this model: its global rows see all of a row; leave it out");
  return StackConfig::with_documents(changed);
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
      AttentionConfig(attention, attention_heads).check({check, "model.attention", "", form_of_all(), sequence_ranks});
  });
}

std::vector<std::string> EncoderConfig::toy_overrides() const {
  auto [out, has_list] = toy_sizes();
  if (!has_list)
    for (std::string& changed : toy_pattern()) out.push_back(std::move(changed));
  for (const auto& [key, rows] : {std::pair{"global.first", global.first}, std::pair{"global.added", global.added}})
    if (rows > 0) out.push_back(model_override(key, std::min<std::int64_t>(rows, 8)));
  return out;
}

}  // namespace longstride
