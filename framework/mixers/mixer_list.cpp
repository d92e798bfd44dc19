#include "framework/mixers/mixer_list.h"

#include <fmt/format.h>

#include <algorithm>

#include "framework/mixers/side_by_side.h"

namespace longstride {
namespace {

std::string key_of(std::size_t entry) { return fmt::format("model.mixers.{}", entry); }
std::string key_of(const std::vector<MixerEntry>& entries, std::size_t entry, std::size_t item) {
  return entries[entry].beside.size() > 1 ? fmt::format("{}.{}", key_of(entry), item) : key_of(entry);
}

// A list with one entry is the short form written out, with the same names.
MixerForm form_of(const std::vector<MixerEntry>& entries, std::size_t entry, std::size_t item, const BlockForm& block,
                  std::int64_t segment) {
  const MixerEntry& e = entries[entry];
  MixerForm form{block, e.beside[item].heads > 0 ? e.beside[item].heads : block.heads, segment, item == 0, ""};
  if (e.beside.size() > 1)
    form.prefix = fmt::format("mixers.{}.{}.", entry, item);
  else if (entries.size() > 1)
    form.prefix = fmt::format("mixers.{}.", entry);
  return form;
}

template <class F>
void for_each_item(const std::vector<MixerEntry>& entries, const F& f) {
  for (std::size_t e = 0; e < entries.size(); ++e)
    for (std::size_t i = 0; i < entries[e].beside.size(); ++i) f(e, i);
}

bool check_heads(SettingsChecker& check, const std::vector<MixerEntry>& entries, std::size_t entry,
                 std::int64_t heads) {
  const std::vector<MixerItem>& items = entries[entry].beside;
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (items.size() > 1 && items[i].heads == 0) {
      const std::string key = key_of(entries, entry, i) + ".heads";
      check.refuse(key, "{} is missing, but mixers side by side divide model.heads, {}, among them; add it", key,
                   heads);
      return false;
    }
    sum += items[i].heads > 0 ? items[i].heads : heads;
  }
  if (sum == heads) return true;
  const std::string key = key_of(entry);
  check.refuse(key, "{} has {} heads in all, but must have model.heads, {}", key, sum, heads);
  return false;
}

}  // namespace

void MixerItem::visit(SettingsVisitor& v) { visit_kind(v, mixer_kinds(), config_, Need::required); }

// An entry begins as attention, the only kind whose direction is a setting.
void visit_mixers(SettingsVisitor& v, const std::string& key, std::vector<MixerEntry>& entries,
                  kernels::Direction direction) {
  std::vector<std::size_t> sizes;
  for (const MixerEntry& entry : entries) sizes.push_back(entry.beside.size());
  v.nested_maps(
      key, sizes, Need::optional,
      [&](const std::vector<std::size_t>& found) {
        entries.assign(found.size(), {});
        for (std::size_t e = 0; e < found.size(); ++e) entries[e].beside.resize(found[e]);
        for (MixerEntry& entry : entries)
          for (MixerItem& item : entry.beside) item.config().set_direction(direction);
      },
      [&](SettingsVisitor& item, std::size_t e, std::size_t i) {
        MixerEntry& entry = entries[e];
        if (i == 0) item.field("layers", entry.layers, Need::optional, ranges::layers);
        item.field("heads", entry.beside[i].heads, Need::optional, ranges::not_negative);
        entry.beside[i].visit(item);
      });
}

void check_mixers(SettingsChecker& check, const std::vector<MixerEntry>& entries, const BlockForm& form,
                  std::int64_t segment, std::int64_t sequence_ranks) {
  if (!check.none_in({"model.mixers", "model.heads", "model.layers", "model.width"})) return;
  std::int64_t first = 0;
  for (std::size_t e = 0; e < entries.size(); first += entries[e++].layers) {
    if (first >= form.layers) {
      const std::string key = key_of(e);
      return check.refuse(key,
                          "{} begins at layer {}, but the model has layers 0 to {}; remove it, or set more "
                          "model.layers",
                          key, first, form.layers - 1);
    }
    if (!check_heads(check, entries, e, form.heads)) return;
  }
  for_each_item(entries, [&](std::size_t e, std::size_t i) {
    const MixerForm own = form_of(entries, e, i, form, segment);
    const std::string key = key_of(entries, e, i);
    entries[e].beside[i].config().check({check, key, key + ".memory", own, sequence_ranks});
  });
}

void check_training_of_mixers(SettingsChecker& check, const std::vector<MixerEntry>& entries, const BlockForm& form,
                              std::int64_t segment) {
  for_each_item(entries, [&](std::size_t e, std::size_t i) {
    const MixerForm own = form_of(entries, e, i, form, segment);
    const std::string key = key_of(entries, e, i);
    entries[e].beside[i].config().check_training({check, key, key + ".memory", own});
  });
}

MixerCycle::MixerCycle(const std::vector<MixerEntry>& entries, const BlockForm& form, std::int64_t segment,
                       bool documents, ParameterSet& parameters, StateSet& states) {
  for (const MixerEntry& entry : entries) {
    entries_.push_back({length_, entry.layers, {}});
    length_ += entry.layers;
  }
  for_each_item(entries, [&](std::size_t e, std::size_t i) {
    MixerForm own = form_of(entries, e, i, form, segment);
    own.documents = documents;
    auto& family = entries_[e].families.emplace_back(entries[e].beside[i].config().make(own, parameters, states));
    for (const std::string& name : family->auxiliary_losses())
      if (std::find(losses_.begin(), losses_.end(), name) == losses_.end()) losses_.push_back(name);
  });
  for (Entry& entry : entries_)
    for (auto& family : entry.families) family->place_losses(losses_);
}

std::shared_ptr<const Mixer> MixerCycle::layer(ParameterSet& parameters, StateSet& states,
                                               const LayerPlace& place) const {
  const std::int64_t at = place.layer % length_;
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const Entry& e) { return at >= e.first && at < e.first + e.layers; });
  LayerPlace own = place;
  own.ordinal = place.layer / length_ * found->layers + at - found->first;
  if (found->families.size() == 1) return found->families.front()->layer(parameters, states, own);
  std::vector<std::shared_ptr<const Mixer>> parts;
  for (std::size_t i = 0; i < found->families.size(); ++i) {
    own.name = fmt::format("{}.{}", place.name, i);
    own.slot = static_cast<std::int64_t>(i);
    parts.push_back(found->families[i]->layer(parameters, states, own));
  }
  return std::make_shared<SideBySide>(std::move(parts));
}

void MixerCycle::end_step(Context& ctx, std::int64_t positions) const {
  for (const Entry& entry : entries_)
    for (const auto& family : entry.families) family->end_step(ctx, positions);
}

bool MixerCycle::set_windows(const std::vector<std::int64_t>& of_layers) {
  bool any = false;
  for (Entry& entry : entries_)
    for (auto& family : entry.families) any |= family->set_windows(of_layers);
  return any;
}

}  // namespace longstride
