#include "launch/report/run_history.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <set>

#include "framework/core/errors.h"
#include "framework/core/files/append_file.h"
#include "framework/core/files/files.h"
#include "framework/core/files/inside.h"
#include "framework/core/text/json.h"
#include "framework/core/text/numbers.h"

namespace longstride {
namespace {

constexpr std::size_t most_points = 1 << 16, most_losses = 8, longest_name = 64;

double limited(double figure) { return std::clamp(figure, -1e60, 1e60); }

// A line of a file that is a JSON object.
class Line {
 public:
  Line(nlohmann::json object, std::string place) : object_(std::move(object)), place_(std::move(place)) {}

  bool has(const char* key) const { return object_.contains(key); }
  bool has_number(const char* key) const { return has(key) && object_.at(key).is_number(); }
  const nlohmann::json& at(const char* key) const { return object_.at(key); }

  // 0 and "" if there is none. Figures from afar are limited, so that a plot can compute with them.
  double number(const char* key) const { return has_number(key) ? limited(at(key).get<double>()) : 0; }
  std::string text(const char* key) const { return has(key) && at(key).is_string() ? at(key).get<std::string>() : ""; }
  // A count, a step or a size. UserError for a number that is none of these.
  std::int64_t whole(const char* key) const {
    if (!has_number(key)) return 0;
    const nlohmann::json& value = at(key);
    constexpr double exact = 9007199254740992.0;  // 2^53: beyond it a double skips whole numbers
    const double real = value.get<double>();
    const bool fits = value.is_number_float()      ? std::floor(real) == real && real <= exact
                      : value.is_number_unsigned() ? value.get<std::uint64_t>() <= INT64_MAX
                                                   : true;
    if (!fits || real < 0)
      throw user_error("{}: '{}' is {}, but must be a whole number from 0 to {}; remove the line", place_, key,
                       value.dump(), thousands(INT64_MAX));
    return value.is_number_float() ? static_cast<std::int64_t>(real) : value.get<std::int64_t>();
  }
  std::optional<std::int64_t> optional_whole(const char* key) const {
    return has_number(key) ? std::optional(whole(key)) : std::nullopt;
  }

 private:
  nlohmann::json object_;
  std::string place_;  // the file and the number of the line, for messages
};

// The JSON objects of a file of the run with one per line.
void for_each_object(const std::string& run, const char* name, const std::function<void(const Line&)>& each) {
  const std::string path = inside(run, name);
  if (!std::filesystem::exists(path)) return;
  std::int64_t number = 0;
  const std::int64_t foreign = for_each_line(path, [&](const std::string& line) {
    ++number;
    nlohmann::json object = parse_json(line);
    if (object.is_object()) each(Line(std::move(object), fmt::format("{}:{}", path, number)));
  });
  if (foreign > 0)
    spdlog::warn("{}:{}: is too long for a line of this file; it is left out with all that follows", path, foreign);
}

constexpr const char *metrics_file = "metrics.jsonl", *evaluations_file = "evaluations.jsonl";

// The points of a curve: if there are too many, one of every two, four ...
template <class Point>
class Curve {
 public:
  explicit Curve(std::vector<Point>& points) : points_(points) {}
  void add(Point point) {
    if (number_++ % every_ != 0) return;
    points_.push_back(std::move(point));
    if (points_.size() < most_points) return;
    std::size_t at = 0;
    std::erase_if(points_, [&](const Point&) { return at++ % 2 == 1; });
    every_ *= 2;
  }

