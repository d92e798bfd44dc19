// longstride reproduce TABLE: runs, resumes or reads the runs of a table's rows and writes the table next to the
// paper's figures.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>

#include "datasets/dataset.h"
#include "framework/core/errors.h"
#include "framework/core/files/files.h"
#include "framework/train/checkpoint/checkpoint.h"
#include "framework/train/metrics/progress.h"
#include "framework/train/run/stop.h"
#include "framework/train/stages.h"
#include "framework/train/step/precision.h"
#include "framework/train/step/training_step.h"
#include "launch/commands/commands.h"
#include "launch/commands/toy_data.h"
#include "launch/console/arguments.h"
#include "launch/console/device_option.h"
#include "launch/console/json_output.h"
#include "launch/recipe/installed_recipes.h"
#include "launch/report/run_history.h"
#include "launch/reproduce/earlier_results.h"
#include "launch/reproduce/reproduction.h"
#include "launch/run/evaluate_run.h"
#include "launch/run/random_rows.h"
#include "launch/run/recompute.h"
#include "launch/run/same_on_ranks.h"
#include "launch/run/train_run.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::int64_t toy_windows = 8;

struct ReproduceOptions {
  std::string table, scale = "paper", recipes = "recipes", output, data;
  std::vector<std::string> rows, overrides;
  double time_limit = 0;     // seconds; 0: none
  double train_seconds = 0;  // time of every row; 0: the recipe's steps
  std::int64_t windows = 0;
  int steps = 20;
  bool json = false;
  DeviceOption device;
};

class Reproduction {
 public:
  Reproduction(const ReproduceOptions& options, Session& session);
  void run();

 private:
  std::string directory(const PaperRow& row) const { return (fs::path(output_) / row.run).string(); }
  std::string find_data(const PaperRow& row);
  std::int64_t steps_done(const PaperRow& row) const;
  bool needs_training(const TableRow& row) const;
  void run_row(TableRow& row);
  void train_row(TableRow& row);
  void evaluate_row(TableRow& row);
  void take_kept(const std::string& run, const KeptEvaluation& wanted, Measured& m) const;
  void read_row(TableRow& row) const;
  // Nothing if a signal stops it between two steps.
  std::optional<double> seconds_per_step(Recipe recipe, int steps);
  void time_row(TableRow& row);
  void fit_steps(TableRow& row);
  void share_time(const TableRow& from);
  double seconds_since_begin() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }
  PaperTable whole_table() const;
  void write() const;

  const ReproduceOptions& options_;
  Session& session_;
  Device device_;
  Clock::time_point begin_ = Clock::now();
  std::string output_;
  PaperTable table_;
  std::map<std::string, EarlierResult> earlier_;  // rank 0's; read first, so that a damaged file costs no training
  std::map<DataKind, std::string> data_;          // found or made; empty: there is none
  bool out_of_time_ = false, interrupted_ = false;
};

Scale scale_of(const std::string& name) {
  return name == "paper" ? Scale::paper : name == "smoke" ? Scale::smoke : Scale::speed;
}

Reproduction::Reproduction(const ReproduceOptions& options, Session& session)
    : options_(options), session_(session), device_(chosen_device(options.device, *session.comm)) {
  table_.number = options.table.back() - '0';
  table_.scale = scale_of(options.scale);
  output_ = options.output.empty() ? (fs::path("runs") / ("reproduce-" + options.scale)).string() : options.output;
  for (PaperRow& row : paper_rows(table_.number, options.recipes, table_.scale, options.overrides, options.rows)) {
    TableRow& added = table_.rows.emplace_back();
    added.paper = std::move(row);
  }
}

// Rank 0 looks first, and prepares what has to be prepared; then all ranks look.
std::string Reproduction::find_data(const PaperRow& row) {
  const DataKind kind = row.recipe.data.kind;
  if (const auto found = data_.find(kind); found != data_.end()) return found->second;
  const std::string prepared = (fs::path(output_) / "data").string();
  const auto find = [&]() -> std::string {
    if (!options_.data.empty())
      if (std::string path = dataset_in(options_.data, kind, prepared); !path.empty()) return path;
    if (table_.scale == Scale::smoke) return made_up_dataset(kind, prepared);
    return fs::exists(row.recipe.data.path) ? row.recipe.data.path : "";
  };
  if (session_.comm->rank() == 0) find();
  session_.comm->barrier();
  return data_[kind] = find();
}

std::int64_t Reproduction::steps_done(const PaperRow& row) const {
  return checkpoint_steps(directory(row)).empty() ? 0 : read_newest_state(directory(row), false).step;
}

