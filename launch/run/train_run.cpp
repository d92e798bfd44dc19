#include "launch/run/train_run.h"

#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "datasets/dataset.h"
#include "framework/comm/collectives.h"
#include "framework/comm/watchdog/watchdog.h"
#include "framework/core/device/energy.h"
#include "framework/core/errors.h"
#include "framework/core/files/inside.h"
#include "framework/core/text/numbers.h"
#include "framework/core/text/printable.h"
#include "framework/train/checkpoint/checkpoint.h"
#include "framework/train/checkpoint/checkpoint_mirror.h"
#include "framework/train/checkpoint/run_id.h"
#include "framework/train/ranks/gradient_exchange.h"
#include "framework/train/run/run_lock.h"
#include "framework/train/step/memory_plan.h"
#include "framework/train/step/precision.h"
#include "launch/console/device_option.h"
#include "launch/console/new_folders.h"
#include "launch/console/output.h"
#include "launch/console/picture_stride.h"
#include "launch/run/environment.h"
#include "launch/run/recompute.h"
#include "launch/run/run_data.h"
#include "launch/run/run_directory.h"
#include "launch/run/run_records.h"
#include "launch/run/same_on_ranks.h"
#include "launch/run/write_samples.h"
#include "launch/sample/run_tokens.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;

constexpr const char* run_advice = "choose another directory with --run";

// Makes the folders of a run, which are removed again if it is refused before it begins.
void make_run_folders(NewFolders& folders, const std::string& place, const char* advice) {
  std::error_code not_there;
  const std::error_code error = folders.make(fs::path(place) / "checkpoints");
  if (!error) return;
  const bool leads_nowhere = fs::is_symlink(fs::symlink_status(place, not_there)) && !fs::exists(place, not_there);
  throw user_error("{}: cannot be created ({}); {}", place,
                   leads_nowhere ? "it is a link that leads nowhere" : error.message(), advice);
}

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw user_error("{}: cannot be created ({})", printable(folder.string()), error.message());
}

// The places that only rank 0 touches: the run's directory and its mirror, locked for as long as the run trains.
struct RunPlaces {
  std::string run, mirror;  // mirror: empty if there is none
  std::unique_ptr<RunLock> run_lock, mirror_lock;
};

bool holds_checkpoints(const std::string& directory) {
  return !directory.empty() && !checkpoint_steps(directory).empty();
}

// A run that ended before its first checkpoint begins again in its folder and replaces what it has written. The files
// of others that have these names stay.
void refuse_foreign_folder(const std::string& run) {
  const auto holds = [&](const char* name) {
    std::error_code absent;
    return fs::exists(fs::symlink_status(fs::path(run) / name, absent));
  };
  if (holds("recipe.yaml") && holds("environment.json")) return;
  for (const char* name : {"metrics.jsonl", "samples", "attention"})
    if (holds(name))
      throw user_error("{}: holds {}, but no recipe.yaml and environment.json of a run; move it away, or {}", run, name,
                       run_advice);
}

void refuse_older_run(const RunPlaces& places) {
  for (const std::string& place : {places.run, places.mirror})
    if (holds_checkpoints(place))
      throw user_error("{}: already holds checkpoints; continue it with --resume or {}", place,
                       place == places.run ? run_advice : "choose another folder with train.mirror");
  // Scores outlive checkpoints that were deleted, and would stand next to the new run's.
  if (std::error_code error; fs::exists(places.run + "/evaluations.jsonl", error))
    throw user_error(
        "{}: holds the scores of a run whose checkpoints are gone, evaluations.jsonl; delete that file, or {}",
        places.run, run_advice);
  refuse_foreign_folder(places.run);
}

// A new run must not overwrite another one; a resumed one needs something to resume.
void lock_places(RunPlaces& places, bool resume) {
  if (resume && !holds_checkpoints(places.run) && !holds_checkpoints(places.mirror))
    throw user_error("{}: holds no checkpoint to resume from; start the run without --resume", places.run);
  if (std::error_code error; fs::equivalent(places.run, "/", error))
    throw user_error("{}: is the root folder, which cannot be a run; {}", places.run, run_advice);
  NewFolders folders;
  try {
    make_run_folders(folders, places.run, run_advice);
    places.run_lock = std::make_unique<RunLock>(places.run);
    if (!places.mirror.empty()) {
      make_run_folders(folders, places.mirror, "choose another folder with train.mirror");
      if (std::error_code error; fs::equivalent(places.run, places.mirror, error))
        throw user_error("train.mirror leads to {}, which is the run itself; choose another folder", places.mirror);
      places.mirror_lock = std::make_unique<RunLock>(places.mirror);
    }
    if (!resume) refuse_older_run(places);
  } catch (const UserError&) {  // the locks are in the folders
    places.mirror_lock.reset();
    places.run_lock.reset();
    throw;
  }
  folders.keep();
}

