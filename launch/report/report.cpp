// longstride report RUN...: one self-contained page about a run: its curves, scores, samples, attention, speed, memory,
// settings and environment; or one that compares several runs. --follow keeps it up to date while they train.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <thread>

#include "framework/core/errors.h"
#include "framework/core/files/files.h"
#include "framework/core/files/inside.h"
#include "framework/core/text/json.h"
#include "framework/core/text/numbers.h"
#include "framework/core/text/printable.h"
#include "framework/models/mixes_positions.h"
#include "framework/train/checkpoint/checkpoint.h"
#include "framework/train/metrics/progress.h"
#include "framework/train/run/stop.h"
#include "framework/train/stages.h"
#include "framework/train/step/memory_plan.h"
#include "launch/commands/commands.h"
#include "launch/console/json_output.h"
#include "launch/console/output.h"
#include "launch/report/comparison.h"
#include "launch/report/html.h"
#include "launch/report/report_axis.h"
#include "launch/report/run_facts.h"
#include "launch/report/run_history.h"
#include "launch/report/run_media.h"
#include "launch/run/run_directory.h"
#include "launch/run/run_records.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;
using Rows = std::vector<std::pair<std::string, std::string>>;

struct ReportOptions {
  std::vector<std::string> runs;
  std::string output;
  bool replace = false, json = false, follow = false;
  int interval = 10;  // seconds
  std::string by = "step";

  ReportAxis axis() const {
    return static_cast<ReportAxis>(std::find(std::begin(axis_names), std::end(axis_names), by) -
                                   std::begin(axis_names));
  }
};

std::string size_text(std::int64_t bytes) {
  const auto size = static_cast<double>(bytes);
  const bool large = bytes >= 1 << 30;
  return fmt::format("{:.2f} {} ({} bytes)", large ? size / (1 << 30) : size / (1 << 20), large ? "GiB" : "MiB",
                     thousands(bytes));
}

// The rates of stages that have a learning rate of their own.
std::string rates_of_stages(const TrainConfig& t) {
  std::string text;
  for (const Stage& stage : t.stages)
    if (stage.lr > 0) text += fmt::format("; {:g} until step {}", t.peak_of(stage.lr), thousands(stage.until));
  return text;
}

std::string schedule_text(const TrainConfig& t) {
  std::string text = t.warmup > 0 ? fmt::format("{:g} after {} of warmup", t.peak(), counted(t.warmup, "step"))
                                  : fmt::format("{:g} from the first step", t.peak());
  switch (t.schedule) {
    case kernels::ScheduleKind::cosine:
      return text + fmt::format(", cosine to {:g}", t.lr_floor);
    case kernels::ScheduleKind::constant:
      return text + ", then constant";
    case kernels::ScheduleKind::warmup_stable_decay:
      return text + fmt::format(", to {:g} in the last {}", t.lr_floor,
                                t.steps_of_decay() == 1 ? "step" : counted(t.steps_of_decay(), "step"));
    case kernels::ScheduleKind::reciprocal_sqrt:
      return text + fmt::format(", from step {} on with its reciprocal square root", thousands(t.first_of_decay()));
  }
  return text;
}

const char* optimizer_text(OptimizerKind kind) {
  switch (kind) {
    case OptimizerKind::adam:
      return "Adam";
    case OptimizerKind::muon:
      return "Muon and Adam";
    case OptimizerKind::adagrad:
      return "Adagrad";
    case OptimizerKind::adafactor:
      return "Adafactor";
  }
  return "";
}

class Report {
 public:
  Report(RunFacts& facts, ReportAxis by)
      : by_(by),
        axis_(facts, by),
        run_(facts.run),
        state_(facts.state),
        recipe_(facts.recipe),
        model_(facts.model.get()),
        history_(facts.history),
        spans_(facts.spans),
        passes_(facts.passes()),
        pretrained_(facts.pretrained),
        scored_(facts.recipe.objective->shown_form().name),
        trained_(facts.recipe.objective->shown_of_loss(0).name),
        tokens_before_([&facts](std::int64_t step) { return facts.tokens_before(step); }),
        media_(facts.run) {}

