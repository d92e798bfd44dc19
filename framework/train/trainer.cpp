#include "framework/train/trainer.h"

#include <spdlog/spdlog.h>

#include <chrono>
#include <cmath>
#include <functional>
#include <optional>
#include <thread>

#include "framework/core/errors.h"
#include "framework/train/checkpoint/checkpoint_writer.h"
#include "framework/train/evaluate/evaluator.h"
#include "framework/train/metrics/metrics.h"
#include "framework/train/metrics/progress.h"
#include "framework/train/metrics/time_left.h"
#include "framework/train/run/file_work.h"
#include "framework/train/run/rounds.h"
#include "framework/train/run/stop.h"
#include "framework/train/sample/training_samples.h"
#include "framework/train/step/precision.h"
#include "framework/train/step/prefetcher.h"
#include "framework/train/step/training_step.h"

namespace longstride {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t most_skipped = 20;  // fp16, consecutive; by then the scale has fallen a millionfold

constexpr double ask_others_every = 0.2;  // seconds, while rank 0 draws samples

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

// A split whose disk may be slow.
class WaitedForSequences : public SequenceSet {
 public:
  WaitedForSequences(const SequenceSet& sequences, const std::string& path) : sequences_(sequences), path_(path) {}
  std::int64_t sequences() const override { return sequences_.sequences(); }
  std::int64_t length(std::int64_t sequence) const override { return sequences_.length(sequence); }
  void read(std::int64_t sequence, std::int64_t offset, std::int64_t length, std::uint8_t* out) const override {
    const FileWork work(path_);
    sequences_.read(sequence, offset, length, out);
  }
  std::int64_t token_bytes() const override { return sequences_.token_bytes(); }
  double bytes_per_token() const override { return sequences_.bytes_per_token(); }
  std::span<const std::int64_t> documents(std::int64_t sequence) const override {
    return sequences_.documents(sequence);
  }
  RowEnds groups(std::int64_t sequence) const override { return sequences_.groups(sequence); }
  std::span<const std::uint32_t> labels(std::int64_t sequence) const override { return sequences_.labels(sequence); }
  std::span<const std::uint16_t> group_labels() const override { return sequences_.group_labels(); }

 private:
  const SequenceSet& sequences_;
  const std::string& path_;
};

Scalars by_key(const std::vector<Figure>& figures) {
  Scalars scalars;
  for (const Figure& figure : figures) scalars.emplace_back(figure.key(), figure.value);
  return scalars;
}

class Trainer {
 public:
  explicit Trainer(const TrainerSetup& setup);
  TrainingOutcome run();

 private:
  bool first_rank() const { return setup_.comm->rank() == 0; }
  bool scaled() const { return resolved(setup_.config.precision, setup_.device) == Precision::fp16; }
  // 0 if the model remembers nothing.
  std::int64_t steps_of_stream() const { return setup_.model->states().empty() ? 0 : setup_.data->steps_of_stream(); }
  void start_or_resume();
  void open_files();
  void plan_pauses();
  void read_step();
  void refuse_divergence();
  void report();
  void show(double loss, double seconds, std::int64_t since_step);
  void show_first_step();
  // Bytes that this process has trained on after optimizer step `step`.
  std::int64_t tokens_since(std::int64_t step) const;
  std::optional<double> utilisation(double tokens_per_second) const;
  const std::uint8_t* next_rows(Prefetcher& prefetcher) const;
  void pause(TimeLeft::Pause kind, const std::function<bool()>& work);
  bool evaluate_now();
  bool sample_now();
  bool stopped_after_step(bool last);
  void save();
  void keep(const std::string& path, const std::function<void()>& write);
  void keep_metrics(const std::function<void()>& write) { keep(setup_.run + "/metrics.jsonl", write); }
  void end_without_metrics();

