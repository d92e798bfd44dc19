#include "launch/propose/proposal.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "datasets/dataset.h"
#include "framework/core/errors.h"
#include "framework/core/text/numbers.h"
#include "framework/core/text/printable.h"
#include "framework/train/evaluate/evaluation_memory.h"
#include "framework/train/sample/sampler.h"
#include "framework/train/step/memory_plan.h"
#include "framework/train/step/precision.h"
#include "framework/train/step/training_step.h"
#include "launch/bench/step_times.h"
#include "launch/console/device_option.h"
#include "launch/recipe/installed_recipes.h"
#include "launch/recipe/recipe.h"
#include "launch/recipe/settings_tree.h"
#include "launch/recipe/settings_writer.h"
#include "launch/run/random_rows.h"
#include "launch/run/recompute.h"
#include "launch/run/run_data.h"

namespace longstride {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::int64_t shortest_context = 64, least_windows = 4;  // windows of train for every row of a step
constexpr double most_passes = 50;                                // over train
constexpr std::int64_t least_steps = 20;
constexpr double part_of_evaluations = 0.05, part_of_samples = 0.05;  // parts of the time
constexpr int evaluations = 4;

// The recipe to begin with: the nearest one that a measurement of ours stands behind.
std::string nearest_recipe(DataKind kind, Device device) {
  const bool gpu = device == Device::cuda;
  switch (kind) {
    case DataKind::tokens:
      if (gpu) return "recipes/beyond/text-8min-tokens.yaml";
      [[fallthrough]];
    case DataKind::bytes:
      return gpu ? "recipes/beyond/text-8min.yaml" : "recipes/quickstart/text.yaml";
    case DataKind::cifar10:
    case DataKind::images:
      return gpu ? "recipes/beyond/cifar10-4min.yaml" : "recipes/quickstart/pixels.yaml";
    case DataKind::audio:
      return "recipes/quickstart/audio.yaml";
  }
  return "";
}

std::string installed(const std::string& recipe) {
  if (std::error_code none; fs::exists(find_recipe(recipe), none)) return recipe;
  throw user_error("{}: is not installed with this program; name a recipe to begin with by --like", recipe);
}

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

class Proposer {
 public:
  Proposer(const ProposalRequest& request, Communicator& comm)
      : request_(request),
        comm_(comm),
        dataset_(Dataset::open(request.data)),
        like_(request.like.empty() ? installed(nearest_recipe(dataset_->info().kind, request.device)) : request.like),
        there_(read_recipe(like_)),
        tree_(settings_of_recipe(like_)) {}

  Proposal run();

 private:
  void name_it();
  void fit_data();
  void fit_pictures();
  void fit_sequences();
  void set_context(std::int64_t context, const std::string& reason);
  void fit_memory();
  void scale_rate();
  void measure();
  void spend_time();
  void evaluate_and_sample();
  double milliseconds_per_position() const;
  std::int64_t windows(const char* split, std::int64_t context) const;
  double bytes_per_step(const Recipe& recipe) const {
    return static_cast<double>(recipe.train.global_batch * recipe.data.context);
  }

  // Sets a key, and says why.
  template <class Value>
  void set(const std::string& key, const Value& value, const std::string& why) {
    apply_override(tree_, fmt::format("{}={}", key, value));
    reasons_[key] = why;
  }
  void forget(const char* section) {
    std::erase_if(tree_.entries, [&](const auto& entry) { return entry.first == section; });
  }
  Recipe recipe() const { return parse_recipe(settings_as_yaml(tree_, {}), "the proposed recipe"); }
  std::string header() const;