  std::string body();

 private:
  std::string headline();
  std::string curves() const;
  std::string auxiliary_losses() const;
  std::string scores() const;
  std::string speed() const;
  std::string memory();
  std::string environment() const;
  std::string settings() const;
  std::string settings_of_folder() const;

  const ReportAxis by_;
  const RunAxis axis_;
  const std::string& run_;
  const CheckpointState& state_;
  const Recipe& recipe_;
  Model* model_;
  const RunHistory& history_;
  const RunSpans& spans_;
  const std::string passes_;
  const bool pretrained_;
  const std::string scored_, trained_;  // names of the shown figures of evaluations and of steps
  RunHistory::TokensBefore tokens_before_;
  RunMedia media_;
};

std::string Report::headline() {
  const auto card = [](const std::string& value, const std::string& what) {
    return fmt::format("<div><b>{}</b><span>{}</span></div>\n", html_text(value), what);
  };
  std::string out = "<div class=\"cards\">\n";
  if (!history_.evaluations.empty())
    out += card(fmt::format("{:.3f}", history_.evaluations.back().figure), scored_ + ", valid");
  else if (!history_.steps.empty())
    out += card(fmt::format("{:.3f}", history_.steps.back().figure), trained_ + ", training");
  out += card(in_millions(static_cast<double>(model_->parameters().count())), "parameters");
  out += card(thousands(state_.step) + (pretrained_ ? "" : " / " + thousands(recipe_.train.steps)), "steps");
  if (!pretrained_ || state_.tokens_seen > 0)
    out += card(rate_text(static_cast<double>(state_.tokens_seen)), "bytes seen");
  if (!passes_.empty()) out += card(passes_, "passes over train");
  if (const auto rate = history_.tokens_per_second()) out += card(rate_text(*rate), "tokens per second");
  return out + "</div>\n";
}

std::string Report::curves() const {
  Series training{"training", "a", {}, false}, valid{"valid", "b", {}, true};
  Series rate{"rate", "a", {}, false}, norm{"norm", "a", {}, false}, speed{"speed", "a", {}, false};
  for (const StepPoint& p : history_.steps) {
    const double step = axis_.at(p.step);
    training.points.emplace_back(step, p.figure);
    rate.points.emplace_back(step, p.lr);
    norm.points.emplace_back(step, p.grad_norm);
    speed.points.emplace_back(step, p.tokens_per_second);
  }
  for (const EvaluationPoint& p : history_.evaluations) valid.points.emplace_back(axis_.at(p.step), p.figure);
  const std::string by = name_of(by_), over = " by " + by;
  const std::string losses = scored_ == trained_ ? line_plot(scored_ + over, {training, valid}, false, by)
                                                 : line_plot(trained_ + over, {training}, false, by) +
                                                       line_plot(scored_ + over, {valid}, false, by);
  return "<div class=\"plots\">\n" + losses + line_plot("tokens per second", {speed}, false, by) +
         line_plot("gradient norm", {norm}, true, by) + line_plot("learning rate", {rate}, false, by) +
         auxiliary_losses() + "</div>\n";
}

std::string Report::auxiliary_losses() const {
  std::map<std::string, Series> by_name;
  for (const StepPoint& p : history_.steps)
    for (const auto& [name, loss] : p.auxiliary)
      by_name.try_emplace(name, Series{name, "a", {}, false}).first->second.points.emplace_back(axis_.at(p.step), loss);
  std::string out;
  for (const auto& [name, series] : by_name) out += line_plot("loss of " + name, {series}, false, name_of(by_));
  return out;
}