bool Reproduction::needs_training(const TableRow& row) const {
  return steps_done(row.paper) < row.paper.recipe.train.steps;
}

// Every row that is still to be trained gets an equal share of the time that is left.
void Reproduction::share_time(const TableRow& from) {
  if (options_.time_limit <= 0) return;
  std::map<std::string, bool> waiting;
  for (const TableRow* row = &from; row != table_.rows.data() + table_.rows.size(); ++row)
    if (needs_training(*row)) waiting[row->paper.run] = true;
  const double left = std::max(0.0, options_.time_limit - seconds_since_begin());
  request_stop_after(left / static_cast<double>(std::max<std::size_t>(1, waiting.size())));
}

void Reproduction::train_row(TableRow& row) {
  if (interrupted_ || !needs_training(row)) return;
  TrainRequest request;
  request.recipe = row.paper.recipe;
  request.run = directory(row.paper);
  request.resume = steps_done(row.paper) > 0;
  request.device = device_;
  session_.comm->barrier();  // all ranks have looked before anything is written
  share_time(row);
  const TrainingOutcome outcome = train_run(request, session_);
  session_.comm->barrier();  // every rank can see the last checkpoint
  if (!outcome.stopped) return;
  if (session_.comm->any(stop_signal() != 0))
    interrupted_ = true;
  else
    out_of_time_ = true;
}

// Every rank gets rank 0's answer: a rank that scores waits for the others.
void Reproduction::take_kept(const std::string& run, const KeptEvaluation& wanted, Measured& m) const {
  struct {
    double figure;
    std::int64_t scored;  // -1: there is none
  } answer = {0, -1};
  if (session_.comm->rank() == 0)
    for (const KeptEvaluation& kept : kept_evaluations(run))
      if (kept.same_question(wanted)) answer = {kept.figure, kept.bytes};
  session_.comm->broadcast(&answer, sizeof answer, 0);
  if (answer.scored < 0) return;
  m.bits_per_byte = answer.figure;
  m.scored = answer.scored;
}

// The figure is kept in the run and not computed again.
void Reproduction::evaluate_row(TableRow& row) {
  const std::string run = directory(row.paper);
  KeptEvaluation wanted;
  wanted.step = steps_done(row.paper);
  wanted.data = row.paper.recipe.data.path;
  wanted.min_context = row.paper.min_context;
  wanted.max_windows = options_.windows == 0 && table_.scale == Scale::smoke ? toy_windows : options_.windows;
  const auto dataset = fs::exists(wanted.data) ? Dataset::open(wanted.data) : nullptr;
  wanted.split = dataset == nullptr || dataset->size("test").bytes > 0 ? "test" : "valid";
  if (dataset != nullptr) wanted.sha256 = dataset->stored_sha256(wanted.split);
  const LoadedRun loaded = load_run_on_ranks(run, "automatic", {}, *session_.comm);
  wanted.weights = loaded.averaged ? "average" : "last";
  wanted.memory = loaded.recipe.model->evaluated_memory();
  Measured& m = row.measured;
  take_kept(run, wanted, m);
  m.split = wanted.split;
  if (m.bits_per_byte || dataset == nullptr || interrupted_) return;
  EvaluateRequest request;
  request.split = wanted.split;
  request.data = wanted.data;
  request.min_context = wanted.min_context;
  request.max_windows = wanted.max_windows;
  request.device = device_;
  const EvaluationResult result = evaluate_run(loaded, request, session_);
  m.bits_per_byte = wanted.figure = loaded.recipe.objective->shown_of(result.scored).value;
  m.scored = wanted.bytes = result.bytes;
  wanted.windows = result.windows;
  if (session_.comm->rank() == 0) keep_evaluation(run, wanted);
  session_.comm->barrier();
}

void Reproduction::read_row(TableRow& row) const {
  const std::string run = directory(row.paper);
  const CheckpointState state = read_newest_state(run);
  const RunHistory history = read_history(run);
  const TrainConfig& train = row.paper.recipe.train;
  const auto tokens_before = [&](std::int64_t step) {
    return static_cast<double>(positions_before(train, step, row.paper.recipe.data.context));
  };
  Measured& m = row.measured;
  m.steps = state.step;
  m.tokens = state.tokens_seen;
  m.ranks = state.world_size;
  m.finished = state.step >= train.steps;
  m.seconds_per_step = history.seconds_per_step(tokens_before);
  const std::int64_t logged = history.steps.empty() ? 0 : history.steps.back().step;
  const double unlogged = static_cast<double>(state.step - logged) * m.seconds_per_step.value_or(0);
  m.device_hours = (history.seconds(tokens_before) + unlogged) * m.ranks / 3600;
  m.device = history.device.empty() ? "the CPU" : history.device;
  m.precision = history.device.empty() ? "fp32" : history.precision;
  m.data = fs::path(row.paper.recipe.data.path).filename().string();
  const bool full = m.finished && m.tokens >= m.published_tokens;
  m.evidence = table_.scale == Scale::smoke ? Evidence::toy : full ? Evidence::full_run : Evidence::short_run;
  if (!m.finished) m.note = fmt::format("step {} of {}: the same command continues", state.step, train.steps);
}

