// Small encoders, of every mixer, objective and form.
#pragma once
#include <memory>
#include <utility>
#include <vector>

#include "datasets/objectives/answer_spans.h"
#include "datasets/objectives/group_classes.h"
#include "datasets/objectives/masked_bytes.h"
#include "datasets/objectives/of_rows.h"
#include "framework/mixers/attention/config.h"
#include "framework/mixers/scan/config.h"
#include "framework/models/encoder/config.h"
#include "tests/support/toys.h"

namespace longstride::test {

inline EncoderConfig encoder_toy(const MaskedSettings& asked = {.share = 0.4}) {
  EncoderConfig c;
  c.context = 23;
  c.layers = 2;
  c.width = 16;
  c.heads = 2;
  c.feed_forward_ratio = 2;
  c.norm = NormOrder::post;
  c.activation = kernels::Activation::gelu;
  c.embedding_norm = true;
  c.attention.parts = {kernels::PartKind::dense};
  c.objective = std::make_shared<Masked>(asked);
  return c;
}

// Seven blocks, of which five are not global.
inline EncoderConfig bigbird_toy() {
  EncoderConfig c = encoder_toy();
  c.context = 400;
  c.attention.integration = kernels::Integration::merged;
  c.attention.parts = {kernels::PartKind::block_window, kernels::PartKind::random_blocks};
  c.attention.block = 64;
  c.attention.random = 2;
  c.global = {.first = 1, .last = 1};
  return c;
}

// Encoders with added rows, of groups and of none.
inline std::vector<NamedConfig<EncoderConfig>> encoder_toys_with_rows() {
  using kernels::PartKind;
  EncoderConfig etc = encoder_toy({.unit = MaskedUnit::group, .share = 0.4});
  etc.attention.parts = {PartKind::local};
  etc.attention.window = 5;
  etc.attention_heads.labels = 2;
  etc.global = {.added = 4, .of_groups = true};
  EncoderConfig structured = etc;
  structured.norm = NormOrder::pre;
  structured.attention_heads.sink = true;
  structured.global = {.own = true, .added = 3, .of_groups = true, .own_group = true};
  EncoderConfig added = encoder_toy();
  added.rotary_base = 100;
  added.attention.parts = {PartKind::block_window};
  added.attention.block = 4;
  added.global = {.added = 3};
  EncoderConfig padded = etc;
  padded.documents = {true, false, true};
  padded.global.own_group = true;
  return {{"etc", etc}, {"structured", structured}, {"added", added}, {"padded", padded}};
}

// Objectives that labels answer, and types. `modern`: another form than BERT's.
inline std::vector<NamedConfig<EncoderConfig>> labelled_encoder_toys(const EncoderConfig& modern) {
  EncoderConfig classes = encoder_toy();
  classes.objective = std::make_shared<Classes>(5);
  EncoderConfig mean = modern;
  mean.objective = std::make_shared<Classes>(3, RowRead::mean);
  mean.documents = {true, true, false};
  EncoderConfig labels = encoder_toy();
  labels.objective = std::make_shared<IndependentLabels>(4);
  EncoderConfig spans = encoder_toy();
  spans.objective = std::make_shared<Spans>();
  spans.documents = {true, true, true};
  EncoderConfig sentences = modern;
  sentences.objective = std::make_shared<Sentences>(3);
  EncoderConfig typed = encoder_toy();
  typed.types = true;
  return {{"classes", classes}, {"class_of_mean", mean},  {"labels", labels},
          {"spans", spans},     {"sentences", sentences}, {"typed", typed}};
}

inline std::vector<NamedConfig<EncoderConfig>> encoder_toys() {
  using kernels::PartKind;
  const EncoderConfig bert = encoder_toy();
  EncoderConfig modern = encoder_toy({.unit = MaskedUnit::span, .share = 0.5, .length = 4});
  modern.norm = NormOrder::pre;
  modern.activation = kernels::Activation::geglu;
  modern.positions = Positions::none;
  modern.rotary_base = 100;
  modern.query_key_norm = true;
  modern.embedding_norm = modern.tied_output = modern.output_bias = false;
  modern.attention.parts = {PartKind::local};
  modern.attention.window = 7;
  EncoderConfig merged = encoder_toy({.unit = MaskedUnit::word, .share = 0.5});
  merged.attention.integration = kernels::Integration::merged;
  merged.attention.parts = {PartKind::fixed_block, PartKind::fixed_summary};
  merged.attention.stride = 5;
  merged.attention.summary = {2};
  merged.attention_heads.sink = true;
  merged.activation = kernels::Activation::relu;
  EncoderConfig scan = encoder_toy({.unit = MaskedUnit::group, .share = 0.5});
  ScanSettings performer;
  performer.features = ScanFeatures::softmax;
  performer.count = 12;
  scan.mixers.resize(2);
  scan.mixers[0].beside = {MixerItem(std::make_unique<ScanConfig>(performer))};
  scan.mixers[1].beside = {MixerItem(std::make_unique<ScanConfig>(ScanSettings{}))};
  EncoderConfig longformer = encoder_toy();
  longformer.attention.parts = {PartKind::local};
  longformer.attention.window = 5;
  longformer.global = {.first = 2, .own = true};
  EncoderConfig shared = encoder_toy();
  shared.rotary_base = 100;
  shared.attention.parts = {PartKind::block_window};
  shared.attention.block = 4;
  shared.attention_heads.sink = true;
  shared.global = {.first = 3};
  EncoderConfig shifted = encoder_toy();
  shifted.attention.parts = {PartKind::shifted_block, PartKind::dilated};
  shifted.attention.blocks = 3;
  shifted.attention.shifts = {1, 0, 1};
  shifted.attention.window = 5;
  shifted.attention.dilation = {1, 4};
  std::vector<NamedConfig<EncoderConfig>> all = {{"bert", bert},       {"modern", modern},         {"merged", merged},
                                                 {"scan", scan},       {"longformer", longformer}, {"shared", shared},
                                                 {"shifted", shifted}, {"bigbird", bigbird_toy()}};
  for (const auto& labelled : labelled_encoder_toys(modern)) all.push_back(labelled);
  for (const auto& with_rows : encoder_toys_with_rows()) all.push_back(with_rows);
  return all;
}

template <>
struct Toys<EncoderConfig> {
  static std::vector<NamedConfig<EncoderConfig>> configs() { return encoder_toys(); }
  static std::vector<EncoderConfig> recompute_policies(const EncoderConfig& config) {
    std::vector<EncoderConfig> all(4, config);
    all[1].recompute = Recompute::selective;
    all[2].recompute = Recompute::block;
    all[3].recompute = Recompute::attention_and_feed_forward;
    return all;
  }
};

}  // namespace longstride::test