std::string Report::scores() const {
  std::string rows;
  for (const KeptEvaluation& e : kept_evaluations(run_, *recipe_.objective))
    rows += fmt::format("<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{:.4f}</td></tr>\n",
                        thousands(e.step), html_text(e.split), html_text(fs::path(e.data).filename().string()),
                        e.min_context > 0 ? thousands(e.min_context) : "", html_text(memory_text(e)),
                        thousands(e.bytes), e.figure);
  std::string out;
  if (recipe_.reproduces.given())
    out += fmt::format("<p>The paper's figure, {}, {}: <b>{}</b> bits per byte.</p>\n",
                       html_text(recipe_.reproduces.where()), html_text(recipe_.reproduces.row),
                       recipe_.reproduces.bits_per_byte);
  if (rows.empty()) return out;
  return out +
         "<div class=\"wide\"><table><tr><th>step</th><th>split</th><th>data</th><th>minimum context</th>"
         "<th>memory</th><th>bytes</th><th>" +
         scored_ + "</th></tr>\n" + rows + "</table></div>\n";
}

std::string Report::speed() const {
  const auto seconds = history_.seconds_per_step(tokens_before_);
  if (!seconds) return "";
  const double flops =
      model_->cost(recipe_.data.context).training_flops * static_cast<double>(recipe_.train.global_batch);
  Rows rows = {
      {"step time", fmt::format("{:.4g} s, median of the logged steps", *seconds)},
      {"tokens per second", thousands(static_cast<std::int64_t>(*history_.tokens_per_second()))},
      {"operations", fmt::format("{:.4g} TFLOP per step, {:.4g} TFLOP/s", flops / 1e12, flops / *seconds / 1e12)},
      {"training, all logged steps", duration_text(history_.seconds(tokens_before_))},
      {"ranks", fmt::format("{}", state_.world_size)}};
  return facts_table(rows);
}

// A run on a GPU is planned if this program supports GPUs; otherwise the page shows what the run itself wrote.
std::string Report::memory() {
  constexpr int most_ranks = 1 << 13;  // planning takes the square of their number
  if (pretrained_ || state_.world_size > most_ranks) return "";
  const Device device = history_.device.empty() ? Device::cpu : Device::cuda;
  const MemoryPlan plan = plan_memory(*model_, recipe_.train, state_.world_size, device);
  Rows rows = {{"parameters", size_text(plan.parameters)},
               {"gradients", size_text(plan.gradients)},
               {"optimizer", size_text(plan.optimizer)},
               {"batch", size_text(plan.batch)},
               {"activations", size_text(plan.activations)}};
  if (plan.states > 0) rows.push_back({"states of rows", size_text(plan.states)});
  if (plan.average > 0) rows.push_back({"average of weights", size_text(plan.average)});
  if (plan.libraries > 0) rows.push_back({"libraries", size_text(plan.libraries)});
  rows.push_back({"planned, one block", size_text(plan.block())});
  if (history_.used_bytes > 0) rows.push_back({"used", size_text(history_.used_bytes)});
  if (history_.host_peak_bytes > 0) rows.push_back({"most of the host's, rank 0", size_text(history_.host_peak_bytes)});
  return facts_table(rows);
}

std::string Report::environment() const {
  constexpr std::uint64_t most_bytes = 128 << 10;  // for each name, the parser looks at all earlier ones
  const fs::path file = newest_record(run_, "environment.json");
  if (!fs::exists(file)) return "";
  const Json kept = parse_json<Json>(read_at_most(file.string(), most_bytes));
  if (!kept.is_object()) return "";
  Rows rows;
  for (const auto& [key, value] : kept.items())
    rows.emplace_back(key, value.is_string() ? value.get<std::string>() : value.dump());
  return facts_table(rows);
}

// Its training has settings of another program.
std::string Report::settings_of_folder() const {
  const std::string& whole = recipe_.resolved;
  const std::size_t begin = std::min(whole.find("model:\n"), whole.size()), end = whole.find("\ntrain:", begin);
  return facts_table({{"model", recipe_.model->summary()}, {"context", thousands(recipe_.data.context)}}) +
         fmt::format("<details><summary>settings of the model</summary><pre>{}</pre></details>\n",
                     html_text(whole.substr(begin, end - begin)));
}

