// The recipe keys of a scan, and what they must agree with.
#include <fmt/format.h>

#include "framework/mixers/scan/family.h"
#include "kernels/gated_norm/gated_norm.h"
#include "kernels/short_convolution/short_convolution.h"

namespace longstride {
namespace {

using kernels::ScanForm;

constexpr Range counts{1, 1024, false, false, "a number of features from 1 to 1,024"};
constexpr Range key_sizes{0, 256, false, false, "0, for the model's, or at most 256"};
constexpr Range value_sizes{0, kernels::widest_gated_row, false, false, "0, for the model's, or at most 1,024"};
constexpr Range betas{1, 2, false, false, "1, or 2 for states that may turn"};

const Choices<Switch>& switches() {
  static const Choices<Switch> names = {{"automatic", Switch::automatic}, {"true", Switch::on}, {"false", Switch::off}};
  return names;
}

// The checks of one entry, whose keys depend on where they are written.
class ScanChecks {
 public:
  ScanChecks(const MixerChecks& at, const ScanSettings& settings) : at_(at), s_(settings) {}

  void run() {
    form();
    features();
    quotient();
    if (at_.form.block.direction == kernels::Direction::both) directions();
    around();
    heads();
    if (at_.sequence_ranks > 1 && at_.check.none_in({"parallel.sequence_ranks"})) ranks();
  }

 private:
  // A sentence that begins with the key.
  template <class... Values>
  void refuse(const char* name, const char* sentence, const Values&... values) {
    at_.check.refuse(at_.of(name), "{}", fmt::format(fmt::runtime(sentence), at_.of(name), values...));
  }

  void form() {
    if (s_.form == ScanForm::gated && s_.decay == ScanDecay::none)
      refuse("decay", "{} is none, but form gated is one with a decay; set head or channel, or form: sum");
    if (s_.form == ScanForm::sum && s_.decay != ScanDecay::none)
      refuse("form", "{} is sum, which forgets nothing, but there is a decay; set form: gated, or decay: none");
    if (s_.form != ScanForm::delta && s_.beta != 1)
      refuse("beta", "{} is {}, but only form delta reads it; remove it", s_.beta);
    if (s_.form == ScanForm::delta && s_.has_features())
      refuse("features", "{} are given, but form delta needs keys of length 1, which features are not; set none");
    if (s_.decay == ScanDecay::channel && s_.has_features())
      refuse("decay", "{} is channel, but features are no channels of the keys; set head, or features: none");
  }

  // Keys of the parts around a state.
  void around() {
    if (s_.convolution == 1)
      refuse("convolution", "{} is 1, which reads no other position; set 0, for none, or 2 to 4");
    if (s_.convolution_bias && s_.convolution == 0)
      refuse("convolution_bias", "{} is true, but there is no convolution; remove it, or set one");
    if (s_.time_step && (s_.form != ScanForm::gated || s_.decay != ScanDecay::head || s_.has_features()))
      refuse("time_step",
             "{} is true, but only form gated with decay: head and without features has a step; remove it");
    if (s_.skip && s_.has_features())
      refuse("skip", "{} is true, but values that pass by the quotient of features are no part of it; remove it");
    if (s_.norm == ScanNorm::gated_rms && s_.resolved().gate != Switch::on)
      refuse("norm", "{} is gated_rms, but there is no gate; set gate: true, or norm: rms");
  }

  void heads() {
    const std::int64_t heads = at_.form.heads, key_heads = s_.key_heads > 0 ? s_.key_heads : heads;
    if (heads % key_heads != 0)
      return refuse("key_heads", "{} is {}, but must divide the number of heads, {}", s_.key_heads, heads);
    if (key_heads < heads && s_.has_features())
      refuse("key_heads", "{} is {}, but with features every head has keys of its own; remove it", s_.key_heads);
    const std::int64_t value_size = s_.value_size > 0 ? s_.value_size : at_.form.block.value_size();
    if (const std::int64_t row = heads / key_heads * value_size;
        s_.norm == ScanNorm::gated_rms && row > kernels::widest_gated_row)
      refuse("norm", "{} is gated_rms over {} elements, but must be over at most {}; set more key_heads, or norm: rms",
             row, kernels::widest_gated_row);
  }