// On random bytes, since the time does not depend on them.
std::optional<double> Reproduction::seconds_per_step(Recipe recipe, int steps) {
  recipe.train.stages.clear();  // the last stage, at the whole context, takes the longest
  choose_automatic_recompute(recipe, device_, *session_.comm);
  const auto model = recipe.model->make_model();
  check_device_computes(*model, device_);
  TrainingStep step(*model, recipe.train, *session_.comm, device_);
  const std::vector<std::uint8_t> rows = random_rows(step.state().layout(), *recipe.objective, recipe.data.vocabulary);
  step.start();
  const auto run = [&](std::int64_t count) {
    for (std::int64_t i = 0; i < count && !interrupted_; ++i) {
      step.run(rows.data());
      interrupted_ = session_.comm->any(stop_signal() != 0);
    }
    step.report();
  };
  run(3 + model->warm_up_steps());  // loads kernels, captures the graph, and fills what rows remember
  const Clock::time_point begin = Clock::now();
  run(steps);
  if (interrupted_) return std::nullopt;
  return std::chrono::duration<double>(Clock::now() - begin).count() / steps;
}

void Reproduction::time_row(TableRow& row) {
  const Recipe& recipe = row.paper.recipe;
  Measured& m = row.measured;
  if (!interrupted_) m.seconds_per_step = seconds_per_step(recipe, options_.steps);
  if (interrupted_) {
    m.note = "stopped by a signal before it was timed";
    return;
  }
  m.evidence = Evidence::speed;
  m.steps = options_.steps;
  m.ranks = session_.comm->size();
  m.device = device_ == Device::cpu ? "the CPU" : device_info().name;
  m.precision = name_of(resolved(recipe.train.precision, device_));
}

// As many steps as fit into the seconds, with a full warmup and cosine; a run that has begun keeps its number of steps.
void Reproduction::fit_steps(TableRow& row) {
  Recipe& recipe = row.paper.recipe;
  std::int64_t steps = 0;
  if (steps_done(row.paper) > 0) {
    steps = recipe_of_run(read_newest_state(directory(row.paper), false).recipe, recipe.name).train.steps;
  } else {
    const std::optional<double> seconds = seconds_per_step(recipe, 5);
    if (!seconds) return;
    steps = std::max<std::int64_t>(1, std::llround(options_.train_seconds / *seconds));
    session_.comm->broadcast(&steps, sizeof steps, 0);
  }
  const std::vector<std::string> with = {fmt::format("train.steps={}", steps),
                                         fmt::format("train.warmup={}", std::min(recipe.train.warmup, steps / 20))};
  recipe = parse_recipe(recipe.resolved, recipe.name, with);
}

void Reproduction::run_row(TableRow& row) {
  const TrainConfig& published = row.paper.published.train;
  row.measured.parameters = row.paper.recipe.model->make_model()->parameters().count();
  row.measured.step_tokens = row.paper.recipe.train.global_batch * row.paper.recipe.data.context;
  row.measured.published_tokens = published.steps * published.global_batch * row.paper.published.data.context;
  if (table_.scale == Scale::speed) return time_row(row);
  const std::string data = find_data(row.paper);
  const std::string asked = row.paper.recipe.data.path;
  if (!data.empty()) {
    std::vector<std::string> with = {"data.path=" + data};
    row.paper.recipe = parse_recipe(row.paper.recipe.resolved, row.paper.recipe.name, with);
    if (options_.train_seconds > 0 && !interrupted_) fit_steps(row);
    train_row(row);
  }
  if (steps_done(row.paper) == 0) {
    row.measured.note =
        data.empty() ? asked + " does not exist; make it with `longstride prepare`, or give --data" : "not started";
    return;
  }
  read_row(row);
  evaluate_row(row);
}

// Only some rows: those that an earlier command has run stay in the table.
PaperTable Reproduction::whole_table() const {
  if (options_.rows.empty()) return table_;
  return with_earlier_results(table_, earlier_, paper_rows(table_.number, options_.recipes, table_.scale, {}, {}));
}