void check_mirror(const RunPlaces& places) {
  if (places.mirror_lock->held()) return;
  throw user_error(
      "{}: another process has taken its lock, or the folder is gone, so this run copies nothing to it any more; "
      "resume the run to try again",
      places.mirror);
}

// Removes pictures of an earlier run in this place: its weights are gone, and the report would show them as new.
void remove_older_pictures(const std::string& run) {
  const fs::path samples = fs::path(run) / "samples";
  std::vector<fs::path> folders;
  std::error_code error;
  for (fs::directory_iterator entry(samples, error); !error && entry != fs::directory_iterator();
       entry.increment(error))
    if (entry->path().filename().string().starts_with("step-")) folders.push_back(entry->path());
  for (const fs::path& folder : folders) {
    remove_older_files(folder.string(), {"sample-", "grid.png"}, {});
    if (fs::is_empty(folder, error)) fs::remove(folder, error);
  }
  remove_older_files(samples.string(), {"sample-", "grid.png", "completions.png"}, {});
  remove_older_files((fs::path(run) / "attention").string(), {"layer-", "attention.json"}, {});
}

void list_changes(const std::vector<Change>& changes, bool accepted, const std::string& run) {
  std::string list;
  for (const Change& change : changes) {
    if (accepted) spdlog::info("  {:<12}{}: {} before, {} now", "changed", change.what, change.before, change.now);
    list += fmt::format("{}{} was {} and is {}", list.empty() ? "" : "; ", change.what, change.before, change.now);
  }
  if (!accepted && !changes.empty())
    throw user_error(
        "the run in {} would not continue as it began: {}; resume it with its own recipe and data, or accept the "
        "change with --resume-changed",
        run, list);
}

// On rank 0: refuses everything that has to be refused before it changes anything in the run. Returns the run's id.
std::string prepare_places(RunPlaces& places, const TrainRequest& request, const DataRecord& data,
                           const Dataset& dataset) {
  check_records(places.run);
  lock_places(places, request.resume);
  if (!request.resume) {
    remove_older_pictures(places.run);
    keep_tokenizer(places.run, dataset.info().tokenizer);
    return draw_run_id();
  }
  const std::string id = id_of_run(places.run, places.mirror, recorded_beginning(places.run));
  const auto accept = [&](const std::string& place) {
    list_changes(changes_since_checkpoint(place, request.recipe, data), request.accept_changes, places.run);
  };
  if (places.mirror.empty())
    accept(places.run);
  else if (const auto step = restore_from_mirror(places.run, places.mirror, request.recipe.train.keep_best, accept))
    spdlog::warn("{}: step {} is taken from {}, which holds the newest whole checkpoint", places.run, *step,
                 places.mirror);
  keep_tokenizer(places.run, dataset.info().tokenizer);  // it may be lost or damaged, and no mirror has it
  return id.empty() ? draw_run_id() : id;
}

// On rank 0, before anything is written: the weights that the run begins with, and whether it would write among them.
LoadedRun first_weights(const RunPlaces& places, const BeginFrom& from, const Recipe& recipe) {
  LoadedRun loaded = load_to_begin(from, recipe);
  for (const std::string& place : {places.run, places.mirror})
    if (std::error_code error; fs::equivalent(place, from.run, error))
      throw user_error("--from {}: is the directory that the new run would write to; {}", printable(from.run),
                       place == places.run ? run_advice : "choose another folder with train.mirror");
  return loaded;
}

void announce_origin(const LoadedRun& loaded, const std::string& origin, const Recipe& recipe, const DataRecord& data) {
  spdlog::info("  {:<12}{}", "from", printable(origin));
  for (const Change& change : changes_of_model(loaded, recipe))
    spdlog::info("  {:<12}{}: {} there, {} here", "changed", change.what, change.before, change.now);
  const bool known = !loaded.data.empty() && loaded.recipe.data.kind == recipe.data.kind;
  if (const std::string other = other_tokenizer(loaded.data, data); known && !other.empty())
    spdlog::warn("{}: {}; begin what reads and predicts ids anew with --new", printable(recipe.data.path), other);
  const auto model = recipe.model->make_model();
  if (const std::vector<std::string> names = left_out(loaded, model->parameters()); !names.empty())
    spdlog::info("  {:<12}{}", "left out", fmt::format("{}", fmt::join(names, ", ")));
}

