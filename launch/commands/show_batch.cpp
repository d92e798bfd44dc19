// longstride show batch RECIPE: the rows that a step of training reads, with their documents and weights.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "framework/core/errors.h"
#include "framework/core/text/printable.h"
#include "framework/train/stages.h"
#include "launch/commands/commands.h"
#include "launch/console/arguments.h"
#include "launch/console/json_output.h"
#include "launch/recipe/recipe.h"
#include "launch/run/run_data.h"
#include "launch/sample/run_tokens.h"

namespace longstride {
namespace {

struct BatchOptions {
  std::string recipe;
  std::vector<std::string> overrides;
  std::int64_t step = 0, row = -1;
  bool json = false;
};

constexpr std::int64_t line_bytes = 64;

// Elements of any field, as numbers.
std::vector<double> numbers(const Tensor& t) {
  std::vector<double> out(static_cast<std::size_t>(t.count()));
  for (std::size_t i = 0; i < out.size(); ++i) switch (t.dtype()) {
      case Dtype::u8:
        out[i] = t.as<const std::uint8_t>()[i];
        break;
      case Dtype::u16:
        out[i] = t.as<const std::uint16_t>()[i];
        break;
      case Dtype::i32:
        out[i] = t.as<const std::int32_t>()[i];
        break;
      default:
        out[i] = static_cast<double>(t.as<const float>()[i]);
    }
  return out;
}

nlohmann::ordered_json as_json(const Tensor& t) {
  const std::vector<double> of = numbers(t);
  if (t.dtype() == Dtype::f32) return of;
  return std::vector<std::int64_t>(of.begin(), of.end());
}

// The answers that a row asks for, where they are no ids of tokens.
void print_answers(const Batch& row) {
  const std::vector<double> targets = numbers(row.targets), weights = numbers(row.weights);
  for (std::size_t i = 0; i < targets.size(); ++i)
    if (weights[i] != 0) fmt::print("{:>8}  asked, {}\n", i, targets[i]);
}

// A row's positions in runs of one document and weight, a line for every 64 bytes. Padding is one run. `of_ids`:
// answers are ids of tokens, which are shown instead of those that are read.
void print_row(const Batch& row, std::int64_t number, bool of_ids, const RunTokens& tokens) {
  const std::vector<double> ids = numbers(of_ids ? row.predicted() : row.tokens), groups = numbers(row.groups),
                            weights = of_ids ? numbers(row.weights) : std::vector<double>{};
  const bool alone = row.starts.given() && row.starts.as<const std::uint8_t>()[0] == 0;
  fmt::print("row {}{}\n", number, alone ? ", which continues that of the step before" : "");
  const auto of = [](const std::vector<double>& field, std::size_t i, double absent) {
    return i < field.size() ? field[i] : absent;
  };
  for (std::size_t i = 0; i < ids.size();) {
    const double group = of(groups, i, 0), weight = of(weights, i, 1);
    const auto in_run = [&](std::size_t at) {
      return at < ids.size() && of(groups, at, 0) == group && of(weights, at, 1) == weight;
    };
    std::string text;
    std::size_t end = i;
    const bool bytes = tokens.is_of_bytes();
    const auto pads = [&](double id) {
      return (bytes && id == static_cast<double>(ids::pad)) || (weight == 0 && id == 0);
    };
    while (in_run(end) && pads(ids[end])) ++end;
    if (end == ids.size() && end > i) {
      fmt::print("{:>8}  padding of {}\n", i, end - i);
      break;
    }
    for (end = i; end - i < line_bytes && in_run(end); ++end)
      if (!bytes)
        text += tokens.text(static_cast<int>(ids[end]));
      else if (ids[end] < static_cast<double>(ids::bytes))
        text += static_cast<char>(ids[end]);
      else
        text += fmt::format("<{}>", ids[end]);
    fmt::print("{:>8}  {}{}{}\n", i, groups.empty() ? "" : fmt::format("document {:<4} ", group),
               weight == 1 ? "" : fmt::format("weight {:g}  ", weight), printable(text));
    i = end;
  }
  if (!of_ids) print_answers(row);
}

void run_batch(const BatchOptions& o, Session& session) {
  if (session.comm->rank() != 0) return;
  const Recipe recipe = read_recipe(o.recipe, o.overrides);
  if (o.step >= recipe.train.steps)
    throw user_error("--step is {}, but the recipe has steps 0 to {}", o.step, recipe.train.steps - 1);
  const StepShape shape = shape_at(recipe.train, o.step, recipe.data.context);
  if (o.row >= shape.rows) throw user_error("--row is {}, but a step has rows 0 to {}", o.row, shape.rows - 1);
  const auto dataset = Dataset::open(recipe.data.path);
  const BatchLayout layout(exported_fields(recipe), shape.rows, shape.context);
  const Block memory(Device::cpu, layout.bytes());
  const Batch batch = layout.at(memory.data());
  open_rows(*dataset, recipe)->read(o.step, shape.rows, 0, batch);
  const std::int64_t first = std::max<std::int64_t>(o.row, 0), end = o.row < 0 ? shape.rows : o.row + 1;
  if (!o.json) {
    fmt::print("{}: step {}, {} rows of {} {}s\n", recipe.name, o.step, shape.rows, shape.context,
               dataset->info().unit());
    const RunTokens tokens(recipe.data, dataset->info().tokenizer, dataset->path() + ": 'tokenizer'");
    for (std::int64_t row = first; row < end; ++row)
      print_row(batch.slice(row, row + 1), row, recipe.objective->answers().choices == 0, tokens);
    return;
  }
  nlohmann::ordered_json out = {{"recipe", recipe.name}, {"step", o.step}, {"rows", nlohmann::ordered_json::array()}};
  for (std::int64_t row = first; row < end; ++row) {
    nlohmann::ordered_json fields = {{"row", row}};
    const Batch one = batch.slice(row, row + 1);
    for (const auto& [name, field] : batch_fields)
      if ((one.*field).given()) fields[name] = as_json(one.*field);
    out["rows"].push_back(fields);
  }
  print_json(out);
}

}  // namespace

void add_show_batch(CLI::App& show, Session& session) {
  auto o = std::make_shared<BatchOptions>();
  CLI::App* batch = show.add_subcommand("batch", "The rows that a step of training reads");
  batch->add_option("recipe", o->recipe, "recipe file")->required();
  batch->add_option("--set", o->overrides, "override a key, as in --set data.documents=separate");
  batch->add_option("--step", o->step, "step, from 0, the default")->check(not_below_zero());
  batch->add_option("--row", o->row, "only this row, from 0; default: all")->check(not_below_zero());
  add_json_option(*batch, o->json);
  batch->callback([o, &session] { run_batch(*o, session); });
}

}  // namespace longstride
