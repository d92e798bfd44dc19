// longstride report RUN: one self-contained page about a run: its curves, scores, samples, attention, speed, memory,
// settings and environment.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "framework/core/errors.h"
#include "framework/core/files/files.h"
#include "framework/core/text/numbers.h"
#include "framework/core/text/printable.h"
#include "framework/train/checkpoint/checkpoint.h"
#include "framework/train/metrics/progress.h"
#include "framework/train/step/memory_plan.h"
#include "launch/commands/commands.h"
#include "launch/console/json_output.h"
#include "launch/console/output.h"
#include "launch/report/html.h"
#include "launch/report/report_style.h"
#include "launch/report/run_history.h"
#include "launch/run/run_directory.h"
#include "launch/run/run_records.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using Rows = std::vector<std::pair<std::string, std::string>>;

struct ReportOptions {
  std::string run, output;
  bool replace = false, json = false;
};

std::string table(const Rows& rows) {
  std::string out = "<table class=\"facts\">\n";
  for (const auto& [name, value] : rows)
    out += fmt::format("<tr><th scope=\"row\">{}</th><td>{}</td></tr>\n", html_text(name), html_text(value));
  return out + "</table>\n";
}

std::string section(const std::string& title, const std::string& content) {
  return content.empty() ? "" : fmt::format("<section>\n<h2>{}</h2>\n{}</section>\n", html_text(title), content);
}

std::string figure(const std::string& media, const std::string& caption) {
  return fmt::format("<figure>{}<figcaption>{}</figcaption></figure>\n", media, html_text(caption));
}

std::string size_text(std::int64_t bytes) {
  const auto size = static_cast<double>(bytes);
  const bool large = bytes >= 1 << 30;
  return fmt::format("{:.2f} {} ({} bytes)", large ? size / (1 << 30) : size / (1 << 20), large ? "GiB" : "MiB",
                     thousands(bytes));
}

// Regular files of a folder with this ending, in order.
std::vector<fs::path> files_in(const fs::path& folder, const std::string& ending) {
  std::vector<fs::path> files;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none))
    if (entry.is_regular_file() && entry.path().extension() == ending) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

std::string schedule_text(const TrainConfig& t) {
  std::string text = t.warmup > 0 ? fmt::format("{:g} after {} steps of warmup", t.lr, thousands(t.warmup))
                                  : fmt::format("{:g} from the first step", t.lr);
  switch (t.schedule) {
    case kernels::ScheduleKind::cosine:
      return text + fmt::format(", cosine to {:g}", t.lr_floor);
    case kernels::ScheduleKind::constant:
      return text + ", then constant";
    case kernels::ScheduleKind::warmup_stable_decay:
      return text + fmt::format(", to {:g} in the last {} steps", t.lr_floor, thousands(t.steps_of_decay()));
  }
  return text;
}

class Report {
 public:
  explicit Report(const std::string& run)
      : run_(run),
        state_(read_newest_state(run)),
        recipe_(recipe_of_run(state_.recipe, run + "/recipe.yaml")),
        model_(recipe_.model->make_model()),
        history_(read_history(run)),
        step_tokens_(static_cast<double>(recipe_.train.global_batch * recipe_.data.context)) {}

  std::string page();

 private:
  std::string headline();
  std::string curves() const;
  std::string scores() const;
  std::string speed() const;
  std::string memory();
  std::string samples() const;
  std::string attention() const;
  std::string environment() const;
  std::string settings() const;
  std::string pictures(const fs::path& folder) const;

  std::string run_;
  CheckpointState state_;
  Recipe recipe_;
  std::unique_ptr<Model> model_;
  RunHistory history_;
  double step_tokens_;
};

