// The recipe keys of attention with a pattern, and what they must agree with.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "framework/mixers/attention/config.h"
#include "framework/mixers/attention/family.h"
#include "kernels/attention/pattern/random_blocks.h"

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
  if (!any_part(c, kernels::reads_random)) c.random = unset.random, c.draw = unset.draw, c.seed = unset.seed;
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
              {"random", c.random > 0, kernels::reads_random},
              {"draw", c.draw != kernels::BlockDraw::balanced, kernels::reads_random},
              {"seed", c.seed > 0, kernels::reads_random},
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

constexpr Range farthest_label{0, 1024, false, false, "0 or a positive whole number of positions"};
constexpr Range number_of_blocks{0, 4096, false, false, "0 or a positive whole number"};

// A map from shifts, of which there are as many as blocks, to the number of heads that have them.
void visit_shifts(SettingsVisitor& v, kernels::PatternConfig& c) {
  std::vector<std::int64_t> heads = c.shifts;
  const auto most = static_cast<std::int64_t>(number_of_blocks.most);
  const bool sound = c.blocks > 0 && c.blocks <= most;
  heads.resize(static_cast<std::size_t>(sound ? c.blocks : v.reads() ? most : 0));  // blocks alone are the mistake
  v.section("shifts", Need::optional, !c.shifts.empty(), [&] {
    for (std::size_t shift = 0; shift < heads.size(); ++shift)
      v.field(std::to_string(shift), heads[shift], Need::optional, ranges::not_negative);
    if (v.reads()) c.shifts = heads;
  });
}

// Vectors on keys, for which there is neither a place in the caches of generation nor one that turns with the keys.
void check_labels(const MixerChecks& checks, std::int64_t labels) {
  const std::string key = checks.of("labels");
  if (labels == 0 || !checks.check.none_in({key.c_str()})) return;
  const BlockForm& block = checks.form.block;
  if (block.direction == kernels::Direction::past)
    checks.check.refuse(key, "{} is {}, but only models that read in both directions have labels; use model.distance",
                        key, labels);
  else if (block.rotary_base > 0)
    checks.check.refuse(key,
                        "{} is {}, but model.rotary_base is {}, with whose turns vectors of distances do not turn; "
                        "remove one",
                        key, labels, block.rotary_base);
  else if (checks.sequence_ranks > 1)
    checks.check.refuse(key, "{} is {}, but parallel.sequence_ranks is above 1, which divide the heads of labels", key,
                        labels);
}

// False if keys of global rows exclude one another, which is reported once.
bool fits_global(const MixerChecks& checks, const GlobalRows& global) {
  if (global.own && checks.form.block.transform().any()) {
    checks.check.refuse(
        "model.global.projections",
        "model.global.projections is own, but model rotates or normalises queries and keys, which those of "
        "global rows cannot have yet; set it to shared");
    return false;
  }
  if (checks.sequence_ranks > 1) {
    checks.check.refuse("model.global",
                        "model.global has rows that one rank computes, but parallel.sequence_ranks is above 1");
    return false;
  }
  return true;
}

// Rows of groups begin alike, so that something else must tell them apart.
bool check_added(const MixerChecks& checks, const GlobalRows& global, std::int64_t labels) {
  if (!global.of_groups || global.own_group || labels > 0) return fits_global(checks, global);
  checks.check.refuse("model.global.sees",
                      "model.global.sees is all, but then rows of groups would all read the same; set it to own_group, "
                      "or {} to the farthest distance that is told apart",
                      checks.of("labels"));
  return false;
}

// False if the mixer's rows cannot have global ones.
bool check_global(const MixerChecks& checks, const kernels::PatternConfig& c, std::int64_t labels) {
  const GlobalRows& global = checks.form.block.global;
  if (!global.given()) return true;
  const auto refuse = [&](const char* key, const std::string& sentence) {
    checks.check.refuse(key, "{}", sentence);
    return false;
  };
  if (global.added > 0) return check_added(checks, global, labels);
  if (any_part(c, kernels::reads_random))
    return !global.own ||
           refuse("model.global.projections",
                  "model.global.projections is own, but global blocks of random_blocks share those of all "
                  "rows; set it to shared");
  const auto is_window = [](kernels::PartKind kind) {
    return kind == kernels::PartKind::local || kind == kernels::PartKind::fixed_block ||
           kind == kernels::PartKind::block_window;
  };
  if (c.parts.size() != 1 || !is_window(c.parts.front()))
    return refuse(
        "model.global",
        fmt::format("model.global needs a window whose rows see the global ones as well, but {} is neither one "
                    "of local, fixed_block and block_window nor has random_blocks",
                    checks.of("parts")));
  if (global.last > 0)
    return refuse("model.global.last", fmt::format("model.global.last is {}, but only blocks can be global at the end, "
                                                   "with random_blocks; remove it",
                                                   global.last));
  return fits_global(checks, global);
}

