// longstride show pattern RECIPE: what attends to what, as text or as a picture.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "datasets/formats/png.h"
#include "framework/core/errors.h"
#include "launch/commands/commands.h"
#include "launch/console/arguments.h"
#include "launch/console/json_output.h"
#include "launch/console/output.h"
#include "launch/recipe/recipe.h"

namespace longstride {
namespace {

struct ShowOptions {
  std::string recipe, output;
  std::vector<std::string> overrides;
  std::int64_t layer = 0, head = 0, positions = 0, scale = 0, query = -1;
  bool replace = false, json = false;
};

constexpr std::int64_t widest_text = 96;
constexpr std::int64_t widest_picture = 4096;

bool attends(const AttentionLayers& a, const ShowOptions& o, std::int64_t i, std::int64_t j) {
  return kernels::allowed(a.pattern, o.layer, a.heads, o.head, i, j);
}

void print_text(const Recipe& recipe, const AttentionLayers& attention, const ShowOptions& o, std::int64_t n) {
  fmt::print("{}: layer {}, head {}, the first {} of {} positions\n", recipe.name, o.layer, o.head, n,
             recipe.data.context);
  fmt::print("one row per query: # attended to, @ the query itself, . not attended to, blank: the future\n");
  for (std::int64_t i = 0; i < n; ++i) {
    std::string row;
    for (std::int64_t j = 0; j <= i; ++j) row += attends(attention, o, i, j) ? (i == j ? '@' : '#') : '.';
    fmt::print("{:>4} {}\n", i, row);
  }
}

// Of every query, what it attends to, as intervals [begin, end) of keys.
nlohmann::ordered_json to_json(const Recipe& recipe, const AttentionLayers& attention, const ShowOptions& o,
                               std::int64_t n) {
  nlohmann::ordered_json keys = nlohmann::ordered_json::array();
  for (std::int64_t i = 0; i < n; ++i) {
    nlohmann::ordered_json intervals = nlohmann::ordered_json::array();
    for (std::int64_t j = 0; j <= i; ++j) {
      if (!attends(attention, o, i, j)) continue;
      const std::int64_t begin = j;
      while (j <= i && attends(attention, o, i, j)) ++j;
      intervals.push_back({begin, j});
    }
    keys.push_back(intervals);
  }
  return {{"recipe", recipe.name},          {"layer", o.layer}, {"head", o.head},
          {"context", recipe.data.context}, {"positions", n},   {"keys", keys}};
}

// Like the paper's figure 3: the query itself is dark, what it attends to is blue, the rest of the past is light grey.
void write_picture(const AttentionLayers& attention, const ShowOptions& o, std::int64_t n) {
  const std::int64_t scale = o.scale > 0 ? o.scale : std::max<std::int64_t>(1, 768 / n);
  if (n * scale > widest_picture)
    throw user_error("--scale {} makes a picture of {} pixels per side, more than {}; lower it or --positions", scale,
                     n * scale, widest_picture);
  const std::int64_t side = n * scale;
  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(side * side * 3), 255);
  for (std::int64_t i = 0; i < n; ++i) {
    const bool lit = o.query < 0 || o.query == i;
    for (std::int64_t j = 0; j <= i; ++j) {
      std::uint8_t color[3] = {232, 234, 240};
      if (attends(attention, o, i, j)) {
        const std::uint8_t self[3] = {20, 36, 90}, other[3] = {70, 120, 210}, faint[3] = {180, 202, 238};
        std::copy_n(!lit ? faint : i == j ? self : other, 3, color);
      }
      for (std::int64_t y = i * scale; y < (i + 1) * scale; ++y)
        for (std::int64_t x = j * scale; x < (j + 1) * scale; ++x)
          std::copy_n(color, 3, pixels.begin() + (y * side + x) * 3);
    }
  }
  write_png(o.output, side, side, 3, pixels.data());
}

void run_show(const ShowOptions& o, Session& session) {
  const Recipe recipe = read_recipe(o.recipe, o.overrides);
  if (session.comm->rank() != 0) return;
  const auto model = recipe.model->make_model();
  const AttentionLayers attention = required<ShowsAttention>(*model, "show what attends to what").attention();
  if (o.layer >= attention.layers)
    throw user_error("--layer is {}, but the recipe has layers 0 to {}", o.layer, attention.layers - 1);
  if (o.head >= attention.heads)
    throw user_error("--head is {}, but the recipe has heads 0 to {}", o.head, attention.heads - 1);
  const bool text = o.output.empty();
  const std::int64_t most = text && !o.json ? widest_text : widest_picture;
  const std::int64_t asked =
      o.positions > 0 ? o.positions : (text ? 64 : std::max<std::int64_t>(64, 4 * attention.pattern.stride));
  if (o.positions > most)
    throw user_error("--positions is {}, but at most {} can be shown{}", o.positions, most,
                     text && !o.json ? " as text; give --output x.png" : "");
  const std::int64_t n = std::min({asked, most, recipe.data.context});
  if (o.query >= n) throw user_error("--query is {}, but the picture shows positions 0 to {}", o.query, n - 1);
  if (text && o.json) return print_json(to_json(recipe, attention, o, n));
  if (text) return print_text(recipe, attention, o, n);
  check_output_file(o.output, o.replace, {o.recipe});
  check_json_output(o.json, o.output);
  write_picture(attention, o, n);
  if (o.json) return print_json({{"output", o.output}, {"layer", o.layer}, {"head", o.head}, {"positions", n}});
  print_written(o.output, fmt::format("layer {}, head {}, the first {} positions", o.layer, o.head, n));
}

}  // namespace

void add_show(CLI::App& app, Session& session) {
  auto o = std::make_shared<ShowOptions>();
  CLI::App* show = app.add_subcommand("show", "Look at what a recipe describes, or at what a run has learned");
  show->require_subcommand(1);
  CLI::App* pattern = show->add_subcommand("pattern", "Which positions attend to which, as text or as a picture");
  pattern->add_option("recipe", o->recipe, "recipe file")->required();
  pattern->add_option("--set", o->overrides, "override a key, as in --set model.attention.stride=16");
  pattern->add_option("--layer", o->layer, "layer, from 0")->check(not_below_zero());
  pattern->add_option("--head", o->head, "head, from 0")->check(not_below_zero());
  pattern->add_option("--positions", o->positions, "show this many positions")->check(above_zero());
  CLI::Option* output = pattern->add_option("--output", o->output, "PNG to write; without it, text");
  pattern->add_flag("--force", o->replace, "replace the picture if it exists")->needs(output);
  pattern->add_option("--query", o->query, "in a picture, highlight this position's row")
      ->check(not_below_zero())
      ->needs(output);
  pattern->add_option("--scale", o->scale, "pixels per position in a picture")->check(above_zero())->needs(output);
  add_json_option(*pattern, o->json);
  pattern->callback([o, &session] { run_show(*o, session); });
  add_show_spans(*show, session);
}

}  // namespace longstride