std::string Report::headline() {
  const auto card = [](const std::string& value, const char* what) {
    return fmt::format("<div><b>{}</b><span>{}</span></div>\n", html_text(value), what);
  };
  std::string out = "<div class=\"cards\">\n";
  if (!history_.evaluations.empty())
    out += card(fmt::format("{:.3f}", history_.evaluations.back().bits_per_byte), "bits per byte, valid");
  else if (!history_.steps.empty())
    out += card(fmt::format("{:.3f}", history_.steps.back().bits_per_byte), "bits per byte, training");
  out += card(fmt::format("{:.1f} M", static_cast<double>(model_->parameters().count()) / 1e6), "parameters");
  out += card(thousands(state_.step) + " / " + thousands(recipe_.train.steps), "steps");
  out += card(rate_text(static_cast<double>(state_.tokens_seen)), "bytes seen");
  if (const auto seconds = history_.seconds_per_step(step_tokens_))
    out += card(rate_text(step_tokens_ / *seconds), "tokens per second");
  return out + "</div>\n";
}

std::string Report::curves() const {
  Series training{"training", "a", {}, false}, valid{"valid", "b", {}, true};
  Series rate{"rate", "a", {}, false}, norm{"norm", "a", {}, false}, speed{"speed", "a", {}, false};
  for (const StepPoint& p : history_.steps) {
    const auto step = static_cast<double>(p.step);
    training.points.emplace_back(step, p.bits_per_byte);
    rate.points.emplace_back(step, p.lr);
    norm.points.emplace_back(step, p.grad_norm);
    speed.points.emplace_back(step, p.tokens_per_second);
  }
  for (const EvaluationPoint& p : history_.evaluations)
    valid.points.emplace_back(static_cast<double>(p.step), p.bits_per_byte);
  return "<div class=\"plots\">\n" + line_plot("bits per byte by step", {training, valid}) +
         line_plot("tokens per second", {speed}) + line_plot("gradient norm", {norm}, true) +
         line_plot("learning rate", {rate}) + "</div>\n";
}

std::string Report::scores() const {
  std::string rows;
  for (const KeptEvaluation& e : kept_evaluations(run_))
    rows += fmt::format("<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{:.4f}</td></tr>\n",
                        thousands(e.step), html_text(e.split), html_text(fs::path(e.data).filename().string()),
                        e.min_context > 0 ? thousands(e.min_context) : "", thousands(e.bytes), e.bits_per_byte);
  std::string out;
  if (recipe_.reproduces.table > 0)
    out += fmt::format("<p>The paper's figure, table {}, {}: <b>{}</b> bits per byte.</p>\n", recipe_.reproduces.table,
                       html_text(recipe_.reproduces.row), recipe_.reproduces.bits_per_byte);
  if (rows.empty()) return out;
  return out +
         "<div class=\"wide\"><table><tr><th>step</th><th>split</th><th>data</th><th>minimum context</th><th>bytes</th>"
         "<th>bits per byte</th></tr>\n" +
         rows + "</table></div>\n";
}

std::string Report::speed() const {
  const auto seconds = history_.seconds_per_step(step_tokens_);
  if (!seconds) return "";
  const double flops =
      model_->cost(recipe_.data.context).training_flops * static_cast<double>(recipe_.train.global_batch);
  Rows rows = {
      {"step time", fmt::format("{:.4g} s, median of the logged steps", *seconds)},
      {"tokens per second", thousands(static_cast<std::int64_t>(step_tokens_ / *seconds))},
      {"operations", fmt::format("{:.4g} TFLOP per step, {:.4g} TFLOP/s", flops / 1e12, flops / *seconds / 1e12)},
      {"training, all logged steps", duration_text(history_.seconds(step_tokens_))},
      {"ranks", fmt::format("{}", state_.world_size)}};
  return table(rows);
}

// A run on a GPU is planned if this program supports GPUs; otherwise the page shows what the run itself wrote.
std::string Report::memory() {
  const Device device = history_.device.empty() ? Device::cpu : Device::cuda;
  const MemoryPlan plan = plan_memory(*model_, recipe_.train, state_.world_size, device);
  Rows rows = {{"parameters", size_text(plan.parameters)},
               {"gradients", size_text(plan.gradients)},
               {"optimizer", size_text(plan.optimizer)},
               {"batch", size_text(plan.batch)},
               {"activations", size_text(plan.activations)}};
  if (plan.average > 0) rows.push_back({"average of weights", size_text(plan.average)});
  if (plan.libraries > 0) rows.push_back({"libraries", size_text(plan.libraries)});
  rows.push_back({"planned, one block", size_text(plan.block())});
  if (history_.used_bytes > 0) rows.push_back({"used", size_text(history_.used_bytes)});
  if (history_.host_peak_bytes > 0) rows.push_back({"most of the host's, rank 0", size_text(history_.host_peak_bytes)});
  return table(rows);
}

