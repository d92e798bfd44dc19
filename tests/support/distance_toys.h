// Small decoders whose attention has a distance term (`model.distance`), as systems set it.
#pragma once
#include <vector>

#include "tests/support/toys.h"

namespace longstride::test {

// A kind of its own for tests that are written once for every kind of model.
struct DistanceToy : DecoderConfig {
  explicit DistanceToy(const DecoderConfig& config) : DecoderConfig(config) {}
};

inline DistanceToy distance_toy(const DecoderConfig& form) {
  DistanceToy c(form);
  c.positions = Positions::none;
  c.rotary_base = 0;
  c.distance.given = true;
  return c;
}

// Transformer-XL's: post-norm blocks, one pair of biases for all layers, a memory as long as a segment.
inline DistanceToy transformer_xl_toy() {
  DistanceToy c = distance_toy(forms_of(toy_config()).front().config);
  c.context = 13;
  c.memory.length = 13;
  c.distance.table = DistanceTable::sinusoid;
  c.distance.biases = BiasSharing::model;
  c.embedding_dropout = c.inner_dropout = c.output_dropout = 0.1;
  c.distance.dropout = c.distance.table_dropout = 0.2;
  return c;
}

// Longformer's: pre-norm blocks, windows that grow with the layer, of which some heads read every second or third key.
inline DistanceToy longformer_toy() {
  DecoderConfig form = toy_config();
  form.activation = kernels::Activation::gelu;
  form.attention_bias = false;
  DistanceToy c = distance_toy(form);
  c.layers = 3;
  c.distance.biases = BiasSharing::model;
  c.distance.window = {4, 5, 7};
  c.distance.dilation = {1, 2, 3};
  c.distance.dilated_heads = 1;
  return c;
}

// The house's: pre-norm blocks with rotated and normalised queries and keys, which need no table.
inline DistanceToy house_toy() {
  DistanceToy c = distance_toy(toy_config());
  c.context = 13;
  c.memory.length = 13;
  c.rotary_base = 10000;
  c.query_key_norm = true;
  c.distance.table = DistanceTable::none;
  c.distance.biases = BiasSharing::none;
  return c;
}

// The Compressive Transformer's: Transformer-XL's with a compressed memory of two segments.
inline DistanceToy compressive_toy(Compression compress = Compression::convolution) {
  DistanceToy c = transformer_xl_toy();
  c.context = 12;
  c.memory = {.length = 12, .compressed = 8, .rate = 3, .compress = compress};
  return c;
}

// A house's toy whose compressed memory forgets the last rows of a segment later than the first ones.
inline DistanceToy house_compressive_toy() {
  DistanceToy c = house_toy();
  c.context = 12;
  c.memory = {.length = 12, .compressed = 7, .rate = 3};
  return c;
}

inline DistanceToy remembering_longformer_toy() {
  DistanceToy c = longformer_toy();
  c.context = 11;
  c.memory.length = 9;
  c.distance.biases = BiasSharing::layer;
  return c;
}

// Adaptive-Span's (Sukhbaatar et al. 2019): post-norm blocks, one learned table, spans that end within the memory,
// which starts as zeros that receive weight.
inline DistanceToy adaptive_span_toy() {
  DistanceToy c(spans_config());
  c.context = 13;
  c.memory = {.length = 16, .start = MemoryStart::zeros};
  c.distance.dropout = 0.2;
  return c;
}

inline DistanceToy house_with_spans_toy() {
  DistanceToy c = house_toy();
  c.distance.span = {.longest = 13, .ramp = 5, .initial = 0.2, .loss = 0.1};
  return c;
}

inline std::vector<NamedConfig<DistanceToy>> distance_toys() {
  DistanceToy clamped = transformer_xl_toy();
  clamped.memory.length = 20;
  clamped.distance.distances = 9;
  DistanceToy no_memory = transformer_xl_toy();
  no_memory.memory.length = 0;
  DistanceToy learned = distance_toy(toy_config());
  learned.context = 13;
  learned.memory = {.length = 7, .start = MemoryStart::zeros};
  learned.distance.table = DistanceTable::learned;
  learned.distance.distances = 8;
  DistanceToy shared = learned;
  shared.memory.length = 16;
  shared.distance.biases = BiasSharing::none;
  shared.distance.shared_table = true;
  shared.distance.self = false;
  shared.distance.window = {9};
  DistanceToy words = transformer_xl_toy();
  words.adaptive = {{90, 91, 200}, 2};
  DistanceToy forgetful_house = house_toy();
  forgetful_house.memory.length = 0;
  return {{"transformer_xl", transformer_xl_toy()},
          {"transformer_xl_clamped", clamped},
          {"transformer_xl_without_memory", no_memory},
          {"transformer_xl_of_words", words},
          {"longformer", longformer_toy()},
          {"longformer_with_memory", remembering_longformer_toy()},
          {"learned_table", learned},
          {"shared_table_without_self", shared},
          {"house", house_toy()},
          {"house_without_memory", forgetful_house},
          {"compressive", compressive_toy()},
          {"compressive_dilated", compressive_toy(Compression::dilated)},
          {"compressive_mean", compressive_toy(Compression::mean)},
          {"compressive_max", compressive_toy(Compression::max)},
          {"compressive_house", house_compressive_toy()},
          {"adaptive_span", adaptive_span_toy()},
          {"house_with_spans", house_with_spans_toy()}};
}

// Those that keep documents apart.
inline std::vector<NamedConfig<DistanceToy>> toys_of_documents() {
  std::vector<NamedConfig<DistanceToy>> out = distance_toys();
  out.push_back({"compressive_most_used", compressive_toy(Compression::most_used)});
  std::erase_if(out, [](const auto& toy) { return toy.config.memory.start == MemoryStart::zeros; });
  for (auto& [_, config] : out) config.documents = {true, true};
  return out;
}

template <>
struct Toys<DistanceToy> {
  static std::vector<NamedConfig<DistanceToy>> configs() {
    std::vector<NamedConfig<DistanceToy>> out = distance_toys();
    for (const auto& [name, config] : toys_of_documents())
      if (name == "transformer_xl" || name == "compressive") out.push_back({name + "_of_documents", config});
    return out;
  }
  static std::vector<DistanceToy> recompute_policies(const DistanceToy& config) {
    std::vector<DistanceToy> all(4, config);
    all[1].recompute = Recompute::selective;
    all[2].recompute = Recompute::block;
    all[3].recompute = Recompute::attention_and_feed_forward;
    return all;
  }
  static DistanceToy without_dropout(DistanceToy config) {
    config.dropout = config.embedding_dropout = config.inner_dropout = config.output_dropout = 0;
    config.distance.dropout = config.distance.table_dropout = 0;
    return config;
  }
};

}  // namespace longstride::test