std::string Report::settings() const {
  if (pretrained_) return settings_of_folder();
  std::string context = thousands(recipe_.data.context);
  for (auto stage = recipe_.train.stages.rbegin(); stage != recipe_.train.stages.rend(); ++stage)
    if (stage->context < recipe_.data.context)
      context += fmt::format(", {} until step {}", thousands(stage->context), thousands(stage->until));
  if (recipe_.data.documents != Documents::joined)
    context += fmt::format(", documents {}", name_of(recipe_.data.documents));
  std::string batch = fmt::format("{} sequences, {} bytes", recipe_.train.global_batch,
                                  thousands(recipe_.train.global_batch * recipe_.data.context));
  for (const StageSteps& steps : stretches(recipe_.train, recipe_.data.context))
    if (steps.stage != nullptr && steps.stage->global_batch > 0)
      batch += fmt::format("; {} sequences, {} bytes until step {}", steps.shape.rows,
                           thousands(steps.shape.positions()), thousands(steps.end));
  const char* kind = optimizer_text(recipe_.train.optimizer);
  Rows rows = {{"model", recipe_.model->summary()},
               {"context", context},
               {"batch", batch},
               {"optimizer",
                fmt::format("{}, weight decay {:g}, clip {:g}", kind, recipe_.train.weight_decay, recipe_.train.clip)},
               {"learning rate", schedule_text(recipe_.train) + rates_of_stages(recipe_.train)},
               {"data", recipe_.data.path}};
  if (!state_.began_from.empty()) rows.emplace_back("began with the weights of", state_.began_from);
  if (const auto* mixes = capability<MixesPositions>(*model_))
    rows.insert(rows.begin() + 1, {"attention", mixes->mixer(0).summary()});
  return facts_table(rows) + fmt::format("<details><summary>the whole recipe</summary><pre>{}</pre></details>\n",
                                         html_text(recipe_.resolved));
}

std::string Report::body() {
  return headline() + section("Curves", curves()) + section("Scores", scores()) + section("Samples", media_.samples()) +
         section("Attention", media_.attention()) + section("Spans", spans_as_html(spans_)) +
         section("Speed", speed()) + section("Memory per rank", memory()) + section("Settings", settings()) +
         section("Environment", environment());
}

// Not even --force replaces what is no page: it is usually a mistyped name. An empty file, as mktemp makes, is no loss.
void check_replaced(const std::string& path) {
  constexpr std::uint64_t most_bytes = 1 << 20;
  std::error_code error;
  if (resolve_output(path).stream || !fs::is_regular_file(path, error) || fs::file_size(path, error) == 0 ||
      is_html_page(read_beginning(path, most_bytes)))
    return;
  throw user_error(
      "{}: was not written by `longstride report`, so it is not replaced; move it away, or name another "
      "file with --output",
      printable(path));
}

// The page is made from the runs' files, and may replace none of them except an older page.
void check_page(const ReportOptions& o, const std::string& own_page) {
  std::error_code error;
  const fs::path page = fs::weakly_canonical(follow_links(o.output), error);
  for (const std::string& run : o.runs) {
    const fs::path within = page.lexically_relative(fs::canonical(run, error));
    if (!error && !within.empty() && *within.begin() != ".." && page.extension() != ".html")
      throw user_error("{}: is in the run that the report is made from; give --output a name that ends in .html",
                       printable(o.output));
  }
  check_replaced(o.output);
  check_output_file(o.output, o.replace || is_same_place(o.output, own_page), {});
  check_json_output(o.json, o.output);
  if (o.follow && resolve_output(o.output).stream)
    throw user_error("{}: cannot be written again and again; give --follow a file with --output", printable(o.output));
}

struct Page {
  std::string text;
  Json spans;            // by run, of those whose heads learn some
  bool finished = true;  // no run will add to it
};

