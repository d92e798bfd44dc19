// longstride show pattern RECIPE: what attends to what, as text or as a picture.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "framework/core/errors.h"
#include "framework/models/mixes_positions.h"
#include "framework/train/checkpoint/checkpoint.h"
#include "framework/train/step/step_work.h"
#include "launch/commands/commands.h"
#include "launch/commands/memory_facts.h"
#include "launch/commands/pattern_view.h"
#include "launch/console/arguments.h"
#include "launch/console/json_output.h"
#include "launch/console/output.h"
#include "launch/recipe/recipe.h"
#include "launch/report/spans.h"

namespace longstride {
namespace {

struct ShowOptions {
  std::string recipe, output, spans;
  std::vector<std::string> overrides;
  std::int64_t layer = 0, head = 0, positions = 0, scale = 0, query = -1;
  bool replace = false, json = false;
};

constexpr std::int64_t widest_text = 96;
constexpr std::int64_t widest_picture = 4096;
constexpr std::int64_t most_pairs = 1 << 30;  // beyond, a part of the positions is shown: seconds

// A recipe as it is, or what a run has trained.
struct Shown {
  Recipe recipe;
  std::unique_ptr<Model> model;
  std::string run;  // empty for a recipe
  std::int64_t step = 0;
};

Shown read_shown(const ShowOptions& o) {
  Shown out;
  if (std::filesystem::is_directory(o.recipe)) {
    if (!o.overrides.empty())
      throw user_error("--set changes a recipe, but {} is a run; give its recipe, {}/recipe.yaml", o.recipe, o.recipe);
    const CheckpointState state = read_state_of_weights(o.recipe);
    out.run = o.recipe;
    out.step = state.step;
    out.recipe = recipe_of_run(state.recipe, o.recipe + "/recipe.yaml");
  } else {
    out.recipe = read_recipe(o.recipe, o.overrides);
  }
  out.model = out.recipe.model->make_model();
  if (!out.run.empty()) enter_stage(*out.model, stage_at(out.recipe.train, out.step - 1));
  return out;
}

// The span of the head that is shown, in positions.
struct ShownSpan {
  double positions = 0, ramp = 0;
  std::string of;  // "learned", "longest" or "initial"; empty: the heads learn no spans
};

ShownSpan span_of(const ShowOptions& o, const Shown& shown, const Mixer& mixer) {
  const HeadSpans spans = mixer.spans();
  if (!spans.learned()) {
    if (!o.spans.empty())
      throw user_error(
          "--spans is {}, but the heads of {} learn no spans in layer {} (model.distance.span); leave it out", o.spans,
          o.recipe, o.layer);
    return {};
  }
  const std::int64_t own = o.head - spans.first_head;  // among the heads that learn
  const std::string of = !o.spans.empty() ? o.spans : shown.run.empty() ? "longest" : "learned";
  if (of == "initial") return {spans.initial, spans.ramp, of};
  if (of == "longest") return {spans.longest, spans.ramp, of};
  if (shown.run.empty())
    throw user_error("--spans is learned, but {} is a recipe; give the directory of a run, or --spans longest",
                     o.recipe);
  const RunSpans learned = read_spans(shown.run, shown.step, *shown.model);
  if (own < 0 || own >= std::ssize(learned.of_layer(o.layer))) return {};
  return {learned.of_layer(o.layer).at(static_cast<std::size_t>(own)), spans.ramp, of};
}

// How many queries, and whether the keys are limited to as many of every part. A pattern repeats, so its beginning
// shows it; other attention is shown whole.
PatternView view_of(const ShowOptions& o, const Mixer& mixer, double span) {
  const bool picture = !o.output.empty(), text = !picture && !o.json;
  const KeyRows keys = mixer.key_rows();
  const std::int64_t segment = keys.segment, stride = mixer.stride(),
                     parts = (keys.compressed > 0) + (keys.memory > 0) + (keys.added > 0) + 1,
                     most = (text ? widest_text : widest_picture) / parts;
  if (o.positions > most)
    throw user_error("--positions is {}, but at most {} can be shown{}", o.positions, most,
                     text ? " as text; give --output x.png" : "");
  const bool whole = o.positions == 0 && stride == 0 && segment * keys.all() <= most_pairs;
  const std::int64_t usual = stride == 0 ? most : picture ? std::max<std::int64_t>(64, 4 * stride) : std::int64_t{64};
  const std::int64_t queries = whole ? segment : std::min({o.positions > 0 ? o.positions : usual, most, segment});
  if (o.query >= queries)
    throw user_error("--query is {}, but the picture shows positions 0 to {}", o.query, queries - 1);
  PatternView view(keys, mixer.pair_weight(o.head, span), queries, !whole);
  if (whole && !o.json) view.fit(text ? widest_text : widest_picture / std::max<std::int64_t>(1, o.scale));
  return view;
}

std::string span_text(const ShownSpan& span) {
  return span.of.empty() ? ""
                         : fmt::format(", with its {} span of {:.0f}, ramp {:.0f}", span.of, span.positions, span.ramp);
}

// "the first 40 of 64 positions", or "queries 0 to 511; keys: memory (512), segment (512)".
std::string what_is_shown(const Mixer& mixer, const PatternView& view) {
  if (mixer.stride() > 0) return fmt::format("the first {} of {} positions", view.queries(), mixer.key_rows().segment);
  std::string keys;
  for (const ShownPart& part : view.parts()) {
    const std::int64_t rows = part.end - part.begin;
    const std::string count = rows == part.rows ? fmt::format("{}", rows) : fmt::format("{} of {}", rows, part.rows);
    keys += fmt::format("{}{} ({})", keys.empty() ? "" : " | ", part.name, count);
  }
  const std::string cells = view.side() == 1 ? "" : fmt::format(", {0} x {0} pairs per cell", view.side());
  return fmt::format("queries 0 to {} against {}{}", view.queries() - 1, keys, cells);
}

void print_text(const ShowOptions& o, const std::string& name, const std::string& what, const ShownSpan& span,
                const PatternView& view) {
  const bool single = view.side() == 1;
  std::string some;
  if (!single) some = "+ some of the pairs, ";
  if (!span.of.empty()) some = single ? "+ on the ramp, " : "+ some of the pairs or on the ramp, ";
  fmt::print("{}: layer {}, head {}, {}\n", name, o.layer, o.head, what);
  fmt::print("one row per {}: # attended to, {}{}. not attended to{}{}\n",
             single ? "query" : fmt::format("{} queries", view.side()), single ? "@ the query itself, " : "", some,
             view.ahead() ? "" : ", blank: the future", view.parts().size() > 1 ? ", | between the parts" : "");
  fmt::print("{}", pattern_text(view));
}

nlohmann::ordered_json to_json(const ShowOptions& o, const std::string& name, const KeyRows& rows,
                               const ShownSpan& span, const PatternView& view) {
  nlohmann::ordered_json keys = nlohmann::ordered_json::array();
  for (std::int64_t i = 0; i < view.queries(); ++i) {
    nlohmann::ordered_json intervals = nlohmann::ordered_json::array();
    for (const auto& [begin, end] : view.intervals(i)) intervals.push_back({begin, end});
    keys.push_back(intervals);
  }
  nlohmann::ordered_json out = {
      {"recipe", name}, {"layer", o.layer}, {"head", o.head}, {"context", rows.segment}, {"positions", view.queries()},
      {"keys", keys}};
  if (rows.before() > 0) out["key_rows"] = as_json(rows);
  if (!span.of.empty()) out["span"] = {{"of", span.of}, {"positions", span.positions}, {"ramp", span.ramp}};
  return out;
}

void run_show(const ShowOptions& o, Session& session) {
  const Shown shown = read_shown(o);
  if (session.comm->rank() != 0) return;
  const auto& model = required<MixesPositions>(*shown.model, "show what attends to what");
  if (o.layer >= model.layers())
    throw user_error("--layer is {}, but the recipe has layers 0 to {}", o.layer, model.layers() - 1);
  const Mixer& mixer = model.mixer(o.layer);
  if (o.head >= mixer.heads())
    throw user_error("--head is {}, but the recipe has heads 0 to {}", o.head, mixer.heads() - 1);
  const ShownSpan span = span_of(o, shown, mixer);
  const PatternView view = view_of(o, mixer, span.positions);
  const std::string what = what_is_shown(mixer, view) + span_text(span);
  if (o.output.empty()) {
    if (o.json) return print_json(to_json(o, shown.recipe.name, mixer.key_rows(), span, view));
    return print_text(o, shown.recipe.name, what, span, view);
  }
  const std::int64_t scale = o.scale > 0 ? o.scale : std::max<std::int64_t>(1, 768 / view.columns());
  if (view.columns() * scale > widest_picture)
    throw user_error("--scale {} makes a picture of {} pixels per side, more than {}; lower it or --positions", scale,
                     view.columns() * scale, widest_picture);
  check_picture_file(o.output, o.replace, {o.recipe});
  check_json_output(o.json, o.output);
  write_pattern(view, scale, o.query, o.output);
  if (o.json)
    return print_json({{"output", o.output}, {"layer", o.layer}, {"head", o.head}, {"positions", view.queries()}});
  print_written(o.output, fmt::format("layer {}, head {}, {}", o.layer, o.head, what));
}

}  // namespace

void add_show(CLI::App& app, Session& session) {
  auto o = std::make_shared<ShowOptions>();
  CLI::App* show = app.add_subcommand("show", "Look at what a recipe describes, or at what a run has learned");
  show->require_subcommand(1);
  CLI::App* pattern = show->add_subcommand("pattern", "Which positions attend to which, as text or as a picture");
  pattern->add_option("recipe", o->recipe, "recipe file, or the directory of a run, for its learned spans")->required();
  pattern->add_option("--set", o->overrides, "override a key, as in --set model.attention.stride=16");
  pattern->add_option("--layer", o->layer, "layer, from 0, the default")->check(not_below_zero());
  pattern->add_option("--head", o->head, "head, from 0, the default")->check(not_below_zero());
  pattern
      ->add_option("--positions", o->positions,
                   "show this many positions, and as many rows of a memory; default: 64, in a picture 4 strides if "
                   "that is more; all of them, in coarser cells, where the pattern does not repeat")
      ->check(above_zero());
  pattern
      ->add_option("--spans", o->spans,
                   "spans of heads that learn them: learned, longest or initial; default: learned for a run, otherwise "
                   "longest")
      ->check(CLI::IsMember({"learned", "longest", "initial"}));
  CLI::Option* output = pattern->add_option("--output", o->output, "PNG to write; without it, text");
  pattern->add_flag("--force", o->replace, "replace the picture if it exists")->needs(output);
  pattern->add_option("--query", o->query, "in a picture, highlight this position's row")
      ->check(not_below_zero())
      ->needs(output);
  pattern->add_option("--scale", o->scale, "pixels per cell in a picture; default: about 768 per side")
      ->check(above_zero())
      ->needs(output);
  add_json_option(*pattern, o->json);
  pattern->callback([o, &session] { run_show(*o, session); });
  add_show_batch(*show, session);
  add_show_spans(*show, session);
}

}  // namespace longstride
