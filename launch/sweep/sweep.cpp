#include "launch/sweep/sweep.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <optional>
#include <thread>

#include "datasets/dataset.h"
#include "framework/core/errors.h"
#include "framework/core/files/files.h"
#include "framework/core/files/inside.h"
#include "framework/core/text/json.h"
#include "framework/core/text/numbers.h"
#include "framework/core/text/printable.h"
#include "framework/train/checkpoint/checkpoint.h"
#include "framework/train/metrics/progress.h"
#include "framework/train/run/run_lock.h"
#include "framework/train/run/stop.h"
#include "framework/train/trainer.h"
#include "launch/console/json_output.h"
#include "launch/run/run_data.h"
#include "launch/run/run_directory.h"
#include "launch/run/run_records.h"
#include "launch/sweep/child.h"
#include "launch/sweep/sweep_plan.h"
#include "launch/sweep/sweep_table.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;

// A sweep that was killed leaves a training that saves and ends; until then the run is its.
void wait_until_free(const std::string& run) {
  constexpr int most = 300;  // tenths of a second; after that the new training says who has the run
  for (int i = 0; i < most && fs::exists(fs::path(run) / "lock") && !stop_requested(); ++i) {
    try {
      const RunLock lock(run);
      return;
    } catch (const UserError&) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  }
}

class Sweep {
 public:
  Sweep(const SweepRequest& request, Device device)
      : request_(request),
        plan_(plan_sweep(request.recipe, request.overrides, request.sweeps, request.seeds)),
        directory_(!request.directory.empty()
                       ? request.directory
                       : "runs/" + read_recipe(request.recipe, request.overrides).name + "-sweep"),
        results_(plan_.runs.size()),
        device_(device),
        slots_(device == Device::cuda
                   ? std::min<std::size_t>(static_cast<std::size_t>(device_count()), plan_.runs.size())
                   : 1) {}

  // False if a signal has stopped it.
  bool run();
  void print(bool stopped) const;

 private:
  struct Running {
    std::size_t run = 0, slot = 0;
    pid_t child = 0;
  };

  std::string folder(std::size_t run) const { return (fs::path(directory_) / plan_.runs[run].name).string(); }
  std::string record() const { return (fs::path(directory_) / "sweep.json").string(); }
  void look_at_runs();
  bool has_diverged(std::size_t run, const nlohmann::ordered_json& before) const;
  void start(std::size_t run, std::size_t slot);
  void take(const Running& running, int code);
  void forward_stop();
  void keep() const;

  const SweepRequest& request_;
  const SweepPlan plan_;
  const std::string directory_;
  std::vector<SweepResult> results_;
  const Device device_;
  const std::size_t slots_;  // trainings at once
  std::vector<Running> running_;
  bool told_ = false;    // the children to stop
  std::string failure_;  // why a training failed; empty: none did
};

// Divergence leaves no checkpoint of the last step; the same settings would diverge again.
bool Sweep::has_diverged(std::size_t run, const nlohmann::ordered_json& before) const {
  if (!before.is_object() || !before.contains("runs") || !before.at("runs").is_array()) return false;
  for (const auto& entry : before.at("runs")) {
    if (!entry.is_object() || entry.value("name", "") != plan_.runs[run].name) continue;
    const std::string recipe = newest_record(folder(run), "recipe.yaml");
    return entry.value("outcome", "") == name_of(SweepOutcome::diverged) && fs::exists(recipe) &&
           recipe_of_run(read_at_most(recipe), recipe).resolved == plan_.runs[run].recipe.resolved;
  }
  return false;
}

// Finds what an earlier call has done, and refuses runs of other settings before anything begins.
void Sweep::look_at_runs() {
  constexpr std::uint64_t most_bytes = 4 << 20;
  const auto before = fs::exists(record()) ? parse_json<nlohmann::ordered_json>(read_at_most(record(), most_bytes))
                                           : nlohmann::ordered_json();
  for (std::size_t r = 0; r < plan_.runs.size(); ++r) {
    const Recipe& recipe = plan_.runs[r].recipe;
    if (checkpoint_steps(folder(r)).empty()) {
      if (has_diverged(r, before)) results_[r].outcome = SweepOutcome::diverged;
      continue;
    }
    const auto changes = changes_since_checkpoint(folder(r), recipe, record_of(*Dataset::open(recipe.data.path)));
    if (!changes.empty())
      throw user_error("{}: was trained with other settings: {} was {} and is {}; choose another directory with --run",
                       printable(folder(r)), changes.front().what, changes.front().before, changes.front().now);
    if (newest_whole_step(folder(r), false) == recipe.train.steps)
      results_[r] = {SweepOutcome::finished, figure_of_run(folder(r), recipe)};
    else if (has_diverged(r, before))
      results_[r].outcome = SweepOutcome::diverged;
  }
}

