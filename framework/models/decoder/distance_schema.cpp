#include "framework/models/decoder/distance_schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string>

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

void check_list(SettingsChecker& check, const char* key, const std::vector<std::int64_t>& values, std::int64_t layers) {
  if (const std::string problem = problem_of_layers(values, layers); !problem.empty())
    check.refuse(key, "{} {}", key, problem);
}

void check_table(SettingsChecker& check, const DecoderConfig& m) {
  const DistanceConfig& d = m.distance;
  if (d.table == DistanceTable::learned && d.distances == 0)
    check.refuse("model.distance.distances",
                 "model.distance.distances is 0, but a learned table needs a number of rows; set the longest distance");
  if (d.table == DistanceTable::none && d.distances > 0)
    check.refuse("model.distance.distances",
                 "model.distance.distances is {}, but model.distance.table is none; remove one of them", d.distances);
  if (d.shared_table && d.table != DistanceTable::learned)
    check.refuse("model.distance.shared_table",
                 "model.distance.shared_table is true, but only a learned table can be shared; set "
                 "model.distance.table: learned");
  if (d.table != DistanceTable::sinusoid && d.table_dropout > 0)
    check.refuse("model.distance.table_dropout",
                 "model.distance.table_dropout is {}, but only a sinusoid has what it drops; set model.distance.table: "
                 "sinusoid",
                 d.table_dropout);
  if (d.table == DistanceTable::sinusoid && m.width % 2 != 0 && check.none_in({"model.width"}))
    check.refuse("model.width", "model.width is {}, but sines and cosines need an even one; choose another", m.width);
}

const Choices<Compression>& compressions() {
  static const Choices<Compression> names = {{"mean", Compression::mean},
                                             {"max", Compression::max},
                                             {"convolution", Compression::convolution},
                                             {"dilated", Compression::dilated},
                                             {"most_used", Compression::most_used}};
  return names;
}

// Keys that have no effect without a compressed memory, or with this compression.
void check_unused(SettingsChecker& check, const MemoryConfig& m) {
  const MemoryConfig usual;
  if (m.compressed == 0) {
    for (const auto& [key, changed] :
         {std::pair{"model.memory.rate", m.rate != usual.rate},
          std::pair{"model.memory.compress", m.compress != usual.compress},
          std::pair{"model.memory.reconstruction", m.reconstruction != usual.reconstruction}})
      if (changed)
        check.refuse(
            key,
            "{} has no effect, because model.memory.compressed is 0; remove it, or set the number of rows of a "
            "compressed memory",
            key);
  } else if (!m.learns_to_compress() && m.reconstruction != usual.reconstruction) {
    check.refuse(
        "model.memory.reconstruction",
        "model.memory.reconstruction is {}, but only convolution and dilated have weights that learn from this "
        "loss; remove it, or change model.memory.compress",
        m.reconstruction);
  }
}

// The divisor of `context` nearest to `wanted` with which a compressed memory of `rows` holds those of a segment.
std::int64_t fitting_rate(std::int64_t context, std::int64_t rows, std::int64_t wanted) {
  std::int64_t best = context;
  for (std::int64_t rate = 1; rate < context; ++rate)
    if (context % rate == 0 && context / rate <= rows && std::abs(rate - wanted) < std::abs(best - wanted)) best = rate;
  return best;
}

// Whole segments leave the memory, whole rows of the compressed memory come of them, and it holds those of one segment.
void check_compressed(SettingsChecker& check, const MemoryConfig& m, std::int64_t context) {
  check_unused(check, m);
  if (m.compressed == 0 || !check.none_in({"data.context"})) return;
  constexpr std::int64_t papers_rate = 3;
  if (m.length % context != 0)
    check.refuse("model.memory.length",
                 "model.memory.length is {}, but before a compressed memory must be a multiple of data.context, {}, "
                 "because whole segments leave it; set model.memory.length: {}",
                 m.length, context, (m.length + context - 1) / context * context);
  if (m.rate == 0)
    check.refuse("model.memory.rate",
                 "model.memory.rate is 0, but a compressed memory needs the number of rows that become one; set "
                 "model.memory.rate: {}",
                 fitting_rate(context, m.compressed, papers_rate));
  else if (context % m.rate != 0)
    check.refuse("model.memory.rate",
                 "model.memory.rate is {}, but must divide data.context, {}; set model.memory.rate: {}", m.rate,
                 context, fitting_rate(context, m.compressed, m.rate));
  else if (m.compressed < context / m.rate)
    check.refuse("model.memory.compressed",
                 "model.memory.compressed is {}, but must be at least data.context / model.memory.rate, {}, the rows "
                 "that a segment becomes",
                 m.compressed, context / m.rate);
}