// More blocks than a row has, or than are left to draw from.
void check_drawn(const MixerChecks& checks, const kernels::PatternConfig& c) {
  if (!any_part(c, kernels::reads_random) || c.block < 1) return;
  const std::int64_t blocks = kernels::blocks_in(checks.form.segment, c.block),
                     most = kernels::most_random_blocks(c, blocks);
  if (c.global_first + c.global_last > blocks)
    checks.check.refuse("model.global", "model.global has {} blocks of {} positions, but data.context, {}, has {}",
                        c.global_first + c.global_last, c.block, checks.form.segment, blocks);
  else if (const std::string key = checks.of("random"); c.random > most && checks.check.none_in({key.c_str()}))
    checks.check.refuse(key,
                        "{} is {}, but of the {} blocks of {} positions only {} are left beside the window and "
                        "global ones; lower it, or {}",
                        key, c.random, blocks, c.block, most, checks.of("block"));
}

void check_key_heads(const MixerChecks& checks, std::int64_t key_heads) {
  if (key_heads == 0) return;
  const std::string key = checks.of("key_heads");
  if (checks.form.heads % key_heads != 0)
    checks.check.refuse(key, "{} is {}, but must divide the number of heads, {}; 0 gives each its own", key, key_heads,
                        checks.form.heads);
  else if (checks.check.none_in({"parallel.sequence_ranks"}) && key_heads % checks.sequence_ranks != 0)
    checks.check.refuse("parallel.sequence_ranks", "parallel.sequence_ranks is {}, but must divide {}, {}",
                        checks.sequence_ranks, key, key_heads);
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
                                          {"random_blocks", PartKind::random_blocks},
                                          {"shifted_block", PartKind::shifted_block}};
  return names;
}

kernels::PatternConfig with_global(kernels::PatternConfig pattern, const GlobalRows& global) {
  if (global.first == 0 && global.last == 0) return pattern;
  if (any_part(pattern, kernels::reads_random)) {
    pattern.global_first = global.first, pattern.global_last = global.last;
    return pattern;
  }
  pattern.parts.push_back(kernels::PartKind::first);
  pattern.integration = kernels::Integration::merged;
  pattern.first = global.first;
  return pattern;
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
  v.field("random", c.random, Need::optional, ranges::not_negative);
  using kernels::BlockDraw;
  v.choice("draw", c.draw, Need::optional,
           Choices<BlockDraw>{{"balanced", BlockDraw::balanced}, {"published", BlockDraw::published}});
  v.field("seed", c.seed, Need::optional, ranges::not_negative);
  using kernels::Direction;
  v.choice("direction", c.direction, Need::optional,
           Choices<Direction>{{"past", Direction::past}, {"both", Direction::both}});
  v.choice("sink", of_heads.sink, Need::optional, Choices<bool>{{"none", false}, {"learned", true}});
  v.field("key_heads", of_heads.key_heads, Need::optional, ranges::not_negative);
  v.field("labels", of_heads.labels, Need::optional, farthest_label);
}

// Sentences of the pattern begin with "attention." and a key.
void AttentionConfig::check(const MixerChecks& checks) const {
  if (!checks.check.none_in({checks.key.c_str(), "model.heads", "model.layers"})) return;
  check_labels(checks, of_heads.labels);
  if (!check_global(checks, pattern, of_heads.labels)) return;
  std::string problem =
      kernels::problem_of(with_global(pattern, checks.form.block.global), checks.form.heads, checks.form.block.layers);
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
  check_key_heads(checks, of_heads.key_heads);
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
  const kernels::PatternConfig whole = with_global(pattern, checks.form.block.global);
  check_drawn(checks, whole);
  if (whole.first > context && pattern.first == 0)
    checks.check.refuse("model.global.first", "model.global.first is {}, but must be at most data.context, {}",
                        whole.first, context);
  if (checks.check.none_in({stride_key.c_str()}) && pattern.stride > context) {
    const std::int64_t usual = usual_stride(pattern, context);
    checks.check.refuse(stride_key, "{} is {}, but must be at most data.context, {}; {}", stride_key, pattern.stride,
                        context,
                        usual > 0 ? fmt::format("set {}: {}, about the square root of the context", stride_key, usual)
                                  : fmt::format("lower it and {} to at most {}", checks.of("summary"), context));
  }
  if (checks.check.none_in({window_key.c_str()}) && pattern.window > context)
    checks.check.refuse(window_key, "{0} is {1}, but must be at most data.context, {2}; {3}", window_key,
                        pattern.window, context,
                        pattern.stride > 0 ? fmt::format("set {}: 0, which is stride + 1", window_key) : "lower it");
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
  return std::make_unique<AttentionFamily>(form, with_global(pattern, form.block.global), of_heads);
}

}  // namespace longstride