  TrainerSetup setup_;
  const FileWorkWatch file_work_;
  TrainingStep step_;
  std::optional<CheckpointWriter> writer_;
  std::int64_t skipped_before_ = 0;  // steps, before this process resumed the run
  std::int64_t saved_ = -1;          // step of the last checkpoint, which may still be in progress
  std::int64_t read_ = -1;           // the step of last_
  StepReport last_;
  std::int64_t evaluated_ = -1;  // the step of valid_
  EvaluationResult valid_;
  int high_reports_ = 0;        // consecutive reports of a loss far above that of guessing
  std::optional<double> peak_;  // operations per second of this device
  std::optional<MetricsWriter> metrics_;
  std::string unwritten_;  // why metrics cannot be written any more; rank 0
  std::optional<ProgressLine> progress_;
  TimeLeft time_left_;
  std::int64_t evaluated_positions_ = 0;  // positions that each evaluation scores
  Clock::time_point interval_begin_;      // moved on by pauses, so what has passed since are steps
  std::int64_t interval_step_ = 0;
};

// During its lifetime ranks must show progress.
class Watched {
 public:
  explicit Watched(Watchdog* watchdog) : watchdog_(watchdog) {
    if (watchdog_ != nullptr) watchdog_->expect_progress(true);
  }
  ~Watched() {
    if (watchdog_ != nullptr) watchdog_->expect_progress(false);
  }
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;

