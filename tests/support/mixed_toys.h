// Small decoders whose layers differ, or have heads that attend in two ways (`model.mixers`).
#pragma once
#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

#include "framework/mixers/attention/config.h"
#include "framework/mixers/distance/settings.h"
#include "tests/support/distance_toys.h"

namespace longstride::test {

struct MixedToy : DecoderConfig {
  explicit MixedToy(const DecoderConfig& config) : DecoderConfig(config) {}
};

inline MixerItem local_item(std::int64_t window, std::int64_t heads = 0) {
  kernels::PatternConfig pattern;
  pattern.parts = {kernels::PartKind::local};
  pattern.stride = 4;
  pattern.window = window;
  MixerItem item(std::make_unique<AttentionConfig>(pattern));
  item.heads = heads;
  return item;
}

// The attention of a toy with distances.
inline MixerItem distance_item(const DecoderConfig& toy, std::int64_t heads = 0) {
  MixerItem item(std::make_unique<DistanceSettings>(toy.distance, toy.memory));
  item.heads = heads;
  return item;
}

inline MixerEntry entry_of(std::initializer_list<MixerItem> beside, std::int64_t layers = 1) {
  return {layers, std::vector<MixerItem>(beside)};
}

// The form of a toy, with a list in the place of its attention.
inline MixedToy mixed_toy(const DecoderConfig& form, std::vector<MixerEntry> mixers) {
  MixedToy c(form);
  c.mixers = std::move(mixers);
  c.distance = {};
  c.memory = {};
  return c;
}

// Two local layers for each of Transformer-XL's; the cycle ends in the middle of an entry.
inline MixedToy alternating_toy() {
  MixedToy c =
      mixed_toy(transformer_xl_toy(), {entry_of({distance_item(transformer_xl_toy())}), entry_of({local_item(5)}, 2)});
  c.layers = 5;
  return c;
}

// Every layer has heads of both kinds, and biases in all maps.
inline MixedToy side_by_side_toy() {
  MixedToy c = mixed_toy(toy_config(), {entry_of({local_item(4, 1), distance_item(transformer_xl_toy(), 3)})});
  c.positions = Positions::none;
  c.context = 13;
  c.heads = 4;
  return c;
}

// Memories of two lengths and kinds, two auxiliary losses, and three mixers in one layer.
inline MixedToy many_memories_toy() {
  MixedToy c = mixed_toy(
      house_compressive_toy(),
      {entry_of({distance_item(house_compressive_toy())}),
       entry_of({distance_item(house_with_spans_toy(), 1), local_item(3, 1), distance_item(house_toy(), 2)})});
  c.heads = 4;
  c.layers = 3;
  return c;
}

// Common to all toys with a list of mixers.
template <class Toy>
struct ToysOfMixers {
  static std::vector<Toy> recompute_policies(const Toy& config) {
    std::vector<Toy> all(4, config);
    all[1].recompute = Recompute::selective;
    all[2].recompute = Recompute::block;
    all[3].recompute = Recompute::attention_and_feed_forward;
    return all;
  }
  static Toy without_dropout(Toy config) {
    config.dropout = config.embedding_dropout = config.inner_dropout = config.output_dropout = 0;
    for (const auto& [distance, _] : config.with_distances()) distance->dropout = distance->table_dropout = 0;
    return config;
  }
};

template <>
struct Toys<MixedToy> : ToysOfMixers<MixedToy> {
  static std::vector<NamedConfig<MixedToy>> configs() {
    return {
        {"alternating", alternating_toy()}, {"side_by_side", side_by_side_toy()}, {"memories", many_memories_toy()}};
  }
};

}  // namespace longstride::test
