#include "launch/sweep/sweep_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "framework/core/text/printable.h"
#include "launch/report/run_history.h"

namespace longstride {
namespace {

struct Row {
  std::vector<double> figures;  // finished runs' only
  int diverged = 0, waiting = 0;

  std::optional<double> mean() const {
    if (figures.empty()) return std::nullopt;
    double sum = 0;
    for (const double figure : figures) sum += figure;
    return sum / static_cast<double>(figures.size());
  }
  // The standard deviation of a run.
  std::optional<double> spread() const {
    if (figures.size() < 2) return std::nullopt;
    double squares = 0;
    for (const double figure : figures) squares += (figure - *mean()) * (figure - *mean());
    return std::sqrt(squares / static_cast<double>(figures.size() - 1));
  }
};

std::vector<Row> rows_of(const SweepPlan& plan, const std::vector<SweepResult>& results) {
  std::vector<Row> rows(plan.combinations.size());
  for (std::size_t r = 0; r < plan.runs.size(); ++r) {
    Row& row = rows[plan.runs[r].combination];
    if (results[r].figure) row.figures.push_back(*results[r].figure);
    if (results[r].outcome == SweepOutcome::diverged) ++row.diverged;
    if (results[r].outcome == SweepOutcome::waiting) ++row.waiting;
  }
  return rows;
}

bool lower_is_better(const SweepPlan& plan) { return plan.runs.front().recipe.objective->shown_form().lower_is_better; }

// The row with the best mean; past the end if there is none.
std::size_t best_row(const SweepPlan& plan, const std::vector<Row>& rows) {
  std::size_t best = rows.size();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto mean = rows[i].mean();
    if (!mean || rows[i].waiting > 0) continue;
    if (best == rows.size() || (lower_is_better(plan) ? *mean < *rows[best].mean() : *mean > *rows[best].mean()))
      best = i;
  }
  return best;
}

std::string number(const std::optional<double>& value) { return value ? fmt::format("{:.4f}", *value) : "-"; }

std::string note(const Row& row) {
  std::string out;
  if (row.diverged > 0) out += fmt::format("{} diverged", row.diverged);
  if (row.waiting > 0) out += fmt::format("{}{} to come", out.empty() ? "" : ", ", row.waiting);
  return out;
}

}  // namespace

const char* name_of(SweepOutcome outcome) {
  constexpr const char* names[] = {"waiting", "finished", "diverged"};
  return names[static_cast<std::size_t>(outcome)];
}

std::optional<double> figure_of_run(const std::string& directory, const Recipe& recipe) {
  const RunHistory history = read_history(directory, *recipe.objective);
  if (!history.evaluations.empty()) return history.evaluations.back().figure;
  if (!history.steps.empty()) return history.steps.back().figure;
  return std::nullopt;
}

std::string sweep_as_text(const SweepPlan& plan, const std::vector<SweepResult>& results) {
  const std::vector<Row> rows = rows_of(plan, results);
  const std::size_t best = best_row(plan, rows);
  std::vector<std::vector<std::string>> lines(1);
  for (const SweepAxis& axis : plan.axes) lines[0].push_back(printable(axis.key));
  for (const char* name : {"runs", "mean", "spread", "lowest", "highest", ""}) lines[0].emplace_back(name);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Row& row = rows[i];
    std::vector<std::string> line;
    for (const std::string& value : plan.combinations[i]) line.push_back(printable(value));
    const bool any = !row.figures.empty();
    const auto [least, most] = std::minmax_element(row.figures.begin(), row.figures.end());
    line.insert(line.end(),
                {fmt::format("{}", row.figures.size()), number(row.mean()), number(row.spread()),
                 any ? number(*least) : "-", any ? number(*most) : "-",
                 note(row) + (i == best && rows.size() > 1 ? (note(row).empty() ? "best" : ", best") : "")});
    lines.push_back(std::move(line));
  }
  std::vector<std::size_t> widths(lines[0].size(), 0);
  for (const auto& line : lines)
    for (std::size_t c = 0; c < line.size(); ++c) widths[c] = std::max(widths[c], line[c].size());
  std::string out;
  for (const auto& line : lines) {
    std::string text;
    for (std::size_t c = 0; c < line.size(); ++c) text += fmt::format("{:<{}}  ", line[c], widths[c]);
    out += text.substr(0, text.find_last_not_of(' ') + 1) + "\n";
  }
  return out;
}

nlohmann::ordered_json sweep_as_json(const SweepPlan& plan, const std::vector<SweepResult>& results) {
  using Json = nlohmann::ordered_json;
  const auto values_of = [&](std::size_t combination) {
    Json values = Json::object();
    for (std::size_t a = 0; a < plan.axes.size(); ++a) values[plan.axes[a].key] = plan.combinations[combination][a];
    return values;
  };
  const auto or_null = [](const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); };
  Json out = {{"figure", plan.runs.front().recipe.objective->shown_form().name}, {"table", Json::array()}};
  for (const Row& row : rows_of(plan, results))
    out["table"].push_back({{"values", values_of(out["table"].size())},
                            {"runs", row.figures.size()},
                            {"diverged", row.diverged},
                            {"mean", or_null(row.mean())},
                            {"spread", or_null(row.spread())}});
  for (std::size_t r = 0; r < plan.runs.size(); ++r)
    out["runs"].push_back({{"name", plan.runs[r].name},
                           {"values", values_of(plan.runs[r].combination)},
                           {"seed", plan.runs[r].recipe.train.seed},
                           {"outcome", name_of(results[r].outcome)},
                           {"figure", or_null(results[r].figure)}});
  return out;
}

}  // namespace longstride
