// The recipe keys of attention with a distance term and its memory, and what they must agree with.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "framework/mixers/distance/family.h"
#include "framework/mixers/distance/settings.h"

namespace longstride {
namespace {

constexpr std::int64_t longest = longest_memory;  // also of a table or a span
constexpr Range lengths{0, longest, false, false, "0 or a positive number of positions"};
constexpr Range ramps{1, longest, false, false, "a positive number of positions"};
constexpr Range initial_spans{0, 1, false, false, "0 or a positive share of longest"};
constexpr Range rates{0, longest, false, false, "a positive number of rows that become one"};
constexpr std::int64_t most_head_elements = 128;  // kernels/distance_attention

void visit_span(SettingsVisitor& v, LearnedSpans& c) {
  v.field("longest", c.longest, Need::required, ramps);
  v.field("ramp", c.ramp, Need::optional, ramps);
  v.field("initial", c.initial, Need::optional, initial_spans);
  v.field("loss", c.loss, Need::optional, ranges::not_negative_real);
}

const Choices<Compression>& compressions() {
  static const Choices<Compression> names = {{"mean", Compression::mean},
                                             {"max", Compression::max},
                                             {"convolution", Compression::convolution},
                                             {"dilated", Compression::dilated},
                                             {"most_used", Compression::most_used}};
  return names;
}

// The fault of numbers of positions, one for all layers or one for each; empty: none.
std::string problem_of_layers(const std::vector<std::int64_t>& values, std::int64_t layers) {
  if (values.size() > 1 && std::ssize(values) != layers)
    return fmt::format("has {} values, but must have one for all layers or one for each of model.layers, {}",
                       values.size(), layers);
  const auto most = std::max_element(values.begin(), values.end());
  if (most != values.end() && *most > longest)
    return fmt::format("has the value {}, but must have positive whole numbers up to {}", *most, longest);
  return "";
}

// The divisor of `context` nearest to `wanted` with which a compressed memory of `rows` holds those of a segment.
std::int64_t fitting_rate(std::int64_t context, std::int64_t rows, std::int64_t wanted) {
  std::int64_t best = context;
  for (std::int64_t rate = 1; rate < context; ++rate)
    if (context % rate == 0 && context / rate <= rows && std::abs(rate - wanted) < std::abs(best - wanted)) best = rate;
  return best;
}

// The checks of one mixer's settings, whose keys depend on where they are written.
class Checks {
 public:
  Checks(const MixerChecks& at, const DistanceSettings& settings)
      : at_(at), d_(settings.distance), m_(settings.memory), block_(at.form.block) {}

  void run(const std::string& problem_of_windows) {
    if (const std::int64_t rows = m_.rows() + at_.form.segment;
        at_.check.none_in({"data.context"}) && rows > most_key_rows)
      at_.check.refuse(
          "data.context",
          "data.context is {}, which with what {} remembers makes {} rows, but {} takes at most {}; lower one of them",
          at_.form.segment, at_.memory_key, rows, at_.key, most_key_rows);
    if (!problem_of_windows.empty()) at_.check.refuse(of("window"), "{} {}", of("window"), problem_of_windows);
    if (const std::string problem = problem_of_layers(d_.dilation, block_.layers); !problem.empty())
      at_.check.refuse(of("dilation"), "{} {}", of("dilation"), problem);
    dilation();
    table();
    if (m_.length > 0) compressed();
    rotation();
    if (at_.check.none_in({"model.width", "model.key_ratio"}) &&
        std::max({block_.key_size(), block_.value_size(), at_.form.heads}) > most_head_elements)
      at_.check.refuse(at_.key,
                       "{} takes up to {} heads of up to {} elements, but this model has {} with keys of {} and values "
                       "of {}; change model.heads",
                       at_.key, most_head_elements, most_head_elements, at_.form.heads, block_.key_size(),
                       block_.value_size());
    if (at_.sequence_ranks > 1 && at_.check.none_in({"parallel.sequence_ranks"}))
      at_.check.refuse("parallel.sequence_ranks",
                       "parallel.sequence_ranks is {}, but attention with {} reads whole sequences; set it to 1",
                       at_.sequence_ranks, at_.key);
  }

 private:
  std::string of(const char* name) const { return at_.of(name); }
  std::string memory(const char* name) const { return at_.memory_key + "." + name; }