 private:
  std::vector<Point>& points_;
  std::size_t number_ = 0, every_ = 1;
};

// A model has few auxiliary losses, and the same ones at every step.
void read_auxiliary(const Line& line, std::set<std::string>& known, StepPoint& point) {
  if (!line.has("auxiliary") || !line.at("auxiliary").is_object()) return;
  for (const auto& [name, loss] : line.at("auxiliary").items()) {
    if (!loss.is_number() || name.size() > longest_name) continue;
    if (known.size() < most_losses) known.insert(name);
    if (known.contains(name)) point.auxiliary.emplace_back(name, limited(loss.get<double>()));
  }
}

std::optional<double> median(std::vector<double> values) {
  if (values.empty()) return std::nullopt;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

double RunHistory::seconds(const TokensBefore& before) const {
  double total = 0, last = 0;
  for (const StepPoint& p : steps) {
    const double now = before(p.step);
    if (p.tokens_per_second > 0) total += (now - last) / p.tokens_per_second;
    last = now;
  }
  return total;
}

std::optional<double> RunHistory::seconds_per_step(const TokensBefore& before) const {
  std::vector<double> times;
  for (const StepPoint& p : steps)
    if (p.tokens_per_second > 0) times.push_back((before(p.step) - before(p.step - 1)) / p.tokens_per_second);
  return median(std::move(times));
}

std::optional<double> RunHistory::tokens_per_second() const {
  std::vector<double> rates;
  for (const StepPoint& p : steps)
    if (p.tokens_per_second > 0) rates.push_back(p.tokens_per_second);
  return median(std::move(rates));
}

// Lines of steps in earlier versions have no mean.
RunHistory read_history(const std::string& run, const Objective& objective) {
  const std::string of_split = objective.shown_form().key(), of_step = objective.shown_of_loss(0).key();
  RunHistory history;
  Curve steps(history.steps);
  Curve evaluations(history.evaluations);
  std::set<std::string> losses;
  for_each_object(run, metrics_file, [&](const Line& line) {
    if (line.has("device")) {
      history.device = line.text("device");
      history.precision = line.text("precision");
    }
    if (line.has("planned_bytes")) history.planned_bytes = line.whole("planned_bytes");
    if (line.has("used_bytes")) history.used_bytes = line.whole("used_bytes");
    history.host_peak_bytes = std::max(history.host_peak_bytes, line.whole("host_peak_bytes"));
    const std::string& key = line.has("split") ? of_split : of_step;
    if (!line.has_number(key.c_str())) return;
    double figure = line.number(key.c_str());
    if (line.has("split")) return evaluations.add({line.whole("step"), figure});
    if (line.has_number("mean_loss")) figure = objective.shown_of_loss(line.number("mean_loss")).value;
    StepPoint point{line.whole("step"), figure, line.number("lr"), line.number("grad_norm"),
                    std::min(line.number("tokens_per_second"), 1e18)};
    read_auxiliary(line, losses, point);
    steps.add(std::move(point));
  });
  return history;
}

RunHistory read_trainer_history(const std::string& folder, const Objective& objective) {
  const std::string path = inside(folder, "trainer_state.json");
  RunHistory history;
  if (!std::filesystem::exists(path)) return history;
  const nlohmann::json state = parse_json(read_at_most(path));
  const nlohmann::json log = state.is_object() ? state.value("log_history", nlohmann::json()) : nlohmann::json();
  if (!log.is_array()) throw user_error("{}: must be JSON with a list, 'log_history'; remove the file", path);
  Curve steps(history.steps);
  Curve evaluations(history.evaluations);
  for (std::size_t i = 0; i < log.size(); ++i) {
    if (!log[i].is_object()) continue;
    const Line line(log[i], fmt::format("{}: entry {} of log_history", path, i));
    const auto figure = [&](const char* key) { return objective.shown_of_loss(line.number(key)).value; };
    if (line.has_number("loss"))
      steps.add({line.whole("step"), figure("loss"), line.number("learning_rate"), line.number("grad_norm"), 0});
    if (line.has_number("eval_loss")) evaluations.add({line.whole("step"), figure("eval_loss")});
  }
  return history;
}

std::vector<KeptEvaluation> kept_evaluations(const std::string& run, const Objective& objective) {
  const std::string key = objective.shown_form().key();
  std::vector<KeptEvaluation> kept;
  for_each_object(run, evaluations_file, [&](const Line& line) {
    if (kept.size() == most_points)
      throw user_error("{}/{}: has more than {} scores; move the file away", run, evaluations_file, most_points);
    kept.push_back(
        {line.whole("step"), line.text("split"), line.text("data"), line.text("weights"), line.text("sha256"),
         line.whole("min_context"), line.whole("max_windows"), line.whole("bytes"), line.number(key.c_str()),
         line.whole("windows"), line.has("spread") && line.at("spread") == true,
         EvaluatedMemory{line.optional_whole("memory"), line.optional_whole("clamp"), line.optional_whole("compressed"),
                         line.has("same_length") && line.at("same_length") == true},
         line.whole("streams"), line.text("documents"), line.whole("context")});
  });
  return kept;
}

std::string text_of(const EvaluatedMemory& memory) {
  std::string text = memory.length ? thousands(*memory.length) : "";
  const auto add = [&](const char* name, const std::optional<std::int64_t>& value) {
    if (value) text += (text.empty() ? "" : ", ") + fmt::format("{} {}", name, thousands(*value));
  };
  add("compressed", memory.compressed);
  add("clamp", memory.clamp);
  if (memory.same_length) text += text.empty() ? "same length" : ", same length";
  return text;
}

std::string memory_text(const KeptEvaluation& evaluation) {
  std::string text = text_of(evaluation.memory);
  if (evaluation.streams > 1) text += fmt::format("{}{} streams", text.empty() ? "" : ", ", evaluation.streams);
  if (!evaluation.documents.empty())
    text += fmt::format("{}documents {}", text.empty() ? "" : ", ", evaluation.documents);
  if (evaluation.context > 0)
    text += fmt::format("{}context {}", text.empty() ? "" : ", ", thousands(evaluation.context));
  return text;
}

void keep_evaluation(const std::string& run, const KeptEvaluation& e, const Objective& objective) {
  for (const KeptEvaluation& kept : kept_evaluations(run, objective))
    if (kept.same_question(e) && kept.sha256 == e.sha256 && kept.figure == e.figure) return;
  const std::string path = inside(run, evaluations_file);
  char last = '\n';
  if (std::filesystem::exists(path))
    if (const InputFile file(path); file.size() > 0) file.read(file.size() - 1, &last, 1);
  const bool cut_short = last != '\n';
  nlohmann::ordered_json line = {{"step", e.step},
                                 {"split", e.split},
                                 {"data", e.data},
                                 {"weights", e.weights},
                                 {"sha256", e.sha256},
                                 {"min_context", e.min_context},
                                 {"max_windows", e.max_windows},
                                 {"windows", e.windows},
                                 {"spread", e.spread},
                                 {"bytes", e.bytes},
                                 {objective.shown_form().key(), e.figure}};
  if (e.memory.length) line["memory"] = *e.memory.length;
  if (e.memory.compressed) line["compressed"] = *e.memory.compressed;
  if (e.memory.clamp) line["clamp"] = *e.memory.clamp;
  if (e.memory.same_length) line["same_length"] = true;
  if (e.streams > 0) line["streams"] = e.streams;
  if (!e.documents.empty()) line["documents"] = e.documents;
  if (e.context > 0) line["context"] = e.context;
  const std::string text =
      line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);  // a path need not be UTF-8
  AppendFile(path).append((cut_short ? "\n" : "") + text + '\n');
}

}  // namespace longstride