  const ProposalRequest& request_;
  Communicator& comm_;
  const std::shared_ptr<const Dataset> dataset_;
  const std::string like_;
  const Recipe there_;
  Setting tree_;
  std::map<std::string, std::string> reasons_;
  double milliseconds_ = 0;
};

std::int64_t Proposer::windows(const char* split, std::int64_t context) const {
  DataConfig data = there_.data;
  data.kind = dataset_->info().kind;
  const auto sequences = dataset_->split(split, data);
  std::int64_t count = 0;
  const std::int64_t padding = data.documents == Documents::rows ? context - 1 : 0;  // at most
  for (std::int64_t s = 0; s < sequences->sequences(); ++s) count += (sequences->length(s) + padding) / context;
  return count;
}

// Results of a paper are not those of other data.
void Proposer::name_it() {
  const std::string name = fs::path(request_.data).stem().string();
  for (const char* section : {"reproduces", "unpublished"}) forget(section);
  set("name", quoted_yaml(name), "");
  reasons_.erase("name");
}

void Proposer::fit_data() {
  const DatasetInfo& info = dataset_->info();
  apply_override(tree_, "data.path=" + quoted_yaml(request_.data));
  if (info.kind != there_.data.kind) set("data.kind", name_of(info.kind), "");
  if (info.vocabulary != there_.data.vocabulary)
    set("data.vocabulary", info.vocabulary, info.tokenizer.empty() ? "ids of the data" : "pieces of its tokenizer");
  const bool named = !info.label_names.empty() && there_.objective->labels() > 0;  // those of groups have no names
  for (const char* key : {"objective.classes", "objective.labels"})
    if (const Setting* there = find_setting(tree_, key);
        named && there != nullptr && there->scalar != std::to_string(info.label_names.size()))
      set(key, info.label_names.size(), fmt::format("names of the data; {} there", there->scalar));
  info.image_bytes() > 0 ? fit_pictures() : fit_sequences();
}

void Proposer::fit_pictures() {
  const DatasetInfo& info = dataset_->info();
  set_context(info.image_bytes(), fmt::format("a whole picture: {} x {} x {}", info.rows, info.columns, info.channels));
  const std::int64_t row = info.columns * info.channels;
  for (const std::string& override_of : there_.model->overrides_for_rows(row)) {
    apply_override(tree_, override_of);
    reasons_["model.attention"] = fmt::format("the stride is a row of a picture: {} x {}", info.columns, info.channels);
  }
}

// Halved until train has some windows for every row of a step, and valid one. Rows that are documents keep their
// context: the class of half a document may be another.
void Proposer::fit_sequences() {
  if (there_.data.documents == Documents::rows) return;
  std::int64_t context = there_.data.context;
  const auto fits = [&] {
    return windows("train", context) >= least_windows * there_.train.global_batch &&
           (dataset_->size("valid").bytes == 0 || windows("valid", context) > 0);
  };
  while (!fits() && context / 2 >= shortest_context) context /= 2;
  if (context == there_.data.context) return;
  set_context(context, fmt::format("{} there; train has {} here", thousands(there_.data.context),
                                   counted(windows("train", context), "sequence")));
}

// Stages grow towards the other context.
void Proposer::set_context(std::int64_t context, const std::string& reason) {
  set("data.context", context, reason);
  if (context == there_.data.context) return;
  std::erase_if(tree_.find("train")->entries, [](const auto& entry) { return entry.first == "stages"; });
}

// The largest part of the batch whose plan fits, from the recipe's own on; then a shorter context.
void Proposer::fit_memory() {
  for (;;) {
    Recipe fitted = recipe();
    choose_automatic_recompute(fitted, request_.device, comm_);
    const auto model = fitted.model->make_model();
    check_device_computes(*model, request_.device);
    const MemoryLimit limit = free_memory(request_.device, comm_);
    const std::int64_t batch = fitted.train.global_batch;
    const std::int64_t first = request_.device == Device::cpu ? divide_batch(fitted.train, 1).micro : batch;
    for (std::int64_t micro = first; micro > 0; --micro) {
      if (batch % micro != 0) continue;
      fitted.train.micro_batch = micro;
      if (limit.bytes && plan_memory(*model, fitted.train, 1, request_.device).on_device() > *limit.bytes) continue;
      set("train.micro_batch", micro,
          limit.bytes
              ? fmt::format("the plan needs less than the {:.1f} GiB that are {}", gib(*limit.bytes), limit.origin)
              : "");
      return;
    }
    const std::int64_t shorter = fitted.data.context / 2;
    if (dataset_->info().image_bytes() > 0 || shorter < shortest_context)
      throw user_error(
          "{}: not one sequence of {} fits into the {:.1f} GiB that are {}; name a smaller recipe with "
          "--like",
          like_, fitted.data.context, gib(limit.bytes.value_or(0)), limit.origin);
    set_context(shorter, "as much as fits into memory");
  }
}

// A gradient of fewer bytes is noisier, by the square root of their number.
void Proposer::scale_rate() {
  const double here = bytes_per_step(recipe()), there = bytes_per_step(there_), rate = there_.train.lr;
  const char* const unit = dataset_->info().kind == DataKind::tokens ? "positions" : "bytes";
  const auto whole = [](double bytes) { return thousands(static_cast<std::int64_t>(bytes)); };
  if (here >= there)
    return set("train.lr", fmt::format("{:g}", rate),
               fmt::format("as there; {} {} per step here, {} there", whole(here), unit, whole(there)));
  set("train.lr", fmt::format("{:.3g}", rate * std::sqrt(here / there)),
      fmt::format("{:g} there, times the square root of {} {} per step here over {} there", rate, whole(here), unit,
                  whole(there)));
}

// One part of the batch is timed, as often as a step has parts, so that a long step is not waited for.
void Proposer::measure() {
  Recipe timed = recipe();
  check_precision(timed.train.precision, request_.device);
  choose_automatic_recompute(timed, request_.device, comm_);
  const std::int64_t parts = divide_batch(timed.train, 1).accumulation();
  timed.train.stages.clear();
  timed.train.global_batch /= parts;
  const auto model = timed.model->make_model();
  check_training_fits(*model, timed.train, request_.device, comm_);
  TrainingStep step(*model, timed.train, comm_, request_.device);
  const std::vector<std::uint8_t> rows = random_rows(step.state().layout(), *timed.objective, timed.data.vocabulary);
  step.start();
  constexpr StepsToTime few = {20, 1, 5};
  milliseconds_ =
      median(time_steps(step, rows, model->warm_up_steps(), comm_, few).milliseconds) * static_cast<double>(parts);
}

// The schedule keeps its form: warmup and stages are the same parts of the steps.
void Proposer::spend_time() {
  const Recipe here = recipe();
  const double all = 6e4 * request_.minutes * (1 - part_of_evaluations - part_of_samples) / milliseconds_;
  const double pass = static_cast<double>(dataset_->size("train").bytes) / bytes_per_step(here);
  const auto timed = static_cast<std::int64_t>(std::min(1e9, all)),
             seen = static_cast<std::int64_t>(std::ceil(std::min(1e9, most_passes * pass)));
  const std::int64_t steps = std::max(least_steps, std::min(timed, seen));
  const double share = static_cast<double>(steps) / static_cast<double>(there_.train.steps);
  const auto scaled = [&](std::int64_t there) {
    return std::max<std::int64_t>(1, std::llround(static_cast<double>(there) * share));
  };
  set("train.steps", steps,
      fmt::format("{:.4g} ms each, measured here, so {:.3g} minutes with what else a run does; {:.3g} passes over train"
                  "{}",
                  milliseconds_,
                  static_cast<double>(steps) * milliseconds_ / 6e4 / (1 - part_of_evaluations - part_of_samples),
                  static_cast<double>(steps) / pass, seen < timed ? ", the most that help" : ""));
  set("train.warmup", std::min(scaled(there_.train.warmup), steps / 2), "the same part of the steps as there");
  Setting* stages = tree_.find("train")->find("stages");
  if (stages == nullptr) return;
  for (Setting& stage : stages->items)
    if (Setting* until = stage.find("until")) until->scalar = fmt::format("{}", scaled(std::stoll(until->scalar)));
}

// The first positions of a sequence; 0 if the model draws none.
double Proposer::milliseconds_per_position() const {
  const Recipe here = recipe();
  const auto model = here.model->make_model();
  if (capability<Decodes>(*model) == nullptr) return 0;
  ParameterSet& parameters = model->parameters();
  const Tensor sized(nullptr, Dtype::f32, {parameters.flat_size()});
  const Block weights(Device::cpu, sized.bytes());
  const Tensor masters(weights.data(), Dtype::f32, sized.shape());
  parameters.bind(masters, masters);
  parameters.initialise(here.train.seed);
  SampleConfig few;
  few.length = std::min<std::int64_t>(64, model->context());
  EvaluationMemory memory(*model, masters, without_fp8(here.train.precision), request_.device, [&](const Context& ctx) {
    return static_cast<std::size_t>(sample_memory(*model, ctx, few).total);
  });
  Context ctx = memory.context();
  if (request_.device == Device::cuda) sample(*model, ctx, few);  // loads kernels
  const Clock::time_point begin = Clock::now();
  sample(*model, ctx, few);
  return 1e3 * seconds_since(begin) / static_cast<double>(few.length);
}

void Proposer::evaluate_and_sample() {
  const Recipe here = recipe();
  const std::int64_t steps = here.train.steps, every = (steps + evaluations - 1) / evaluations;
  const double whole = static_cast<double>(steps) * milliseconds_;
  set("train.log_every", std::clamp<std::int64_t>(steps / 200, 1, 100), "some 200 lines");
  set("train.checkpoint_every", every, "a quarter of the steps");
  set("train.keep", 2, "the newest checkpoints");
  for (const char* key :
       {"evaluate_every", "evaluate_windows", "keep_best", "sample_every", "sample_count", "sample_length", "mirror"})
    std::erase_if(tree_.find("train")->entries, [&](const auto& entry) { return entry.first == key; });
  if (const std::int64_t valid = windows("valid", here.data.context); valid > 0) {
    const double forward = milliseconds_ / static_cast<double>(here.train.global_batch) / 3;
    const auto paid = static_cast<std::int64_t>(part_of_evaluations * whole / evaluations / forward);
    set("train.evaluate_every", every, "with every checkpoint");
    set("train.evaluate_windows", std::clamp<std::int64_t>(paid, 1, std::min<std::int64_t>(256, valid)),
        "of valid: about a twentieth of the time");
    set("train.keep_best", "true", "the checkpoint with the lowest loss of valid stays too");
  }
  const double position = milliseconds_per_position();
  if (position == 0) return;
  const bool picture = dataset_->info().image_bytes() > 0;
  const auto paid = static_cast<std::int64_t>(part_of_samples * whole / 2 / position);
  const std::int64_t most = picture ? here.data.context : std::min<std::int64_t>(here.data.context, paid);
  if (paid < most || most < 1) return;  // `sample` draws them when the run has ended
  set("train.sample_every", (steps + 1) / 2, "half-way, and at the end");
  set("train.sample_count", std::clamp<std::int64_t>(paid / most, 1, 4), "at most a twentieth of the time");
  if (most < here.data.context) set("train.sample_length", most, fmt::format("{}s of each", dataset_->info().unit()));
}

std::string Proposer::header() const {
  return fmt::format(
      "# Written by `longstride recipe` for {:g} {} on {}, for the data\n"
      "#   {}\n"
      "# Begins with the recipe that \"there\" means below; values without a comment are its own:\n"
      "#   {}\n",
      request_.minutes, request_.minutes == 1 ? "minute" : "minutes",
      request_.device == Device::cpu ? "this CPU" : "this GPU", printable(request_.data), printable(like_));
}

Proposal Proposer::run() {
  if (dataset_->size("train").bytes == 0)
    throw user_error("{}: 'train' is empty; prepare it with a larger split", printable(request_.data));
  name_it();
  fit_data();
  fit_memory();
  scale_rate();
  measure();
  spend_time();
  evaluate_and_sample();
  std::erase_if(reasons_, [](const auto& reason) { return reason.second.empty(); });
  const Recipe here = recipe();
  check_fits(*dataset_, here.data);
  open_rows(*dataset_, here);  // says so if train holds too little
  Proposal out;
  out.name = here.name;
  out.like = like_;
  out.text = header() + settings_as_yaml(tree_, reasons_);
  out.steps = here.train.steps;
  out.global_batch = here.train.global_batch;
  out.micro_batch = divide_batch(here.train, 1).micro;
  out.context = here.data.context;
  out.lr = here.train.lr;
  out.milliseconds = milliseconds_;
  out.unit = dataset_->info().unit();
  out.passes = passes_of(here, dataset_->size("train").bytes).count;
  return out;
}

}  // namespace

Proposal propose(const ProposalRequest& request, Communicator& comm) { return Proposer(request, comm).run(); }

}  // namespace longstride
