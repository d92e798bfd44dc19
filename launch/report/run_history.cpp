#include "launch/report/run_history.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numbers>
#include <sstream>

#include "framework/core/files/append_file.h"
#include "framework/core/files/files.h"
#include "framework/core/text/numbers.h"

namespace longstride {
namespace {

using Json = nlohmann::ordered_json;

// The JSON objects of a file with one per line.
std::vector<Json> objects_in(const std::string& path) {
  std::vector<Json> objects;
  if (!std::filesystem::exists(path)) return objects;
  std::istringstream lines(read_file(path));
  for (std::string line; std::getline(lines, line);) {
    Json object = Json::parse(line, nullptr, false);
    if (object.is_object()) objects.push_back(std::move(object));
  }
  return objects;
}

double number(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->get<double>() : 0;
}
std::int64_t whole(const Json& object, const char* key) { return static_cast<std::int64_t>(number(object, key)); }
std::optional<std::int64_t> optional_whole(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? std::optional(whole(object, key)) : std::nullopt;
}
std::string text(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}
bool finite(const Json& object, const char* key) { return object.contains(key) && object.at(key).is_number(); }

// Lines of earlier versions have no mean.
double mean_bits(const Json& step) {
  return finite(step, "mean_loss") ? number(step, "mean_loss") / std::numbers::ln2 : number(step, "bits_per_byte");
}

std::string evaluations_file(const std::string& run) { return run + "/evaluations.jsonl"; }

}  // namespace

namespace {

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

RunHistory read_history(const std::string& run) {
  RunHistory history;
  for (const Json& line : objects_in(run + "/metrics.jsonl")) {
    if (line.contains("device")) {
      history.device = text(line, "device");
      history.precision = text(line, "precision");
    }
    if (line.contains("planned_bytes")) history.planned_bytes = whole(line, "planned_bytes");
    if (line.contains("used_bytes")) history.used_bytes = whole(line, "used_bytes");
    history.host_peak_bytes = std::max(history.host_peak_bytes, whole(line, "host_peak_bytes"));
    if (!finite(line, "bits_per_byte")) continue;
    if (line.contains("split")) {
      history.evaluations.push_back({whole(line, "step"), number(line, "bits_per_byte")});
      continue;
    }
    history.steps.push_back({whole(line, "step"), mean_bits(line), number(line, "lr"), number(line, "grad_norm"),
                             number(line, "tokens_per_second")});
    if (const auto losses = line.find("auxiliary"); losses != line.end() && losses->is_object())
      for (const auto& [name, loss] : losses->items())
        if (loss.is_number()) history.steps.back().auxiliary.emplace_back(name, loss.get<double>());
  }
  return history;
}

std::vector<KeptEvaluation> kept_evaluations(const std::string& run) {
  std::vector<KeptEvaluation> kept;
  for (const Json& line : objects_in(evaluations_file(run)))
    kept.push_back({whole(line, "step"), text(line, "split"), text(line, "data"), text(line, "weights"),
                    text(line, "sha256"), whole(line, "min_context"), whole(line, "max_windows"), whole(line, "bytes"),
                    number(line, "bits_per_byte"), whole(line, "windows"), line.value("spread", Json()) == true,
                    EvaluatedMemory{optional_whole(line, "memory"), optional_whole(line, "clamp"),
                                    optional_whole(line, "compressed")},
                    whole(line, "streams")});
  return kept;
}

std::string text_of(const EvaluatedMemory& memory) {
  std::string text = memory.length ? thousands(*memory.length) : "";
  const auto add = [&](const char* name, const std::optional<std::int64_t>& value) {
    if (value) text += (text.empty() ? "" : ", ") + fmt::format("{} {}", name, thousands(*value));
  };
  add("compressed", memory.compressed);
  add("clamp", memory.clamp);
  return text;
}

std::string memory_text(const KeptEvaluation& evaluation) {
  std::string text = text_of(evaluation.memory);
  if (evaluation.streams > 1) text += fmt::format("{}{} streams", text.empty() ? "" : ", ", evaluation.streams);
  return text;
}

void keep_evaluation(const std::string& run, const KeptEvaluation& e) {
  for (const KeptEvaluation& kept : kept_evaluations(run))
    if (kept.same_question(e) && kept.sha256 == e.sha256 && kept.bits_per_byte == e.bits_per_byte) return;
  const std::string path = evaluations_file(run);
  const std::string content = std::filesystem::exists(path) ? read_file(path) : "";
  const bool cut_short = !content.empty() && content.back() != '\n';
  Json line = {{"step", e.step},
               {"split", e.split},
               {"data", e.data},
               {"weights", e.weights},
               {"sha256", e.sha256},
               {"min_context", e.min_context},
               {"max_windows", e.max_windows},
               {"windows", e.windows},
               {"spread", e.spread},
               {"bytes", e.bytes},
               {"bits_per_byte", e.bits_per_byte}};
  if (e.memory.length) line["memory"] = *e.memory.length;
  if (e.memory.compressed) line["compressed"] = *e.memory.compressed;
  if (e.memory.clamp) line["clamp"] = *e.memory.clamp;
  if (e.streams > 0) line["streams"] = e.streams;
  const std::string text = line.dump(-1, ' ', false, Json::error_handler_t::replace);  // a path need not be UTF-8
  AppendFile(path).append((cut_short ? "\n" : "") + text + '\n');
}

}  // namespace longstride