  void table() {
    if (d_.table == DistanceTable::learned && d_.distances == 0)
      at_.check.refuse(of("distances"), "{} is 0, but a learned table needs a number of rows; set the longest distance",
                       of("distances"));
    if (d_.table == DistanceTable::none && d_.distances > 0)
      at_.check.refuse(of("distances"), "{} is {}, but {} is none; remove one of them", of("distances"), d_.distances,
                       of("table"));
    if (d_.shared_table && d_.table != DistanceTable::learned)
      at_.check.refuse(of("shared_table"), "{} is true, but only a learned table can be shared; set {}: learned",
                       of("shared_table"), of("table"));
    if (d_.table != DistanceTable::sinusoid && d_.table_dropout > 0)
      at_.check.refuse(of("table_dropout"), "{} is {}, but only a sinusoid has what it drops; set {}: sinusoid",
                       of("table_dropout"), d_.table_dropout, of("table"));
    if (d_.table == DistanceTable::sinusoid && block_.width % 2 != 0 && at_.check.none_in({"model.width"}))
      at_.check.refuse("model.width", "model.width is {}, but sines and cosines need an even one; choose another",
                       block_.width);
  }

  // Keys that have no effect without a compressed memory, or with this compression.
  void unused() {
    const MemoryConfig usual;
    if (m_.compressed == 0) {
      for (const auto& [name, changed] :
           {std::pair{"rate", m_.rate != usual.rate}, std::pair{"compress", m_.compress != usual.compress},
            std::pair{"reconstruction", m_.reconstruction != usual.reconstruction}})
        if (changed)
          at_.check.refuse(memory(name),
                           "{} has no effect, because {} is 0; remove it, or set the number of rows of a compressed "
                           "memory",
                           memory(name), memory("compressed"));
    } else if (!m_.learns_to_compress() && m_.reconstruction != usual.reconstruction) {
      at_.check.refuse(memory("reconstruction"),
                       "{} is {}, but only convolution and dilated have weights that learn from this loss; remove it, "
                       "or change {}",
                       memory("reconstruction"), m_.reconstruction, memory("compress"));
    }
  }

  // Whole segments leave the memory, whole rows of the compressed memory come of them, and it holds those of one
  // segment.
  void compressed() {
    unused();
    if (m_.compressed == 0 || !at_.check.none_in({"data.context"})) return;
    constexpr std::int64_t papers_rate = 3;
    const std::int64_t context = at_.form.segment;
    if (m_.length % context != 0)
      at_.check.refuse(memory("length"),
                       "{0} is {1}, but before a compressed memory must be a multiple of data.context, {2}, because "
                       "whole segments leave it; set {0}: {3}",
                       memory("length"), m_.length, context, (m_.length + context - 1) / context * context);
    if (m_.rate == 0)
      at_.check.refuse(memory("rate"),
                       "{0} is 0, but a compressed memory needs the number of rows that become one; set {0}: {1}",
                       memory("rate"), fitting_rate(context, m_.compressed, papers_rate));
    else if (context % m_.rate != 0)
      at_.check.refuse(memory("rate"), "{0} is {1}, but must divide data.context, {2}; set {0}: {3}", memory("rate"),
                       m_.rate, context, fitting_rate(context, m_.compressed, m_.rate));
    else if (m_.compressed < context / m_.rate)
      at_.check.refuse(memory("compressed"),
                       "{} is {}, but must be at least data.context / {}, {}, the rows that a segment becomes",
                       memory("compressed"), m_.compressed, memory("rate"), context / m_.rate);
  }

  void dilation() {
    const std::string key = of("dilated_heads");
    if (d_.dilated_heads > at_.form.heads)
      at_.check.refuse(key, "{} is {}, but must be at most {}, {}", key, d_.dilated_heads,
                       at_.in_list() ? of("heads") : "model.heads", at_.form.heads);
    const bool dilated = std::any_of(d_.dilation.begin(), d_.dilation.end(), [](std::int64_t x) { return x > 1; });
    if (dilated && d_.dilated_heads == 0)
      at_.check.refuse(key, "{} is 0, so {} has no effect; set the number of heads that it applies to", key,
                       of("dilation"));
    if (!dilated && d_.dilated_heads > 0)
      at_.check.refuse(key, "{} is {}, but {} is 1 in every layer, so it has no effect; set a dilation, or remove it",
                       key, d_.dilated_heads, of("dilation"));
  }

