// The recipe keys of linear attention as a scan: an entry of `model.mixers` with `kind: scan`.
#pragma once
#include <memory>
#include <string>

#include "framework/mixers/mixer_config.h"
#include "kernels/features/features.h"
#include "kernels/scan/scan.h"

namespace longstride {

enum class ScanDecay : std::uint8_t { none, head, channel };
enum class ScanFeatures : std::uint8_t { none, softmax, trigonometric, relu };
// rms: each head's output, before its gate, with one gain for all heads. gated_rms: gated outputs, those of the heads
// that share keys together (Dao and Gu 2024).
enum class ScanNorm : std::uint8_t { automatic, none, rms, gated_rms };
enum class Switch : std::uint8_t { automatic, off, on };
// The exponents of keys' features are relative to the largest so far, or to that of the whole sequence (Choromanski
// et al. 2021).
enum class Stabiliser : std::uint8_t { running, published };

const char* name_of(ScanFeatures features);  // in sentences

struct ScanSettings {
  std::int64_t key_heads = 0;                 // heads of queries and keys, each for as many of values; 0: all
  std::int64_t key_size = 0, value_size = 0;  // per head; 0: the model's
  kernels::ScanForm form = kernels::ScanForm::sum;
  ScanDecay decay = ScanDecay::none;
  bool time_step = false;  // values count by the step of the decay per head, and queries are not scaled (SSD)
  bool skip = false;       // a head's values pass its state by, times a number of the head
  std::int64_t beta = 1;   // delta: the most that beta can be
  ScanFeatures features = ScanFeatures::none;
  std::int64_t count = 256;                                                  // features
  kernels::Orthogonality orthogonal = kernels::Orthogonality::gram_schmidt;  // rows of the projection
  std::int64_t redraw = 0;               // new features at every step that it divides; 0: the same always
  Switch normalise = Switch::automatic;  // the quotient with the sum of the keys; automatic: with features
  std::int64_t convolution = 0;          // width; 0: none
  bool convolution_bias = false;
  Switch gate = Switch::automatic;      // automatic: without features
  ScanNorm norm = ScanNorm::automatic;  // likewise
  bool memory = false;                  // rows keep their states from window to window
  Stabiliser stabiliser = Stabiliser::running;

  bool has_features() const { return features != ScanFeatures::none; }
  // Features whose exponents are kept at 0 or below.
  bool stabilised() const { return has_features() && features != ScanFeatures::relu; }
  // Without `automatic`.
  ScanSettings resolved() const;
};

struct ScanConfig final : MixerConfig {
  ScanSettings settings;

  ScanConfig() = default;
  explicit ScanConfig(const ScanSettings& s) : settings(s) {}
  const char* kind() const override { return "scan"; }
  std::unique_ptr<MixerConfig> clone() const override { return std::make_unique<ScanConfig>(*this); }
  void visit(SettingsVisitor& v) override;
  void check(const MixerChecks& checks) const override;
  std::unique_ptr<MixerFamily> make(const MixerForm& form, ParameterSet& parameters, StateSet& states) const override;
  bool remembers() const override { return settings.memory; }
  bool transforms() const override { return settings.has_features(); }
  std::string problem_of_documents() const override { return {}; }
};

}  // namespace longstride