  void ranks() {
    const std::int64_t ranks = at_.sequence_ranks, heads = at_.form.heads,
                       key_heads = s_.key_heads > 0 ? s_.key_heads : heads;
    const auto wrong = [&](const std::string& why) {
      at_.check.refuse("parallel.sequence_ranks", "parallel.sequence_ranks is {}, but {}", ranks, why);
    };
    if (s_.memory)
      wrong(fmt::format("{} is state, which needs whole rows; set it to 1", at_.of("memory")));
    else if (s_.key_heads > 0 && key_heads % ranks != 0)
      wrong(fmt::format("must divide {}, {}", at_.of("key_heads"), key_heads));
    else if (heads < at_.form.block.heads && heads % ranks != 0)
      wrong(fmt::format("must divide {}, {}", at_.of("heads"), heads));
  }

  void features() {
    const ScanSettings usual;
    if (!s_.has_features()) {
      for (const auto& [name, changed] :
           {std::pair{"count", s_.count != usual.count}, std::pair{"orthogonal", s_.orthogonal != usual.orthogonal},
            std::pair{"redraw", s_.redraw != usual.redraw}})
        if (changed) refuse(name, "{} has no effect, because there are no features; remove it, or set features");
    } else if (s_.features == ScanFeatures::trigonometric && s_.count % 2 != 0) {
      refuse("count", "{} is {}, but trigonometric features are pairs of a cosine and a sine; choose an even number",
             s_.count);
    } else if (const std::int64_t size = s_.key_size > 0 ? s_.key_size : at_.form.block.key_size();
               s_.orthogonal == kernels::Orthogonality::hadamard && (size & (size - 1)) != 0) {
      refuse("orthogonal", "{} is hadamard, but keys of {} elements are no power of two; set gram_schmidt or givens",
             size);
    } else if (size == 1 && s_.orthogonal == kernels::Orthogonality::givens) {
      refuse("orthogonal", "{} is givens, but keys of one element have no plane to rotate in; set gram_schmidt");
    }
    if (s_.stabiliser != Stabiliser::published) return;
    if (!s_.stabilised())
      refuse("stabiliser", "{} is published, but only softmax and trigonometric features have one; remove it");
    else if (s_.form != ScanForm::sum)
      refuse("stabiliser", "{} is published, but only form sum can have that; set running");
    else if (s_.memory)
      refuse("stabiliser",
             "{} is published, which looks at all keys of a window and none before; set running, or "
             "memory: none");
  }

  // In both directions every position reads one sum over all of its document.
  void directions() {
    constexpr const char* sentence = "{} is {}, but a scan in both directions {}; {}";
    if (s_.form != ScanForm::sum)
      refuse("form", sentence, s_.form == ScanForm::gated ? "gated" : "delta", "is one sum over all positions",
             "set sum");
    if (s_.convolution > 1)
      refuse("convolution", sentence, s_.convolution, "has no convolution, which reads earlier positions alone",
             "remove it");
    if (s_.memory) refuse("memory", sentence, "state", "remembers nothing from window to window", "set none");
    if (s_.stabiliser == Stabiliser::published)
      refuse("stabiliser", sentence, "published", "stabilises by all keys anyway", "remove it");
  }

  void quotient() {
    const bool on = s_.normalise == Switch::on;
    if (s_.form == ScanForm::delta && on)
      refuse("normalise", "{} is true, but form delta has no sum of keys to divide by; remove it");
    else if (on && !s_.has_features())
      refuse("normalise", "{} is true, but products of plain queries and keys may add up to 0; set features");
    if (s_.normalise == Switch::off && s_.stabilised())
      refuse("normalise", "{} is false, but what keeps {} features finite cancels only in the quotient; set true",
             name_of(s_.features));
    if (s_.memory && s_.has_features() && at_.form.block.rotary_base > 0 && at_.check.none_in({"model.rotary_base"}))
      refuse("memory",
             "{} is state, but features of queries and keys that model.rotary_base rotates by their place in "
             "the window cannot continue; set model.rotary_base: 0");
  }