std::string Report::pictures(const fs::path& folder) const {
  constexpr std::size_t most = 16;
  std::string out;
  if (fs::exists(folder / "grid.png"))
    return figure(fmt::format("<img class=\"pixels\" alt=\"grid of samples\" src=\"{}\">",
                              data_uri("image/png", read_file((folder / "grid.png").string()))),
                  "all samples");
  const std::vector<fs::path> files = files_in(folder, ".png");
  for (std::size_t i = 0; i < std::min(most, files.size()); ++i)
    out += fmt::format("<img class=\"pixels small\" alt=\"{}\" src=\"{}\">\n", files[i].stem().string(),
                       data_uri("image/png", read_file(files[i].string())));
  return out;
}

std::string Report::samples() const {
  constexpr std::size_t most_sounds = 4, most_texts = 4, most_characters = 1500;
  const fs::path folder = fs::path(run_) / "samples";
  std::string out = pictures(folder);
  const std::vector<fs::path> sounds = files_in(folder, ".wav"), texts = files_in(folder, ".txt");
  for (std::size_t i = 0; i < std::min(most_sounds, sounds.size()); ++i)
    out += figure(fmt::format("<audio controls preload=\"none\" src=\"{}\"></audio>",
                              data_uri("audio/wav", read_file(sounds[i].string()))),
                  sounds[i].filename().string());
  for (std::size_t i = 0; i < std::min(most_texts, texts.size()); ++i)
    out += fmt::format("<pre class=\"sample\">{}</pre>\n",
                       html_text(read_file(texts[i].string()).substr(0, most_characters)));
  if (out.empty()) return fmt::format("<p>None yet: <code>longstride sample {}</code></p>\n", html_text(run_));
  const std::size_t left = (sounds.size() > most_sounds ? sounds.size() - most_sounds : 0) +
                           (texts.size() > most_texts ? texts.size() - most_texts : 0);
  if (left > 0) out += fmt::format("<p>{} more in {}</p>\n", left, html_text(folder.string()));
  return out;
}

// At most eight layers' sheets, spread over the depth.
std::string Report::attention() const {
  constexpr std::size_t most = 8;
  const fs::path folder = fs::path(run_) / "attention";
  if (!fs::exists(folder / "attention.json"))
    return fmt::format("<p>None yet: <code>longstride attention {}</code></p>\n", html_text(run_));
  const Json index = Json::parse(read_file((folder / "attention.json").string()), nullptr, false);
  if (!index.is_object() || !index.contains("sheets")) return "";
  const Json& sheets = index.at("sheets");
  std::string out =
      "<p>White: what the outlined query attends to; black: the future. One row per head and one column per query; "
      "wide "
      "strips are stacked.</p>\n<div class=\"sheets\">\n";
  const std::size_t count = std::min(most, sheets.size());
  for (std::size_t i = 0; i < count; ++i) {
    const Json& sheet = sheets.at(i * sheets.size() / count);
    const fs::path file = folder / sheet.at("file").get<std::string>();
    if (!fs::exists(file)) continue;
    const std::string name =
        fmt::format("layer {}: {}", sheet.at("layer").get<int>(), sheet.at("part").get<std::string>());
    out += figure(fmt::format("<img alt=\"attention of {}\" src=\"{}\">", html_text(name),
                              data_uri("image/png", read_file(file.string()))),
                  name);
  }
  return out + "</div>\n";
}

std::string Report::environment() const {
  const fs::path file = newest_record(run_, "environment.json");
  if (!fs::exists(file)) return "";
  const Json kept = Json::parse(read_file(file.string()), nullptr, false);
  Rows rows;
  for (const auto& [key, value] : kept.items())
    rows.emplace_back(key, value.is_string() ? value.get<std::string>() : value.dump());
  return table(rows);
}