 private:
  Watchdog* watchdog_;
};

Trainer::Trainer(const TrainerSetup& setup)
    : setup_(setup),
      file_work_(*setup.comm),
      step_(*setup.model, setup.config, *setup.comm, setup.device),
      time_left_(setup.config.steps) {
  const TrainConfig& config = setup_.config;
  LONGSTRIDE_CHECK(config.sample_every == 0 || setup_.keep_samples, "samples that nothing keeps");
  LONGSTRIDE_CHECK(setup_.model->states().empty() || steps_of_stream() > 0, "rows that remember, but no streams");
  start_or_resume();
  open_files();
  plan_pauses();
}

void Trainer::open_files() {
  const TrainConfig& config = setup_.config;
  writer_.emplace(*setup_.comm,
                  CheckpointPaths{setup_.run, config.keep, setup_.mirror, config.keep_best, setup_.check_mirror},
                  step_.tensors(), step_.queue(), saved_);
  if (!first_rank()) return;
  const FileWork work(setup_.run + "/metrics.jsonl");
  metrics_.emplace(setup_.run, step_.step());
  progress_.emplace(stderr);
  const std::optional<DeviceInfo> gpu = gpu_info(setup_.device);
  if (!gpu) return;
  peak_ = peak_flops(gpu->name, setup_.config.precision);
  metrics_->write(DeviceMetrics{step_.step(), gpu->name, name_of(resolved(setup_.config.precision, setup_.device)),
                                step_.plan().block()});
}

void Trainer::plan_pauses() {
  const TrainConfig& config = setup_.config;
  time_left_.expect(TimeLeft::saving, config.checkpoint_every);
  if (config.sample_every > 0) time_left_.expect(TimeLeft::sampling, config.sample_every);
  if (setup_.validation == nullptr || !first_rank()) return;
  time_left_.expect(TimeLeft::evaluation, config.evaluate_every);
  const EvaluationConfig evaluation = validation_config(config, step_.batching(), setup_.model->context());
  for (const EvaluationWindow& window : evaluation_windows(*setup_.validation, evaluation))
    evaluated_positions_ += window.length;
}

void Trainer::start_or_resume() {
  if (!setup_.resume) return step_.start(setup_.first_weights);
  const CheckpointState found = step_.resume(setup_.run);
  saved_ = found.step;
  skipped_before_ = found.skipped;
  setup_.began_from = found.began_from;
  if (found.seed != setup_.config.seed)
    throw user_error("train.seed is {}, but the run in {} began with {}; give it the same seed", setup_.config.seed,
                     setup_.run, found.seed);
  if (found.steps_of_stream != steps_of_stream())
    throw user_error(
        "{}: its rows were in streams of {} steps, but with this data, train.global_batch and data.context a stream "
        "has "
        "{}; give it those that it began with",
        setup_.run, found.steps_of_stream, steps_of_stream());
  if (first_rank()) spdlog::info("resuming {} at step {}", setup_.run, step_.step());
}

// On a GPU this waits for the step, so it is only called when the result is needed.
void Trainer::read_step() {
  if (read_ == step_.step()) return;
  last_ = step_.report();
  read_ = step_.step();
  refuse_divergence();
}

// A step whose gradient is not finite has changed no weights, on either device. With a loss scale, some such steps are
// needed to find the scale; without one there is no point in waiting.
void Trainer::refuse_divergence() {
  const kernels::OptimizerScalars& scalars = last_.scalars;
  std::string what;
  if (scaled() && scalars.skipped_in_row >= most_skipped)
    what = fmt::format("the gradient is not finite after {} skipped steps, the last of them step {}",
                       scalars.skipped_in_row, read_);
  else if (!scaled() && scalars.skipped > skipped_before_ && scalars.finite != 0)
    what = fmt::format("the gradient of a step before step {} is not finite", read_);
  else if (!scaled() && (!std::isfinite(last_.loss) || scalars.finite == 0))
    what = fmt::format("the {} of step {} is not finite", std::isfinite(last_.loss) ? "gradient" : "loss", read_);
  else if (high_reports_ >= diverged_reports)
    what = fmt::format("training has diverged: step {} has {:.6g} {}, but guessing has {:.4g}", read_,
                       setup_.objective->shown_of_loss(last_.loss).value,
                       setup_.objective->shown_of_loss(last_.loss).shown_unit(), setup_.objective->guess());
  if (what.empty()) return;
  writer_->finish();  // all ranks reach this point; what is being saved is from a good step
  throw TrainingDiverged(fmt::format("{}; {}. Lower train.lr or {}", what, writer_->last_saved(),
                                     scaled() ? "set train.precision: bf16" : "lengthen train.warmup"));
}

// tokens_seen() also counts the steps that an earlier process took with other batches.
std::int64_t Trainer::tokens_since(std::int64_t step) const {
  const std::int64_t context = setup_.model->context();
  return positions_before(setup_.config, step_.step(), context) - positions_before(setup_.config, step, context);
}

// Model FLOP utilisation; recompute does not count as work.
std::optional<double> Trainer::utilisation(double tokens_per_second) const {
  if (!peak_) return std::nullopt;
  const std::int64_t context = step_.shape_at(step_.step() - 1).sequence();
  return tokens_per_second * setup_.model->cost(context).training_flops / static_cast<double>(context) /
         (*peak_ * setup_.comm->size());
}

// If metrics cannot be written, the run saves a checkpoint at the next step boundary and ends.
void Trainer::keep(const std::string& path, const std::function<void()>& write) {
  const FileWork work(path);
  try {
    write();
  } catch (const UserError& e) {
    if (unwritten_.empty()) unwritten_ = e.what();
  }
}

// Rank 0 reports the cause, which ends the others.
void Trainer::end_without_metrics() {
  if (!first_rank()) std::this_thread::sleep_for(std::chrono::seconds(2));
  throw user_error("{}; {}", first_rank() ? unwritten_ : "rank 0 cannot write metrics", writer_->last_saved());
}

void Trainer::report() {
  read_step();
  const Objective& objective = *setup_.objective;
  const bool high = objective.shown_of_loss(last_.loss).value > diverged_guesses * objective.guess();
  high_reports_ = high ? high_reports_ + 1 : 0;
  refuse_divergence();
  if (!first_rank()) return;
  const double seconds = seconds_since(interval_begin_);
  const double rate = static_cast<double>(tokens_since(interval_step_)) / seconds;
  StepMetrics metrics;
  metrics.step = step_.step();
  metrics.figures = by_key(objective.figures_of_loss(last_.loss));
  metrics.lr = last_.scalars.learning_rate;
  metrics.grad_norm = last_.scalars.gradient_norm;
  metrics.tokens_per_second = rate;
  metrics.mean_loss = step_.take_mean_loss();
  metrics.tokens = step_.tokens_seen();
  const std::vector<std::string> names = setup_.model->auxiliary_losses();
  for (std::size_t i = 0; i < names.size(); ++i) metrics.auxiliary.emplace_back(names[i], last_.auxiliary[i]);
  metrics.host_peak_bytes = peak_host_bytes();
  if (!step_.queue().immediate()) metrics.device_peak_bytes = static_cast<std::int64_t>(step_.state().used_bytes());
  if (scaled()) {
    metrics.loss_scale = static_cast<double>(last_.scalars.loss_scale);
    metrics.skipped = last_.scalars.skipped_in_row;
  }
  keep_metrics([&] { metrics_->write(metrics); });
  show(metrics.mean_loss, seconds, interval_step_);
  interval_begin_ = Clock::now();
  interval_step_ = step_.step();
}

// A person reads the mean loss, like the curve in metrics.
void Trainer::show(double loss, double seconds, std::int64_t since_step) {
  const double rate = static_cast<double>(tokens_since(since_step)) / seconds;
  const std::int64_t context = setup_.model->context(), steps = setup_.config.steps;
  const std::int64_t left =
      positions_before(setup_.config, steps, context) - positions_before(setup_.config, step_.step(), context);
  // A forward pass alone takes about a third of a step.
  time_left_.guess(TimeLeft::evaluation, static_cast<double>(evaluated_positions_) / (3 * rate));
  const Figure figure = setup_.objective->shown_of_loss(loss);
  std::string unit = figure.shown_unit();
  if (const std::size_t per = unit.find(" per "); per != std::string::npos) unit.replace(per, 5, "/");
  progress_->update({step_.step(), steps, figure.value, rate, utilisation(rate),
                     static_cast<double>(left) / rate + time_left_.from(step_.step()), unit});
}

// Long before the first report, if steps are long.
void Trainer::show_first_step() {
  read_step();
  if (first_rank()) show(last_.loss, seconds_since(interval_begin_), interval_step_);
}

const std::uint8_t* Trainer::next_rows(Prefetcher& prefetcher) const {
  const FileWork work(setup_.data_path);
  return prefetcher.next();
}

// Pauses the run between two steps. `work` returns whether it was done, and not abandoned.
void Trainer::pause(TimeLeft::Pause kind, const std::function<bool()>& work) {
  read_step();
  const Clock::time_point begin = Clock::now();
  const bool done = work();
  if (done) time_left_.took(kind, seconds_since(begin));
  interval_begin_ += Clock::now() - begin;
}

// False if it was abandoned, which leaves no figure.
bool Trainer::evaluate_now() {
  const EvaluationConfig config = validation_config(setup_.config, step_.batching(), setup_.model->context());
  const Clock::time_point begin = Clock::now();
  const auto working = [&](std::int64_t, std::int64_t) { setup_.comm->still_working(); };
  Context ctx = step_.context().without_fp8();
  ctx.trained = step_.step();
  const WaitedForSequences sequences(*setup_.validation, setup_.data_path);
  const EvaluationResult result =
      evaluate(*setup_.model, *setup_.objective, ctx, sequences, config, *setup_.comm, working, stop_requested);
  if (result.abandoned) return false;
  evaluated_ = step_.step();
  valid_ = result;
  if (first_rank() && result.figures.empty())
    spdlog::warn("step {}: valid has no score, as objective.kind {} finds nothing there to ask about", step_.step(),
                 setup_.objective->kind());
  if (first_rank() && !result.figures.empty()) {
    const EvaluationMetrics metrics{step_.step(), "valid", by_key(result.figures), result.bytes, seconds_since(begin)};
    keep_metrics([&] { metrics_->write(metrics); });
    progress_->finish();
    const Figure shown = setup_.objective->shown_of(result.scored);
    spdlog::info("step {}: valid {:.4f} {} over {} {}", step_.step(), shown.value, shown.shown_unit(), result.bytes,
                 sequences.bytes_per_token() == 1 ? "bytes" : "tokens");
  }
  return true;
}

// Rank 0 has all weights. The others wait for it, and tell it if they were asked to stop. False if it was abandoned.
bool Trainer::sample_now() {
  Rounds rounds(*setup_.comm, stop_requested);
  if (!first_rank()) {
    while (rounds.another(false)) {
    }
    return !rounds.stopped();
  }
  Context ctx = sampling_context(step_.context());
  ctx.trained = step_.step();
  Clock::time_point asked = Clock::now();
  const auto working = [&](std::int64_t, std::int64_t) { setup_.comm->still_working(); };
  const auto stop = [&] {
    if (seconds_since(asked) < ask_others_every) return false;
    asked = Clock::now();
    return !rounds.another(true);
  };
  const Samples drawn = sample(*setup_.model, ctx, training_samples(setup_.config, *setup_.model), working, stop);
  if (drawn.abandoned) return false;
  rounds.another(false);
  keep(setup_.run + "/samples", [&] {
    metrics_->write(SampleMetrics{step_.step(), setup_.keep_samples(step_.step(), drawn)});
  });
  return true;
}

// Evaluates and samples where they are due. Whether the run is to stop after this step: on all ranks or on none.
bool Trainer::stopped_after_step(bool last) {
  const TrainConfig& c = setup_.config;
  const auto due = [&](std::int64_t every) { return last || (every > 0 && step_.step() % every == 0); };
  const auto asked = [&] { return setup_.comm->any(stop_requested() || !unwritten_.empty()); };
  const bool evaluates = setup_.validation != nullptr && due(c.evaluate_every);
  const bool samples = c.sample_every > 0 && due(c.sample_every);
  bool stopped = asked();
  if (evaluates && !stopped) pause(TimeLeft::evaluation, [&] { return !(stopped = !evaluate_now()); });
  if (evaluates && stopped && first_rank()) {
    progress_->finish();
    spdlog::info("step {}: not evaluated; `longstride eval {} --split valid --checkpoint {}` does it", step_.step(),
                 setup_.run, step_.step());
  }
  if (samples && !stopped) pause(TimeLeft::sampling, [&] { return !(stopped = !sample_now()); });
  return stopped || ((evaluates || samples) && asked());
}

void Trainer::save() {
  if (saved_ == step_.step()) return;
  read_step();
  CheckpointState state;
  step_.describe(last_, state);
  state.recipe = setup_.recipe;
  state.data = setup_.record;
  state.began_from = setup_.began_from;
  state.run_id = setup_.run_id;
  state.steps_of_stream = steps_of_stream();
  if (evaluated_ == step_.step() && !valid_.figures.empty() && std::isfinite(valid_.figures.front().value)) {
    const Figure& first = valid_.figures.front();
    state.valid_loss = first.lower_is_better ? first.value : -first.value;
    state.valid_bytes = valid_.bytes;
  }
  if (first_rank()) keep_metrics([&] { metrics_->flush(); });  // before the checkpoint, in case of a power failure
  writer_->begin(state);
  saved_ = step_.step();
}

TrainingOutcome Trainer::run() {
  const TrainConfig& c = setup_.config;
  TrainingOutcome outcome;
  const std::int64_t begun = step_.step();
  const auto due = [&](std::int64_t every) { return every > 0 && step_.step() % every == 0; };
  const auto rows_of = [this](std::int64_t step) {
    const StepShape shape = step_.shape_at(step);
    return StepRows{step_.state().layout_of(shape), shape.rows, step_.first_row_of(shape)};
  };
  Prefetcher prefetcher(*setup_.data, step_.state().most_batch_bytes(), step_.step(), rows_of, prefetch_depth);
  interval_begin_ = Clock::now();
  interval_step_ = step_.step();
  const Watched watched(setup_.watchdog);
  while (step_.step() < c.steps && !outcome.stopped) {
    if (setup_.check_lock) setup_.check_lock();
    step_.run(next_rows(prefetcher));
    writer_->poll();
    const bool last = step_.step() == c.steps;
    if (step_.queue().immediate()) read_step();  // free on the CPU, and reports a bad step at once
    if (due(c.log_every) || last)
      report();
    else if (step_.step() == begun + 1)
      show_first_step();
    outcome.stopped = stopped_after_step(last);
    if (due(c.checkpoint_every) || last || outcome.stopped) pause(TimeLeft::saving, [&] { return save(), true; });
  }
  writer_->finish();
  if (first_rank()) progress_->finish();
  if (first_rank() && step_.step() > begun) {
    const MemoryMetrics metrics{step_.step(), step_.plan().block(),
                                static_cast<std::int64_t>(step_.state().used_bytes())};
    keep_metrics([&] { metrics_->write(metrics); });
  }
  if (setup_.comm->any(!unwritten_.empty())) end_without_metrics();
  outcome.step = step_.step();
  if (step_.step() > begun) outcome.loss = last_.loss;
  return outcome;
}

}  // namespace

TrainingOutcome train(const TrainerSetup& setup) {
  Trainer trainer(setup);
  return trainer.run();
}

}  // namespace longstride