  // Scores of rotated queries and keys depend on distances alone. Those of a rotated query and a row of T, or of u and
  // a rotated key, would depend on the place in [memory | segment] as well.
  void rotation() {
    if (block_.rotary_base == 0 || !at_.check.none_in({"model.rotary_base"})) return;
    const bool table = d_.table != DistanceTable::none;
    if (table || d_.biases != BiasSharing::none)
      at_.check.refuse("model.rotary_base",
                       "model.rotary_base is {}, but rotation cannot be combined with {}; set it to 0, or set {}: none "
                       "and {}: none",
                       block_.rotary_base, table ? "a table of distances" : of("biases"), of("table"), of("biases"));
  }

  const MixerChecks& at_;
  const DistanceConfig& d_;
  const MemoryConfig& m_;
  const BlockForm& block_;
};

}  // namespace

void visit_distance(SettingsVisitor& v, DistanceConfig& c) {
  v.choice(
      "table", c.table, Need::required,
      Choices<DistanceTable>{
          {"none", DistanceTable::none}, {"sinusoid", DistanceTable::sinusoid}, {"learned", DistanceTable::learned}});
  v.field("shared_table", c.shared_table, Need::optional);
  v.field("distances", c.distances, Need::optional, lengths);
  v.choice(
      "biases", c.biases, Need::optional,
      Choices<BiasSharing>{{"none", BiasSharing::none}, {"layer", BiasSharing::layer}, {"model", BiasSharing::model}});
  v.list("window", c.window, Need::optional);
  v.list("dilation", c.dilation, Need::optional);
  v.field("dilated_heads", c.dilated_heads, Need::optional, ranges::not_negative);
  v.field("self", c.self, Need::optional);
  v.field("dropout", c.dropout, Need::optional, ranges::fraction);
  v.field("table_dropout", c.table_dropout, Need::optional, ranges::fraction);
  v.section("span", Need::optional, c.span.given(), [&] { visit_span(v, c.span); });
}

void visit_memory(SettingsVisitor& v, MemoryConfig& c) {
  v.field("length", c.length, Need::required, ramps);
  v.choice("start", c.start, Need::optional,
           Choices<MemoryStart>{{"empty", MemoryStart::empty}, {"zeros", MemoryStart::zeros}});
  v.field("compressed", c.compressed, Need::optional, lengths);
  v.field("rate", c.rate, Need::optional, rates);
  v.choice("compress", c.compress, Need::optional, compressions());
  v.field("reconstruction", c.reconstruction, Need::optional, ranges::not_negative_real);
}

void DistanceSettings::visit(SettingsVisitor& v) {
  visit_distance(v, distance);
  v.section("memory", Need::optional, memory.length > 0, [&] { visit_memory(v, memory); });
}

void DistanceSettings::check(const MixerChecks& checks) const {
  if (!checks.check.none_in({checks.key.c_str(), checks.memory_key.c_str(), "model.heads", "model.layers"})) return;
  if (checks.form.block.direction == kernels::Direction::both)
    return checks.check.refuse(checks.key,
                               "{} has kind distance, which counts positions back, but this model reads in "
                               "both directions; set kind: attention or scan",
                               checks.key);
  Checks(checks, *this).run(problem_of_windows(distance.window, checks.form.block.layers));
}

void DistanceSettings::check_training(const MixerChecks& checks) const {
  for (const auto& [name, p] :
       {std::pair{"dropout", distance.dropout}, std::pair{"table_dropout", distance.table_dropout}}) {
    const std::string key = checks.of(name);
    if (checks.check.none_in({key.c_str()}) && static_cast<float>(p) == 1.0F)
      checks.check.refuse(key, "{} is {}, which is 1 in fp32; set {}: 0.25", key, p, key);
  }
}

std::unique_ptr<MixerFamily> DistanceSettings::make(const MixerForm& form, ParameterSet& parameters,
                                                    StateSet& states) const {
  return std::make_unique<DistanceFamily>(form, distance, memory, parameters, states);
}

std::string DistanceSettings::problem_of_documents() const {
  if (!remembers() || memory.start == MemoryStart::empty) return {};
  return "a memory starts as zeros, which precede a row but not a document within it (start: empty would do)";
}

std::string DistanceSettings::problem_of_windows(const std::vector<std::int64_t>& windows, std::int64_t layers) const {
  if (std::string problem = problem_of_layers(windows, layers); !problem.empty()) return problem;
  if (distance.self || std::find(windows.begin(), windows.end(), 1) == windows.end()) return "";
  return "has the value 1, the position itself, which model.distance.self: false hides; set 2 or more";
}

}  // namespace longstride