  const MixerChecks& at_;
  const ScanSettings& s_;
};

}  // namespace

ScanSettings ScanSettings::resolved() const {
  ScanSettings out = *this;
  const bool features_given = has_features();
  if (normalise == Switch::automatic) out.normalise = features_given ? Switch::on : Switch::off;
  if (gate == Switch::automatic) out.gate = features_given ? Switch::off : Switch::on;
  if (norm == ScanNorm::automatic) out.norm = features_given ? ScanNorm::none : ScanNorm::rms;
  return out;
}

void ScanConfig::visit(SettingsVisitor& v) {
  ScanSettings written = settings;
  ScanSettings& s = v.reads() ? settings : written;
  constexpr Range widths{0, static_cast<double>(kernels::widest_convolution), false, false, "0, for none, or 2 to 4"};
  v.choice("form", s.form, Need::optional,
           Choices<ScanForm>{{"sum", ScanForm::sum}, {"gated", ScanForm::gated}, {"delta", ScanForm::delta}});
  v.choice("decay", s.decay, Need::optional,
           Choices<ScanDecay>{{"none", ScanDecay::none}, {"head", ScanDecay::head}, {"channel", ScanDecay::channel}});
  v.field("time_step", s.time_step, Need::optional);
  v.field("beta", s.beta, Need::optional, betas);
  v.field("key_heads", s.key_heads, Need::optional, ranges::not_negative);
  v.field("key_size", s.key_size, Need::optional, key_sizes);
  v.field("value_size", s.value_size, Need::optional, value_sizes);
  v.choice("features", s.features, Need::optional,
           Choices<ScanFeatures>{{"none", ScanFeatures::none},
                                 {"softmax", ScanFeatures::softmax},
                                 {"trigonometric", ScanFeatures::trigonometric},
                                 {"relu", ScanFeatures::relu}});
  v.field("count", s.count, Need::optional, counts);
  v.choice("orthogonal", s.orthogonal, Need::optional,
           Choices<kernels::Orthogonality>{{"gram_schmidt", kernels::Orthogonality::gram_schmidt},
                                           {"hadamard", kernels::Orthogonality::hadamard},
                                           {"givens", kernels::Orthogonality::givens},
                                           {"none", kernels::Orthogonality::none}});
  v.field("redraw", s.redraw, Need::optional, ranges::not_negative);
  v.choice("normalise", s.normalise, Need::optional, switches());
  v.choice("stabiliser", s.stabiliser, Need::optional,
           Choices<Stabiliser>{{"running", Stabiliser::running}, {"published", Stabiliser::published}});
  v.field("convolution", s.convolution, Need::optional, widths);
  v.field("convolution_bias", s.convolution_bias, Need::optional);
  v.field("skip", s.skip, Need::optional);
  v.choice("gate", s.gate, Need::optional, switches());
  v.choice("norm", s.norm, Need::optional,
           Choices<ScanNorm>{{"automatic", ScanNorm::automatic},
                             {"none", ScanNorm::none},
                             {"rms", ScanNorm::rms},
                             {"gated_rms", ScanNorm::gated_rms}});
  v.choice("memory", s.memory, Need::optional, Choices<bool>{{"none", false}, {"state", true}});
}

void ScanConfig::check(const MixerChecks& checks) const {
  if (checks.check.none_in({checks.key.c_str(), "model.heads"})) ScanChecks(checks, settings).run();
}

std::unique_ptr<MixerFamily> ScanConfig::make(const MixerForm& form, ParameterSet& /*parameters*/,
                                              StateSet& /*states*/) const {
  return std::make_unique<ScanFamily>(form, settings);
}

}  // namespace longstride
