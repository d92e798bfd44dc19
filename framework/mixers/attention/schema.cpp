// The recipe keys of attention with a pattern, and what they must agree with.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "framework/mixers/attention/config.h"
#include "framework/mixers/attention/family.h"

namespace longstride {
namespace {

// The paper's names of patterns, and those of other programs.
const OtherWords pattern_words = {
    {"strided", "[local, column]"},
    {"fixed", "[fixed_block, fixed_summary]"},
    {"full", "[dense]"},
    {"causal", "[dense]"},
    {"window", "[local]"},
    {"sliding_window", "[local]"},
    {"block", "[fixed_block]"},
    {"summary", "[fixed_summary]"},
};

// Without what a base recipe sets for parts that this one replaces by others.
kernels::PatternConfig only_what_parts_read(kernels::PatternConfig c) {
  const kernels::PatternConfig unset;
  if (!any_part(c, kernels::reads_window)) c.window = unset.window;
  if (!any_part(c, kernels::reads_first)) c.first = unset.first;
  if (!any_part(c, kernels::reads_dilation)) c.dilation = unset.dilation;
  if (!any_part(c, kernels::reads_block)) c.block = unset.block;
  if (!any_part(c, kernels::reads_shifts)) c.blocks = unset.blocks, c.shifts = unset.shifts;
  if (any_part(c, kernels::reads_summary)) return c;
  c.summary = unset.summary, c.distinct_heads = unset.distinct_heads, c.summary_inclusive = unset.summary_inclusive;
  return c;
}

// A recipe may inherit what its own parts do not read, and so may a --set of other parts.
void check_unread(const MixerChecks& checks, const kernels::PatternConfig& c) {
  if (!checks.check.none_in({checks.key.c_str()})) return;
  const struct {
    const char* name;
    bool set;
    ReadsKey reads;
  } keys[] = {{"window", c.window > 0, kernels::reads_window},
              {"first", c.first > 0, kernels::reads_first},
              {"dilation", !c.dilation.empty(), kernels::reads_dilation},
              {"block", c.block > 0, kernels::reads_block},
              {"blocks", c.blocks > 0, kernels::reads_shifts},
              {"summary", !c.summary.empty(), kernels::reads_summary},
              {"distinct_heads", c.distinct_heads, kernels::reads_summary},
              {"summary_inclusive", c.summary_inclusive, kernels::reads_summary}};
  const int least = std::max(1, checks.check.level_of(checks.of("parts")));
  for (const auto& [name, set, reads] : keys) {
    const std::string key = checks.of(name);
    if (!set || any_part(c, reads) || (!checks.in_list() && checks.check.level_of(key) < least)) continue;
    std::vector<std::string> readers;
    for (const auto& [word, part] : part_names())
      if (reads(part)) readers.push_back(word);
    checks.check.refuse(key, "{} has no effect without a part that reads it ({}); remove it", key,
                        fmt::join(readers, ", "));
  }
}

constexpr Range number_of_blocks{0, 4096, false, false, "0 or a positive whole number"};

// A map from shifts, of which there are as many as blocks, to the number of heads that have them.
void visit_shifts(SettingsVisitor& v, kernels::PatternConfig& c) {
  std::vector<std::int64_t> heads = c.shifts;
  heads.resize(static_cast<std::size_t>(
      std::clamp<std::int64_t>(c.blocks, 0, static_cast<std::int64_t>(number_of_blocks.most))));
  v.section("shifts", Need::optional, !c.shifts.empty(), [&] {
    for (std::size_t shift = 0; shift < heads.size(); ++shift)
      v.field(std::to_string(shift), heads[shift], Need::optional, ranges::not_negative);
    if (v.reads()) c.shifts = heads;
  });
}

// The power of two nearest to the square root, as section 4.2 of the paper recommends, or a larger one if a summary
// needs it; 0 if it would exceed the context.
std::int64_t usual_stride(const kernels::PatternConfig& c, std::int64_t context) {
  std::int64_t stride = std::int64_t{1} << std::llround(0.5 * std::log2(static_cast<double>(context)));
  if (any_part(c, kernels::reads_summary))
    for (const std::int64_t width : c.summary)
      while (stride < width) stride *= 2;
  return stride <= context ? stride : 0;
}

}  // namespace

bool any_part(const kernels::PatternConfig& c, ReadsKey reads) {
  return std::any_of(c.parts.begin(), c.parts.end(), reads);
}

const Choices<kernels::PartKind>& part_names() {
  using kernels::PartKind;
  static const Choices<PartKind> names = {{"dense", PartKind::dense},
                                          {"local", PartKind::local},
                                          {"column", PartKind::column},
                                          {"fixed_block", PartKind::fixed_block},
                                          {"fixed_summary", PartKind::fixed_summary},
                                          {"first", PartKind::first},
                                          {"block_window", PartKind::block_window},
                                          {"dilated", PartKind::dilated},
                                          {"shifted_block", PartKind::shifted_block}};
  return names;
}

void AttentionConfig::visit(SettingsVisitor& v) {
  kernels::PatternConfig resolved = only_what_parts_read(pattern);
  kernels::PatternConfig& c = v.reads() ? pattern : resolved;
  using kernels::Integration;
  v.choice("integration", c.integration, Need::optional,
           Choices<Integration>{{"interleaved", Integration::interleaved},
                                {"merged", Integration::merged},
                                {"multihead", Integration::multihead}});
  v.list("parts", c.parts, Need::required, part_names(), pattern_words);
  v.field("stride", c.stride, Need::optional, ranges::not_negative);
  v.field("window", c.window, Need::optional, ranges::not_negative);
  v.list("summary", c.summary, Need::optional);
  v.field("distinct_heads", c.distinct_heads, Need::optional);
  v.field("summary_inclusive", c.summary_inclusive, Need::optional);
  v.field("first", c.first, Need::optional, ranges::not_negative);
  v.list("dilation", c.dilation, Need::optional);
  v.field("block", c.block, Need::optional, ranges::not_negative);
  v.field("blocks", c.blocks, Need::optional, number_of_blocks);
  visit_shifts(v, c);
  using kernels::Direction;
  v.choice("direction", c.direction, Need::optional,
           Choices<Direction>{{"past", Direction::past}, {"both", Direction::both}});
  v.choice("sink", sink, Need::optional, Choices<bool>{{"none", false}, {"learned", true}});
}

// Sentences of the pattern begin with "attention." and a key.
void AttentionConfig::check(const MixerChecks& checks) const {
  if (!checks.check.none_in({checks.key.c_str(), "model.heads", "model.layers"})) return;
  std::string problem = kernels::problem_of(pattern, checks.form.heads, checks.form.block.layers);
  if (!problem.empty()) {
    const std::string section = "attention.";
    for (std::size_t at = 0; (at = problem.find(section, at)) != std::string::npos; at += checks.key.size() + 1)
      problem.replace(at, section.size(), checks.key + ".");
    checks.check.refuse(problem.substr(0, problem.find(' ')), "{}", problem);
  }
  if (pattern.direction != checks.form.block.direction)
    checks.check.refuse(checks.of("direction"), "{}",
                        pattern.direction == kernels::Direction::both
                            ? fmt::format("{} is both, but a decoder predicts each position from those before it; set "
                                          "it to past",
                                          checks.of("direction"))
                            : fmt::format("{} is past, but this model reads every position in both directions; remove "
                                          "it",
                                          checks.of("direction")));
  if (checks.form.heads < checks.form.block.heads && checks.check.none_in({"parallel.sequence_ranks"}) &&
      checks.form.heads % checks.sequence_ranks != 0)
    checks.check.refuse("parallel.sequence_ranks", "parallel.sequence_ranks is {}, but must divide {}, {}",
                        checks.sequence_ranks, checks.of("heads"), checks.form.heads);
}

void AttentionConfig::check_training(const MixerChecks& checks) const {
  check_unread(checks, pattern);
  const std::string stride_key = checks.of("stride"), window_key = checks.of("window");
  const std::int64_t context = checks.form.segment;
  if (!checks.check.none_in({"data.context"})) return;
  if (checks.check.none_in({stride_key.c_str()}) && pattern.stride > context) {
    const std::int64_t usual = usual_stride(pattern, context);
    checks.check.refuse(stride_key, "{} is {}, but must be at most data.context, {}; {}", stride_key, pattern.stride,
                        context,
                        usual > 0 ? fmt::format("set {}: {}, about the square root of the context", stride_key, usual)
                                  : fmt::format("lower it and {} to at most {}", checks.of("summary"), context));
  }
  if (checks.check.none_in({window_key.c_str()}) && pattern.window > context)
    checks.check.refuse(window_key,
                        "{0} is {1}, but must be at most data.context, {2}; set {0}: 0, which is stride + 1",
                        window_key, pattern.window, context);
  const struct {
    const char* name;
    std::int64_t value;
  } lengths[] = {{"first", pattern.first}, {"block", pattern.block}, {"blocks", pattern.blocks}};
  for (const auto& [name, value] : lengths)
    if (const std::string key = checks.of(name); checks.check.none_in({key.c_str()}) && value > context)
      checks.check.refuse(key, "{} is {}, but must be at most data.context, {}", key, value, context);
}

std::unique_ptr<MixerFamily> AttentionConfig::make(const MixerForm& form, ParameterSet& /*parameters*/,
                                                   StateSet& /*states*/) const {
  return std::make_unique<AttentionFamily>(form, pattern, sink);
}

}  // namespace longstride