// The mirror of RUN is DIR/<last name of RUN>, so that one recipe serves several runs.
std::string mirror_of(const TrainRequest& request) {
  if (request.recipe.train.mirror.empty()) return "";
  const fs::path run = fs::absolute(request.run).lexically_normal();
  return (fs::path(request.recipe.train.mirror) / (run.has_filename() ? run : run.parent_path()).filename()).string();
}

// A small model's memory is not 0.00 GiB.
std::string size_text(std::int64_t bytes) {
  constexpr double mib = 1 << 20;
  return gib(bytes) >= 0.1 ? fmt::format("{:.2f} GiB", gib(bytes))
                           : fmt::format("{:.2f} MiB", static_cast<double>(bytes) / mib);
}

// Every rank calls it; rank 0 prints what the run is and where it runs. `recompute`: the planner's choice, if any.
void announce(const Recipe& recipe, Model& model, const Dataset& dataset, Communicator& comm, Device device,
              const std::string& run, const std::optional<RecomputeChoice>& recompute) {
  const int ranks = comm.size(), nodes = count_nodes(comm);
  const std::string links = interconnect(comm, device);
  const bool overlapped = overlaps(recipe.train.parallel, comm, device);
  if (comm.rank() != 0) return;
  const MemoryPlan plan = plan_memory(model, recipe.train, ranks, device);
  const Batching batching = divide_batch(recipe.train, ranks);
  const ParallelConfig& parallel = recipe.train.parallel;
  const auto line = [](const char* name, const std::string& value) { spdlog::info("  {:<12}{}", name, value); };
  spdlog::info("{}: {} parameters, context {}, {} of {}", recipe.name,
               in_millions(static_cast<double>(model.parameters().count())), recipe.data.context,
               counted(recipe.train.steps, "step"), counted(recipe.train.global_batch, "sequence"));
  line("ranks", fmt::format("{} on {}, {} in {}", ranks, counted(nodes, "node"),
                            device == Device::cpu ? "the CPU" : "a GPU each, " + device_info().name,
                            name_of(resolved(recipe.train.precision, device))));
  const Passes passes = passes_of(recipe, dataset.size("train").bytes);
  const std::string apart =
      recipe.data.documents == Documents::joined
          ? ""
          : fmt::format(", {}, documents {}", counted(dataset.size("train").sequences, "document"),
                        name_of(recipe.data.documents));
  line("data", passes.text() + apart);
  if (ranks > 1) line("links", links);
  line("batch", fmt::format("{}: {}", counted(recipe.train.global_batch, "sequence"), text_of(batching, ranks)));
  if (ranks > 1)
    line("exchange", fmt::format("gradients in {}, {} the backward pass{}",
                                 precision_text(gradient_type(recipe.train, device)), overlapped ? "during" : "after",
                                 parallel.shard ? ", the optimizer's state divided between ranks" : ""));
  if (recompute) line("recompute", recompute->text);
  line("memory",
       fmt::format("{} per rank: parameters {}, gradients {}, optimizer {}, activations {}",
                   size_text(plan.on_device()), size_text(plan.parameters), size_text(plan.gradients + plan.exchange),
                   size_text(plan.optimizer + plan.average), size_text(plan.activations)));
  for (const std::string& warning : {passes.warning(), stride_of_other_pictures(recipe, model)})
    if (!warning.empty()) spdlog::warn("{}", warning);
  if (device == Device::cuda && device_info().major == 9 && plan.compute != Dtype::f32)
    if (const std::string slow = slow_attention(model); !slow.empty()) spdlog::warn("{}", slow);
  if (fp8_products(recipe.train.precision, device))
    if (const std::string narrow = narrow_fp8(model); !narrow.empty()) spdlog::warn("fp8: {}", narrow);
  line("directory", run);
}

// RUN/samples/step-00001000/, of train.sample_every.
KeepSamples keeper_of_samples(const TrainRequest& request, const Dataset& dataset) {
  const SampleForm form{request.recipe.data.kind, request.recipe.model->geometry, dataset.info().rate};
  const RunTokens tokens(request.recipe.data, dataset.info().tokenizer, dataset.path() + ": 'tokenizer'");
  return [run = request.run, form, tokens](std::int64_t step, const Samples& samples) {
    std::vector<std::vector<std::uint8_t>> shown;
    for (const auto& ids : samples.bytes) shown.push_back(tokens.text(ids));
    const fs::path folder = folder_inside(run, fmt::format("samples/step-{:08}", step));
    make_folder(folder);
    return media_of(write_samples(folder, form, shown), form, shown);
  };
}

}  // namespace