void check_window(SettingsChecker& check, const DecoderConfig& m) {
  if (const std::string problem = problem_of_windows(m.distance.window, m); !problem.empty())
    check.refuse("model.distance.window", "model.distance.window {}", problem);
}

void check_dilation(SettingsChecker& check, const DecoderConfig& m) {
  const DistanceConfig& d = m.distance;
  if (d.dilated_heads > m.heads)
    check.refuse("model.distance.dilated_heads",
                 "model.distance.dilated_heads is {}, but must be at most model.heads, {}", d.dilated_heads, m.heads);
  const bool dilated = std::any_of(d.dilation.begin(), d.dilation.end(), [](std::int64_t x) { return x > 1; });
  if (dilated && d.dilated_heads == 0)
    check.refuse("model.distance.dilated_heads",
                 "model.distance.dilated_heads is 0, so model.distance.dilation has no effect; set the number of heads "
                 "that it applies to");
  if (!dilated && d.dilated_heads > 0)
    check.refuse("model.distance.dilated_heads",
                 "model.distance.dilated_heads is {}, but model.distance.dilation is 1 in every layer, so it has no "
                 "effect; set a dilation, or remove it",
                 d.dilated_heads);
}

// Scores of rotated queries and keys depend on distances alone. Those of a rotated query and a row of T, or of u and a
// rotated key, would depend on the place in [memory | segment] as well.
void check_rotation(SettingsChecker& check, const DecoderConfig& m) {
  const DistanceConfig& d = m.distance;
  if (m.rotary_base == 0 || !check.none_in({"model.rotary_base"})) return;
  const bool table = d.table != DistanceTable::none;
  if (table || d.biases != BiasSharing::none)
    check.refuse("model.rotary_base",
                 "model.rotary_base is {}, but rotation cannot be combined with {}; set it to 0, or set "
                 "model.distance.table: none and model.distance.biases: none",
                 m.rotary_base, table ? "a table of distances" : "model.distance.biases");
}

}  // namespace

std::string problem_of_layers(const std::vector<std::int64_t>& values, std::int64_t layers) {
  if (values.size() > 1 && std::ssize(values) != layers)
    return fmt::format("has {} values, but must have one for all layers or one for each of model.layers, {}",
                       values.size(), layers);
  const auto most = std::max_element(values.begin(), values.end());
  if (most != values.end() && *most > longest)
    return fmt::format("has the value {}, but must have positive whole numbers up to {}", *most, longest);
  return "";
}

std::string problem_of_windows(const std::vector<std::int64_t>& windows, const DecoderConfig& m) {
  if (const std::string problem = problem_of_layers(windows, m.layers); !problem.empty()) return problem;
  if (m.distance.self || std::find(windows.begin(), windows.end(), 1) == windows.end()) return "";
  return "has the value 1, the position itself, which model.distance.self: false hides; set 2 or more";
}

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

void check_distance(SettingsChecker& check, const DecoderConfig& m, std::int64_t sequence_ranks) {
  if (!m.distance.given) {
    if (m.memory.length > 0 && check.none_in({"model.memory"}))
      check.refuse("model.memory",
                   "model.memory is read by attention with model.distance, which this recipe lacks; remove it, or set "
                   "model.distance in place of model.attention");
    return;
  }
  if (!check.none_in({"model.distance", "model.memory", "model.heads", "model.layers"})) return;
  if (const std::int64_t rows = m.memory.rows() + m.context; check.none_in({"data.context"}) && rows > most_key_rows)
    check.refuse(
        "data.context",
        "data.context is {}, which with what model.memory remembers makes {} rows, but model.distance takes at "
        "most {}; lower one of them",
        m.context, rows, most_key_rows);
  check_window(check, m);
  check_list(check, "model.distance.dilation", m.distance.dilation, m.layers);
  check_dilation(check, m);
  check_table(check, m);
  if (m.memory.length > 0) check_compressed(check, m.memory, m.context);
  check_rotation(check, m);
  if (m.positions == Positions::attention)
    check.refuse(
        "model.positions",
        "model.positions is attention, whose tables follow the stride of a pattern, which model.distance lacks; "
        "set model.positions: none");
  if (check.none_in({"model.width", "model.key_ratio"}) &&
      std::max({m.key_size(), m.value_size(), m.heads}) > most_head_elements)
    check.refuse("model.distance",
                 "model.distance takes up to {} heads of up to {} elements, but this model has {} with keys of {} and "
                 "values of {}; change model.heads",
                 most_head_elements, most_head_elements, m.heads, m.key_size(), m.value_size());
  if (sequence_ranks > 1 && check.none_in({"parallel.sequence_ranks"}))
    check.refuse("parallel.sequence_ranks",
                 "parallel.sequence_ranks is {}, but attention with model.distance reads whole sequences; set it to 1",
                 sequence_ranks);
}

}  // namespace longstride