Page make_page(const ReportOptions& o, int reload) {
  std::vector<RunFacts> facts;
  Page page;
  for (const std::string& run : o.runs) {
    facts.push_back(read_run(run, o.follow));
    if (facts.back().pretrained && o.axis() != ReportAxis::step)
      throw user_error("--by is {}, but {} says no more of its training than steps; leave --by out", o.by,
                       printable(run));
    page.finished = page.finished && facts.back().finished;
    if (!facts.back().spans.layers.empty()) page.spans[run] = spans_as_json(facts.back().spans);
  }
  if (page.finished) reload = 0;
  page.text = facts.size() == 1 ? html_page(facts.front().recipe.name, Report(facts.front(), o.axis()).body(), reload)
                                : html_page(fmt::format("{} runs", facts.size()), comparison(facts, o.axis()), reload);
  return page;
}

void wait_for(int seconds) {
  const auto end = Clock::now() + std::chrono::seconds(seconds);
  while (Clock::now() < end && !stop_requested()) std::this_thread::sleep_for(std::chrono::milliseconds(50));
}

// Until every run is finished, or a signal comes; the last page does not reload. Between two looks at its files a run
// replaces some of them, so a look that fails is repeated.
Page follow(const ReportOptions& o, const std::string& path) {
  catch_stop_signals();
  Page page = make_page(o, o.interval);
  write_file_atomically(path, page.text);
  if (!page.finished)
    spdlog::info("{}: made again every {} s until the training ends; Ctrl-C to stop", printable(path), o.interval);
  while (!page.finished && !stop_requested()) {
    wait_for(o.interval);
    try {
      page = make_page(o, stop_requested() ? 0 : o.interval);
    } catch (const UserError& error) {
      spdlog::warn("{}; trying again", error.what());
      continue;
    }
    write_file_atomically(path, page.text);
  }
  return page;
}

void run_report(const ReportOptions& o, Session& session) {
  if (session.comm->rank() != 0) return;
  if (o.runs.size() > 1 && o.output.empty())
    throw user_error("several runs have no folder in common for the page; name the file to write with --output");
  for (std::size_t i = 1; i < o.runs.size(); ++i)
    for (std::size_t k = 0; k < i; ++k)
      if (is_same_place(o.runs[k], o.runs[i]))
        throw user_error("{}: is given twice; name every run once", printable(o.runs[i]));
  const std::string own_page = (fs::path(o.runs.front()) / "report.html").string();
  if (o.output.empty()) inside(o.runs.front(), "report.html");
  const std::string path = o.output.empty() ? own_page : o.output;
  o.output.empty() ? check_replaced(own_page) : check_page(o, own_page);
  const Page page = o.follow ? follow(o, path) : make_page(o, 0);
  if (!o.follow) write_file_atomically(path, page.text);
  if (o.json) {
    Json out = {{"output", path}, {"runs", o.runs}, {"bytes", page.text.size()}};
    if (!page.spans.is_null()) out["spans"] = page.spans;
    return print_json(out);
  }
  print_written(path, thousands(static_cast<std::int64_t>(page.text.size())) + " bytes, self-contained");
}

}  // namespace

void add_report(CLI::App& app, Session& session) {
  auto o = std::make_shared<ReportOptions>();
  CLI::App* report =
      app.add_subcommand("report", "One page about a run (curves, memory, samples, attention), or comparing several");
  report->add_option("run", o->runs, std::string(run_or_folder) + "; several are compared")->required();
  report->add_option("--output", o->output, "HTML file to write; default: RUN/report.html");
  CLI::Option* follow = report->add_flag("--follow", o->follow,
                                         "make the page again while the run trains; a browser that shows it follows");
  report->add_option("--interval", o->interval, "with --follow: seconds between two pages")
      ->check(CLI::Range(1, 3600))
      ->capture_default_str()
      ->needs(follow);
  report->add_option("--by", o->by, "what the curves are drawn over: steps, bytes seen, or seconds of training")
      ->check(CLI::IsMember({"step", "bytes", "seconds"}))
      ->capture_default_str();
  report->add_flag("--force", o->replace, "replace the file named with --output");
  add_json_option(*report, o->json);
  report->callback([o, &session] { run_report(*o, session); });
}

}  // namespace longstride