namespace {

std::shared_ptr<const SequenceSet> open_validation(const Dataset& dataset, const Recipe& recipe) {
  auto validation = dataset.split("valid", recipe.data);
  const std::string where = fmt::format("{}: 'valid'", recipe.data.path);
  check_answered(*validation, *recipe.objective, where);
  check_grouped(*validation, recipe.model->reader_of_groups(), where);
  if (recipe.train.keep_best && validation->sequences() == 0)
    throw user_error(
        "{}: 'valid' is empty, but train.keep_best chooses by its loss; prepare it with a larger split, or "
        "set train.keep_best: false",
        recipe.data.path);
  return validation;
}

// The sum over ranks, each with a GPU of its own; every rank calls it.
std::optional<double> joules_of_ranks(std::optional<double> before, std::optional<double> after, Communicator& comm) {
  std::vector<double> all(static_cast<std::size_t>(comm.size()));
  all[static_cast<std::size_t>(comm.rank())] = before && after ? *after - *before : -1;
  comm.all_gather(all.data(), sizeof(double));
  double sum = 0;
  for (const double joules : all) {
    if (joules < 0) return std::nullopt;
    sum += joules;
  }
  return sum;
}

}  // namespace

RunOutcome train_run(TrainRequest request, Session& session) {
  check_same_on_ranks(facts_of(request), *session.comm);
  check_precision(request.recipe.train.precision, request.device);
  const auto recompute = choose_automatic_recompute(request.recipe, request.device, *session.comm);
  const Recipe& recipe = request.recipe;
  const auto model = recipe.model->make_model();
  check_device_computes(*model, request.device);
  const auto dataset = Dataset::open(recipe.data.path);
  check_same_on_ranks(facts_of(*dataset), *session.comm);
  const auto data = open_rows(*dataset, recipe);
  const auto validation = open_validation(*dataset, recipe);
  divide_batch(recipe.train, session.comm->size());
  gradient_type(recipe.train, request.device);
  check_training_fits(*model, recipe.train, request.device, *session.comm);
  TrainerSetup setup;
  RunPlaces places{request.run, mirror_of(request), nullptr, nullptr};
  std::optional<LoadedRun> first;  // rank 0's
  if (session.comm->rank() == 0) {
    if (request.from) {
      first.emplace(first_weights(places, *request.from, recipe));
      setup.began_from = origin_text(*request.from, *first);
    }
    setup.record = record_of(*dataset);
    setup.run_id = prepare_places(places, request, setup.record, *dataset);
    record_start(request.run, recipe.resolved,
                 describe_environment(request.device, session.comm->size(), setup.run_id, setup.began_from));
    setup.check_lock = [&places] { places.run_lock->check(); };
    setup.check_mirror = [&places] { check_mirror(places); };  // losing a mirror is only a warning
  }
  session.comm->barrier();  // no rank continues until rank 0 has found nothing to refuse
  announce(recipe, *model, *dataset, *session.comm, request.device, request.run, recompute);
  if (first) announce_origin(*first, setup.began_from, recipe, setup.record);
  session.watchdog = std::make_unique<Watchdog>(*session.comm, recipe.train.hang_seconds);
  setup.model = model.get();
  setup.data = data.get();
  setup.objective = recipe.objective.get();
  setup.validation = validation->sequences() > 0 ? validation.get() : nullptr;
  setup.comm = session.comm;
  setup.watchdog = session.watchdog.get();
  setup.device = request.device;
  setup.config = recipe.train;
  setup.data_path = recipe.data.path;
  setup.run = request.run;
  setup.mirror = places.mirror;
  setup.recipe = recipe.resolved;
  setup.resume = request.resume;
  setup.keep_samples = keeper_of_samples(request, *dataset);
  if (request.from)
    setup.first_weights = [&](ParameterSet& parameters) {
      hand_over_weights(first ? &*first : nullptr, *request.from, parameters, *session.comm);
      first.reset();  // frees the memory before the first step
    };
  const auto begin = std::chrono::steady_clock::now();
  const std::optional<double> before = joules_of(request.device);
  RunOutcome outcome{train(setup), 0, {}};
  outcome.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  outcome.joules = joules_of_ranks(before, joules_of(request.device), *session.comm);
  session.watchdog->leave();
  session.watchdog.reset();
  return outcome;
}

}  // namespace longstride