void Sweep::keep() const {
  nlohmann::ordered_json out = sweep_as_json(plan_, results_);
  write_file_atomically(record(), out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

void Sweep::start(std::size_t run, std::size_t slot) {
  wait_until_free(folder(run));
  ChildOptions child;
  child.words = {"train", request_.recipe};
  for (const std::string& override_of : plan_.runs[run].overrides)
    child.words.insert(child.words.end(), {"--set", override_of});
  child.words.insert(child.words.end(), {"--run", folder(run), "--device", device_ == Device::cpu ? "cpu" : "gpu"});
  const bool resumes = !checkpoint_steps(folder(run)).empty();
  if (resumes)
    child.words.emplace_back("--resume");
  else
    child.words.insert(child.words.end(), request_.beginning.begin(), request_.beginning.end());
  if (progress_is_shown())
    child.words.insert(child.words.end(), {"--log-level", "warning"});
  else
    child.words.emplace_back("--quiet");
  if (slots_ > 1) {
    child.gpu = visible_gpu(static_cast<int>(slot));
    child.log = folder(run) + ".log";
  }
  spdlog::info("run {} of {}, {}{}", run + 1, plan_.runs.size(), plan_.runs[run].name,
               resumes      ? " continues"
               : slots_ > 1 ? fmt::format(" on GPU {}", child.gpu)
                            : "");
  running_.push_back({run, slot, start_child(child)});
}

void Sweep::take(const Running& running, int code) {
  const std::string& name = plan_.runs[running.run].name;
  const Recipe& recipe = plan_.runs[running.run].recipe;
  if (code == diverged_exit_code) {
    results_[running.run].outcome = SweepOutcome::diverged;
    return keep();
  }
  if (code == 0 && newest_whole_step(folder(running.run), false) == recipe.train.steps) {
    results_[running.run] = {SweepOutcome::finished, figure_of_run(folder(running.run), recipe)};
    return keep();
  }
  if (stop_requested()) return;
  if (failure_.empty())
    failure_ = code == 0 ? fmt::format("{} was stopped before its last step", name)
                         : fmt::format("the training of {} ended with exit code {}{}", name, code,
                                       slots_ > 1 ? ", as " + folder(running.run) + ".log says" : "");
}

// A terminal's Ctrl-C has reached the children too, which stop only once.
void Sweep::forward_stop() {
  if (told_) return;
  told_ = true;
  for (const Running& running : running_) kill(running.child, SIGTERM);
}

bool Sweep::run() {
  look_at_runs();
  std::error_code error;
  fs::create_directories(directory_, error);
  if (error)
    throw user_error("{}: cannot be created ({}); choose another directory with --run", printable(directory_),
                     error.message());
  keep();
  std::size_t next = 0;
  while (true) {
    const bool ending = stop_requested() || !failure_.empty();
    if (ending) forward_stop();
    for (std::size_t slot = 0; slot < slots_ && !ending; ++slot) {
      if (std::any_of(running_.begin(), running_.end(), [&](const Running& r) { return r.slot == slot; })) continue;
      while (next < plan_.runs.size() && results_[next].outcome != SweepOutcome::waiting) ++next;
      if (next < plan_.runs.size()) start(next++, slot);
    }
    if (running_.empty()) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    for (std::size_t i = running_.size(); i-- > 0;)
      if (const auto code = ended(running_[i].child)) {
        const Running done = running_[i];
        running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i));
        take(done, *code);
      }
  }
  if (!failure_.empty()) throw user_error("{}; the same command again continues the sweep", failure_);
  return !stop_requested() ||
         std::ranges::all_of(results_, [](const SweepResult& r) { return r.outcome != SweepOutcome::waiting; });
}

void Sweep::print(bool stopped) const {
  if (request_.json) {
    nlohmann::ordered_json out = {{"output", directory_}, {"stopped", stopped}};
    out.update(sweep_as_json(plan_, results_));
    return print_json(out);
  }
  fmt::print("{}\n{}", plan_.runs.front().recipe.objective->shown_form().name, sweep_as_text(plan_, results_));
  std::fflush(stdout);
  if (stopped)
    spdlog::info("stopped; the same command again continues the sweep");
  else if (plan_.runs.size() > 1)
    spdlog::info("next: longstride report {}/*/ --output {}/report.html", directory_, directory_);
}

}  // namespace

void run_sweep(const SweepRequest& request, Session& session) {
  if (session.comm->size() > 1)
    throw user_error("--sweep starts a training by itself on every GPU; run it without mpirun");
  const Device device = chosen_device(request.device, *session.comm);
  Sweep sweep(request, device);
  catch_stop_signals(training_stops);
  const bool done = sweep.run();
  sweep.print(!done);
}

}  // namespace longstride