std::string Report::settings() const {
  std::string context = thousands(recipe_.data.context);
  for (auto stage = recipe_.train.stages.rbegin(); stage != recipe_.train.stages.rend(); ++stage)
    context += fmt::format(", {} until step {}", thousands(stage->context), thousands(stage->until));
  const char* kind = recipe_.train.optimizer == OptimizerKind::muon ? "Muon and Adam" : "Adam";
  Rows rows = {{"model", recipe_.model->summary()},
               {"context", context},
               {"batch", fmt::format("{} sequences, {} bytes", recipe_.train.global_batch,
                                     thousands(recipe_.train.global_batch * recipe_.data.context))},
               {"optimizer",
                fmt::format("{}, weight decay {:g}, clip {:g}", kind, recipe_.train.weight_decay, recipe_.train.clip)},
               {"learning rate", schedule_text(recipe_.train)},
               {"data", recipe_.data.path}};
  if (!state_.began_from.empty()) rows.emplace_back("began with the weights of", state_.began_from);
  if (const auto* shown = capability<ShowsAttention>(*model_)) {
    const kernels::PatternConfig pattern = shown->attention().pattern;
    std::string parts;
    for (kernels::PartKind part : pattern.parts) parts += (parts.empty() ? "" : ", ") + std::string(name_of(part));
    rows.insert(rows.begin() + 1, {"attention", fmt::format("{}, stride {}", parts, pattern.stride)});
  }
  return table(rows) + fmt::format("<details><summary>the whole recipe</summary><pre>{}</pre></details>\n",
                                   html_text(recipe_.resolved));
}

std::string Report::page() {
  const std::string title = html_text(recipe_.name);
  return fmt::format(
             "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
             "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{}</title>\n"
             "<style>\n{}</style>\n</head>\n<body>\n<main>\n<h1>{}</h1>\n",
             title, report_style, title) +
         headline() + section("Curves", curves()) + section("Scores", scores()) + section("Samples", samples()) +
         section("Attention", attention()) + section("Speed", speed()) + section("Memory per rank", memory()) +
         section("Settings", settings()) + section("Environment", environment()) + "</main>\n</body>\n</html>\n";
}

// The page is made from the run's files, and may replace none of them except an older page.
void check_page(const ReportOptions& o, const std::string& own_page) {
  std::error_code error;
  const fs::path page = fs::weakly_canonical(follow_links(o.output), error);
  const fs::path within = page.lexically_relative(fs::canonical(o.run, error));
  if (!error && !within.empty() && *within.begin() != ".." && page.extension() != ".html")
    throw user_error("{}: is in the run that the report is made from; give --output a name that ends in .html",
                     printable(o.output));
  check_output_file(o.output, o.replace || is_same_place(o.output, own_page), {});
}

void run_report(const ReportOptions& o, Session& session) {
  if (session.comm->rank() != 0) return;
  const std::string own_page = (fs::path(o.run) / "report.html").string();
  const std::string path = o.output.empty() ? own_page : o.output;
  if (!o.output.empty()) check_page(o, own_page);
  const std::string page = Report(o.run).page();
  write_file_atomically(path, page);
  if (o.json) return print_json({{"output", path}, {"run", o.run}, {"bytes", page.size()}});
  print_written(path, thousands(static_cast<std::int64_t>(page.size())) + " bytes, self-contained");
}

}  // namespace

void add_report(CLI::App& app, Session& session) {
  auto o = std::make_shared<ReportOptions>();
  CLI::App* report = app.add_subcommand("report", "One page about a run: curves, memory, samples, attention");
  report->add_option("run", o->run, "run directory")->required();
  report->add_option("--output", o->output, "HTML file to write; default: RUN/report.html");
  report->add_flag("--force", o->replace, "replace the file named with --output");
  add_json_option(*report, o->json);
  report->callback([o, &session] { run_report(*o, session); });
}

}  // namespace longstride
