#include "framework/train/metrics/metrics.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>

#include "framework/core/files/files.h"
#include "framework/core/files/inside.h"
#include "framework/core/text/json.h"

namespace longstride {
namespace {

// Keys in the order in which they are written: people read these lines too.
using Line = nlohmann::ordered_json;

Scalars tagged(const std::string& prefix, const Scalars& scalars, const Scalars& more = {}) {
  Scalars all;
  for (const Scalars* part : {&scalars, &more})
    for (const auto& [key, value] : *part) all.emplace_back(prefix + key, value);
  return all;
}

// The step of a line; -1 for a line that this program did not write in full, such as one that a crash has cut short.
std::int64_t step_of(const std::string& line) {
  const auto object = parse_json(line);
  if (!object.is_object()) return -1;
  const auto step = object.find("step");
  return step != object.end() && step->is_number_integer() ? step->get<std::int64_t>() : -1;
}

// Returns `path`.
std::string keep_lines_until(std::string path, std::int64_t last_step) {
  if (!std::filesystem::exists(path)) return path;
  std::uint64_t kept = 0;
  bool dropped = false;
  const auto keeps = [&](const std::string& line) {
    const std::int64_t step = last_step > 0 ? step_of(line) : -1;
    return 0 <= step && step <= last_step;
  };
  const std::int64_t foreign =
      for_each_line(path, [&](const std::string& line) { keeps(line) ? kept += line.size() + 1 : dropped = true; });
  if (foreign > 0 && last_step > 0)
    spdlog::warn("{}:{}: is too long for a line of metrics; it is dropped with all that follows", path, foreign);
  if (!dropped && foreign == 0 && kept == InputFile(path).size()) return path;
  AtomicFile file(path);
  for_each_line(path, [&](const std::string& line) {
    if (const std::string whole = line + '\n'; keeps(line)) file.write(whole.data(), whole.size());
  });
  file.commit();
  return path;
}

// "2026-11-23T16:25:56.012Z"
std::string time_now() {
  using namespace std::chrono;
  const auto now = floor<milliseconds>(system_clock::now());
  const std::time_t seconds = system_clock::to_time_t(now);
  std::tm utc = {};
  gmtime_r(&seconds, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &utc);
  return fmt::format("{}.{:03}Z", text, now.time_since_epoch().count() % 1000);
}

}  // namespace

// Not getrusage, whose maximum includes the program that started this one.
std::optional<std::int64_t> peak_host_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (!line.starts_with("VmHWM:")) continue;
    const std::size_t digits = std::min(line.find_first_of("0123456789"), line.size());
    std::int64_t kib = 0;
    if (std::from_chars(line.data() + digits, line.data() + line.size(), kib).ec == std::errc()) return kib * 1024;
  }
  return std::nullopt;
}

MetricsWriter::MetricsWriter(const std::string& run, std::int64_t resumed_step)
    : events_(run, resumed_step + 1), lines_(keep_lines_until(inside(run, "metrics.jsonl"), resumed_step)) {}

void MetricsWriter::write(const StepMetrics& m) {
  Line line = {{"step", m.step}};
  for (const auto& [key, value] : m.figures) line[key] = value;
  line.update({{"lr", m.lr},
               {"grad_norm", m.grad_norm},
               {"tokens_per_second", m.tokens_per_second},
               {"mean_loss", m.mean_loss},
               {"tokens", m.tokens},
               {"time", time_now()}});
  for (const auto& [name, value] : m.auxiliary) line["auxiliary"][name] = value;
  if (m.host_peak_bytes) line["host_peak_bytes"] = *m.host_peak_bytes;
  if (m.device_peak_bytes) line["device_peak_bytes"] = *m.device_peak_bytes;
  if (m.loss_scale) line["loss_scale"] = *m.loss_scale;
  if (m.skipped) line["skipped"] = *m.skipped;
  lines_.append(line.dump() + '\n');
  events_.write(m.step, tagged("train/", m.figures,
                               {{"mean_loss", m.mean_loss},
                                {"lr", m.lr},
                                {"grad_norm", m.grad_norm},
                                {"tokens_per_second", m.tokens_per_second},
                                {"tokens", static_cast<double>(m.tokens)}}));
  for (const auto& [name, value] : m.auxiliary) events_.write(m.step, {{"train/auxiliary/" + name, value}});
  if (m.loss_scale) events_.write(m.step, {{"train/loss_scale", *m.loss_scale}});
}

void MetricsWriter::write(const EvaluationMetrics& m) {
  Line line = {{"step", m.step}, {"split", m.split}};
  for (const auto& [key, value] : m.figures) line[key] = value;
  line.update({{"bytes", m.bytes}, {"seconds", m.seconds}, {"time", time_now()}});
  lines_.append(line.dump() + '\n');
  events_.write(m.step, tagged(m.split + "/", m.figures));
}

void MetricsWriter::write(const SampleMetrics& m) {
  for (const Media& media : m.samples) events_.write_media(m.step, media);
}

void MetricsWriter::write(const DeviceMetrics& m) {
  const Line line = {
      {"step", m.step}, {"device", m.device}, {"precision", m.precision}, {"planned_bytes", m.planned_bytes}};
  lines_.append(line.dump() + '\n');
}

void MetricsWriter::write(const MemoryMetrics& m) {
  const Line line = {{"step", m.step}, {"planned_bytes", m.planned_bytes}, {"used_bytes", m.used_bytes}};
  lines_.append(line.dump() + '\n');
}

void MetricsWriter::flush() {
  lines_.flush();
  events_.flush();
}

}  // namespace longstride
