// Small decoders whose layers scan (`kind: scan`), by themselves, next to attention and between layers of it.
#pragma once
#include <utility>
#include <vector>

#include "framework/mixers/scan/config.h"
#include "tests/support/mixed_toys.h"

namespace longstride::test {

struct ScanToy : MixedToy {
  ScanToy(const DecoderConfig& form, std::vector<MixerEntry> list) : MixedToy(mixed_toy(form, std::move(list))) {
    positions = Positions::none;
  }
};

inline MixerItem scan_item(const ScanSettings& settings, std::int64_t heads = 0) {
  MixerItem item(std::make_unique<ScanConfig>(settings));
  item.heads = heads;
  return item;
}

// The Performer's, with fewer features.
inline ScanSettings performer(ScanFeatures features = ScanFeatures::softmax) {
  ScanSettings s;
  s.features = features;
  s.count = 12;
  return s;
}

inline ScanSettings gated_scan(ScanDecay decay, std::int64_t convolution = 0) {
  ScanSettings s;
  s.form = kernels::ScanForm::gated;
  s.decay = decay;
  s.convolution = convolution;
  return s;
}

inline ScanSettings delta_scan(ScanDecay decay = ScanDecay::head, std::int64_t convolution = 4) {
  ScanSettings s = gated_scan(decay, convolution);
  s.form = kernels::ScanForm::delta;
  return s;
}

inline ScanSettings mamba2(std::int64_t key_heads) {
  ScanSettings s = gated_scan(ScanDecay::head, 3);
  s.convolution_bias = s.time_step = s.skip = true;
  s.norm = ScanNorm::gated_rms;
  s.key_heads = key_heads, s.key_size = 5, s.value_size = 12;
  return s;
}

// Without a norm, which has large second derivatives where a document begins with outputs near 0.
inline ScanSettings qwen3_next() {
  ScanSettings s = delta_scan();
  s.norm = ScanNorm::none;
  s.key_heads = 1, s.key_size = 6;
  return s;
}

inline ScanSettings remembering(ScanSettings s) {
  s.memory = true;
  return s;
}

// One of each form, for ranks that divide sequences: two layers of a model otherwise like `form`.
inline std::vector<std::pair<std::string, DecoderConfig>> divided_scans(const DecoderConfig& form, int ranks) {
  ScanSettings decayed = performer();
  decayed.form = kernels::ScanForm::gated, decayed.decay = ScanDecay::head;
  std::vector<std::pair<std::string, DecoderConfig>> out;
  for (const auto& [name, scan] : {std::pair{"performer", decayed},
                                   {"mamba2", mamba2(ranks)},
                                   {"gla", gated_scan(ScanDecay::channel, 2)},
                                   {"delta", delta_scan()}}) {
    DecoderConfig& config = out.emplace_back(name, form).second;
    config.layers = 2;
    config.positions = Positions::none;
    config.attention_given = false;
    config.mixers = {entry_of({scan_item(scan)})};
  }
  return out;
}

inline std::vector<NamedConfig<ScanToy>> scan_toys() {
  const DecoderConfig plain = toy_config();
  DecoderConfig rotated = toy_config();
  rotated.rotary_base = 100;
  rotated.query_key_norm = true;
  rotated.attention_bias = false;
  DecoderConfig narrow = toy_config();
  narrow.key_ratio = 0.5;
  ScanSettings decayed = performer(ScanFeatures::relu), redrawn = performer(), bare, turning = delta_scan();
  decayed.form = kernels::ScanForm::gated, decayed.decay = ScanDecay::head, decayed.normalise = Switch::off;
  redrawn.redraw = 5, redrawn.gate = Switch::on, redrawn.norm = ScanNorm::rms;
  redrawn.form = kernels::ScanForm::gated, redrawn.decay = ScanDecay::head, redrawn.convolution = 2;
  bare.gate = Switch::off, bare.norm = ScanNorm::none;
  turning.beta = 2, turning.gate = Switch::off, turning.decay = ScanDecay::none;
  ScanSettings trigonometric = performer(ScanFeatures::trigonometric);
  trigonometric.count = 256;  // they have either sign: with fewer, some denominator is near 0
  DecoderConfig short_plain = toy_config();
  short_plain.context = 13;
  return {
      {"performer", {rotated, {entry_of({scan_item(performer())})}}},
      {"trigonometric", {rotated, {entry_of({scan_item(trigonometric)})}}},
      {"relu", {plain, {entry_of({scan_item(decayed)})}}},
      {"redrawn", {plain, {entry_of({scan_item(redrawn)})}}},
      {"sum", {narrow, {entry_of({scan_item(bare)})}}},
      {"ssd", {narrow, {entry_of({scan_item(gated_scan(ScanDecay::head, 4))})}}},
      {"mamba2", {plain, {entry_of({scan_item(mamba2(2))}), entry_of({scan_item(mamba2(1))})}}},
      {"qwen3_next", {plain, {entry_of({scan_item(qwen3_next())})}}},
      {"mamba2_memory", {short_plain, {entry_of({scan_item(remembering(mamba2(1)))})}}},
      {"gla", {plain, {entry_of({scan_item(gated_scan(ScanDecay::channel))})}}},
      {"delta", {plain, {entry_of({scan_item(delta_scan())}), entry_of({scan_item(turning)})}}},
      {"side_by_side", {plain, {entry_of({local_item(4, 1), scan_item(delta_scan(ScanDecay::channel, 3), 1)})}}},
      {"delta_memory", {short_plain, {entry_of({scan_item(remembering(delta_scan()))}), entry_of({local_item(5)})}}},
      {"gla_memory",
       {short_plain,
        {entry_of({
            scan_item(remembering(gated_scan(ScanDecay::channel, 2))),
        })}}},
      {"performer_memory", {short_plain, {entry_of({scan_item(remembering(performer()))})}}},
      {"memory_beside", {house_toy(), {entry_of({distance_item(house_toy())}), entry_of({scan_item(delta_scan())})}}}};
}

template <>
struct Toys<ScanToy> : ToysOfMixers<ScanToy> {
  static std::vector<NamedConfig<ScanToy>> configs() { return scan_toys(); }
};

}  // namespace longstride::test
