#include "launch/report/comparison.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <set>

#include "framework/core/text/numbers.h"
#include "framework/train/metrics/progress.h"
#include "launch/report/html.h"
#include "launch/run/run_directory.h"

namespace longstride {
namespace {

// One of eight colours, then the same with another pattern of dashes (report_style.h).
std::string css_class(std::size_t run) {
  constexpr std::size_t colours = 8, patterns = 4;
  const std::string colour(1, static_cast<char>('a' + run % colours));
  const std::size_t pattern = run / colours % patterns;
  return pattern == 0 ? colour : fmt::format("{} p{}", colour, pattern);
}

// The last part of each run's path, or the whole path if two have the same.
std::vector<std::string> names_of(const std::vector<RunFacts>& runs) {
  std::vector<std::string> names;
  std::set<std::string> different;
  for (const RunFacts& facts : runs) {
    std::filesystem::path path = std::filesystem::path(facts.run).lexically_normal();
    if (!path.has_filename()) path = path.parent_path();
    names.push_back(path.filename().string());
    different.insert(names.back());
  }
  if (different.size() == names.size()) return names;
  for (std::size_t i = 0; i < runs.size(); ++i) names[i] = runs[i].run;
  return names;
}

std::string row(const std::string& element, const std::vector<std::string>& cells) {
  std::string out = "<tr>";
  for (const std::string& cell : cells) out += fmt::format("<{}>{}</{}>", element, cell, element);
  return out + "</tr>\n";
}

std::string wide_table(const std::string& rows) { return "<div class=\"wide\"><table>\n" + rows + "</table></div>\n"; }

std::string key(std::size_t run, const std::string& name) {
  return fmt::format("<span class=\"key {}\">{}</span>", css_class(run), html_text(name));
}

std::string text_of(const EvaluationPoint& point) {
  return fmt::format("{:.4f} at {}", point.figure, thousands(point.step));
}

bool lower_is_better(const RunFacts& facts) { return facts.recipe.objective->shown_form().lower_is_better; }

// The best of a run's validation scores.
std::string best(const RunFacts& facts) {
  const std::vector<EvaluationPoint>& all = facts.history.evaluations;
  if (all.empty()) return "";
  const auto better = [lower = lower_is_better(facts)](const EvaluationPoint& a, const EvaluationPoint& b) {
    return lower ? a.figure < b.figure : a.figure > b.figure;
  };
  return text_of(*std::min_element(all.begin(), all.end(), better));
}

// The name that a figure has in all runs, or its names: "bits per byte", "accuracy or bits per byte".
std::string figure_name(const std::vector<RunFacts>& runs, const std::function<Figure(const Objective&)>& figure) {
  std::set<std::string> names;
  for (const RunFacts& facts : runs) names.insert(figure(*facts.recipe.objective).name);
  return fmt::format("{}", fmt::join(names, " or "));
}
std::string scored(const std::vector<RunFacts>& runs) {
  return figure_name(runs, [](const Objective& objective) { return objective.shown_form(); });
}
std::string trained(const std::vector<RunFacts>& runs) {
  return figure_name(runs, [](const Objective& objective) { return objective.shown_of_loss(0); });
}

std::string device_of(const RunFacts& facts) {
  if (facts.history.device.empty()) return facts.pretrained ? "" : "the CPU";
  return facts.history.device;
}

// True for a setting of training that only another program knows.
bool is_unknown(const RunFacts& facts, const std::string& setting) {
  return facts.pretrained && !setting.starts_with("model.") && setting != "data.kind" && setting != "data.context";
}

std::string results(const std::vector<RunFacts>& runs, const std::vector<std::string>& names) {
  const bool lowest = std::ranges::all_of(runs, lower_is_better);
  std::string rows = row("th", {"run", "recipe", "parameters", "context", "step", "bytes seen", "passes",
                                "valid, newest", lowest ? "valid, lowest" : "valid, best", "tokens/s", "device"});
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const RunFacts& facts = runs[i];
    const auto rate = facts.history.tokens_per_second();
    rows +=
        row("td",
            {key(i, names[i]), html_text(facts.recipe.name),
             in_millions(static_cast<double>(facts.model->parameters().count())), thousands(facts.recipe.data.context),
             thousands(facts.state.step) + (facts.pretrained ? "" : " / " + thousands(facts.recipe.train.steps)),
             facts.state.tokens_seen > 0 ? rate_text(static_cast<double>(facts.state.tokens_seen)) : "", facts.passes(),
             facts.history.evaluations.empty() ? "" : text_of(facts.history.evaluations.back()), best(facts),
             rate ? rate_text(*rate) : "", html_text(device_of(facts))});
  }
  return wide_table(rows);
}

std::string scores(const std::vector<RunFacts>& runs, const std::vector<std::string>& names) {
  std::string rows;
  for (std::size_t i = 0; i < runs.size(); ++i)
    for (const KeptEvaluation& e : kept_evaluations(runs[i].run, *runs[i].recipe.objective))
      rows += row("td", {key(i, names[i]), thousands(e.step), html_text(e.split),
                         html_text(std::filesystem::path(e.data).filename().string()),
                         e.min_context > 0 ? thousands(e.min_context) : "", html_text(memory_text(e)),
                         thousands(e.bytes), fmt::format("{:.4f}", e.figure)});
  if (rows.empty()) return "";
  return wide_table(row("th", {"run", "step", "split", "data", "minimum context", "memory", "bytes", scored(runs)}) +
                    rows);
}

using Points = std::vector<std::pair<double, double>>;

using PointsOf = std::function<Points(const RunHistory&, const RunAxis&)>;

struct Compared {
  const std::vector<RunFacts>& runs;
  const std::vector<std::string>& names;
  ReportAxis by;
};

std::string plot(const std::string& title, const Compared& c, const PointsOf& points, bool dots,
                 bool logarithmic = false) {
  std::vector<Series> series;
  for (std::size_t i = 0; i < c.runs.size(); ++i)
    series.push_back({c.names[i], css_class(i), points(c.runs[i].history, RunAxis(c.runs[i], c.by)), dots});
  return line_plot(title, series, logarithmic, name_of(c.by));
}

std::string curves(const std::vector<RunFacts>& runs, const std::vector<std::string>& names, ReportAxis by) {
  const auto of_steps = [](double StepPoint::*value) {
    return [value](const RunHistory& history, const RunAxis& axis) {
      Points points;
      for (const StepPoint& p : history.steps) points.emplace_back(axis.at(p.step), p.*value);
      return points;
    };
  };
  const auto of_evaluations = [](const RunHistory& history, const RunAxis& axis) {
    Points points;
    for (const EvaluationPoint& p : history.evaluations) points.emplace_back(axis.at(p.step), p.figure);
    return points;
  };
  std::string legend = "<p>";
  for (std::size_t i = 0; i < runs.size(); ++i) legend += key(i, names[i]) + " ";
  const Compared c{runs, names, by};
  const std::string over = by == ReportAxis::step ? "" : fmt::format(", by {}", name_of(by));
  return legend + "</p>\n<div class=\"plots\">\n" + plot(scored(runs) + ", valid" + over, c, of_evaluations, true) +
         plot(trained(runs) + ", training" + over, c, of_steps(&StepPoint::figure), false) +
         plot("tokens per second" + over, c, of_steps(&StepPoint::tokens_per_second), false) +
         plot("gradient norm" + over, c, of_steps(&StepPoint::grad_norm), false, true) +
         plot("learning rate" + over, c, of_steps(&StepPoint::lr), false) + "</div>\n";
}

std::string differences(const std::vector<RunFacts>& runs, const std::vector<std::string>& names) {
  std::map<std::string, std::vector<std::string>> values;
  for (std::size_t i = 0; i < runs.size(); ++i)
    for (const auto& [setting, value] : settings_by_key(runs[i].recipe)) {
      if (is_unknown(runs[i], setting)) continue;
      std::vector<std::string>& row_of = values[setting];
      row_of.resize(runs.size());
      row_of[i] = value;
    }
  std::string rows;
  for (const auto& [setting, of_runs] : values) {
    std::set<std::string> distinct;
    for (std::size_t i = 0; i < runs.size(); ++i)
      if (!is_unknown(runs[i], setting)) distinct.insert(of_runs[i]);
    if (distinct.size() == 1) continue;
    std::vector<std::string> cells = {html_text(setting)};
    for (const std::string& value : of_runs) cells.push_back(html_text(value));
    rows += row("td", cells);
  }
  if (rows.empty()) return "<p>None.</p>\n";
  std::vector<std::string> head = {"key"};
  for (std::size_t i = 0; i < runs.size(); ++i) head.push_back(key(i, names[i]));
  return wide_table(row("th", head) + rows);
}

}  // namespace

std::string comparison(const std::vector<RunFacts>& runs, ReportAxis by) {
  const std::vector<std::string> names = names_of(runs);
  return section("Results", results(runs, names)) + section("Curves", curves(runs, names, by)) +
         section("Scores", scores(runs, names)) + section("Settings that differ", differences(runs, names));
}

}  // namespace longstride