void Reproduction::write() const {
  std::error_code error;
  fs::create_directories(output_, error);
  const PaperTable whole = whole_table();
  const std::string base = (fs::path(output_) / options_.table).string();
  nlohmann::ordered_json out = json(whole);
  write_file_atomically(base + ".md", markdown(whole));
  write_file_atomically(base + ".json", out.dump(2) + "\n");
  if (options_.json) {
    out["files"] = {base + ".md", base + ".json"};
    out["stopped"] = interrupted_ ? "signal" : out_of_time_ ? "time" : "";
    return print_json(out);
  }
  std::fputs(terminal_table(whole).c_str(), stdout);
  fmt::print("\n{}.md has all columns, and {}.json the same for programs\n", base, base);
}

void Reproduction::run() {
  catch_stop_signals(session_.comm->rank() == 0 ? training_stops : StopNotices{});
  if (session_.comm->rank() == 0 && !options_.rows.empty())
    earlier_ = earlier_results((fs::path(output_) / (options_.table + ".json")).string(), table_);
  for (TableRow& row : table_.rows) {
    if (session_.comm->rank() == 0) spdlog::info("== {}", row.paper.label);
    run_row(row);
  }
  clear_stop_request();
  if (session_.comm->rank() != 0) return;
  write();
  if ((out_of_time_ || interrupted_) && table_.scale != Scale::speed && !options_.json)
    fmt::print("{}: the same command continues from the checkpoints in {}\n",
               interrupted_ ? "stopped by a signal" : "the time is up", output_);
  for (const TableRow& row : table_.rows)
    if (row.measured.evidence != Evidence::none) return;
  throw user_error("no row of {} could be run: {}", options_.table, table_.rows.front().measured.note);
}

// Options that a scale does not read are refused.
void check_scale(const CLI::App& reproduce, const std::string& scale) {
  const bool speed = scale == "speed";
  for (const char* option : {"--steps", "--data", "--time-limit", "--train-seconds", "--windows"}) {
    const bool times = option == std::string("--steps");
    if (reproduce.count(option) > 0 && times != speed)
      throw user_error("{} has no effect with --scale {}, which {}; leave it out{}", option, scale,
                       speed ? "times steps on random bytes" : "trains", times ? ", or use --set train.steps=N" : "");
  }
}

}  // namespace

void add_reproduce(CLI::App& app, Session& session) {
  auto o = std::make_shared<ReproduceOptions>();
  CLI::App* reproduce =
      app.add_subcommand("reproduce", "Run the rows of a table of the paper and compare with its figures");
  reproduce->add_option("table", o->table, "table1, table2, table3 or table4")
      ->required()
      ->check(CLI::IsMember({"table1", "table2", "table3", "table4"}));
  reproduce
      ->add_option("--scale", o->scale,
                   "paper: the published training; smoke: toy size, minutes; speed: only times the published steps")
      ->capture_default_str()
      ->check(CLI::IsMember({"paper", "smoke", "speed"}));
  reproduce->add_option("--row", o->rows, "only these rows, by the names of their recipes, such as enwik8-dense");
  reproduce->add_option("--data", o->data,
                        "folder of prepared *.h5, matched by kind, or of raw text/, cifar10/, images/, audio/");
  reproduce->add_option("--output", o->output, "folder of the runs and the table; default: runs/reproduce-SCALE");
  reproduce->add_option("--recipes", o->recipes, "folder of table1/ to table4/")->capture_default_str();
  reproduce->add_option("--set", o->overrides, "override a key of every row, as in --set train.steps=2000");
  reproduce
      ->add_option("--time-limit", o->time_limit,
                   "seconds shared by the rows still to be trained; each stops at a checkpoint and can be continued")
      ->check(CLI::Range(1.0, 1e8));
  reproduce
      ->add_option("--train-seconds", o->train_seconds,
                   "short runs: as many steps of every row as take about this many seconds, a twentieth of them warmup")
      ->check(CLI::Range(1.0, 1e8));
  reproduce
      ->add_option("--windows", o->windows, "score only this many windows, from the first; default: all, at toy size 8")
      ->check(above_zero());
  reproduce->add_option("--steps", o->steps, "with --scale speed: steps to time")
      ->capture_default_str()
      ->check(CLI::Range(1, 10000));
  add_device_option(*reproduce, o->device);
  add_json_option(*reproduce, o->json);
  reproduce->callback([o, reproduce, &session] {
    o->recipes = find_recipe(o->recipes);
    check_scale(*reproduce, o->scale);
    check_same_on_ranks(given_options(*reproduce, {"--data", "--recipes", "--json"}), *session.comm);
    Reproduction(*o, session).run();
  });
}

}  // namespace longstride
