// Settings that are valid but cannot train. Each is refused with the value to set.
#include <algorithm>
#include <limits>

#include "launch/recipe/recipe_checks.h"

namespace longstride {
namespace {

constexpr float least_normal = std::numeric_limits<float>::min();

void check_warmup(RecipeChecker& check, const TrainConfig& t) {
  if (!check.none_in({"train.warmup", "train.steps"}) || t.warmup <= t.steps) return;
  const bool given = check.sets("train.warmup");
  check.refuse_at(
      where_of(check.root(), given ? "train.warmup" : "train.steps"), "train.warmup",
      "train.warmup is {}{}, but must be at most train.steps, {}, or the learning rate never reaches train.lr; "
      "set train.warmup: {}, a tenth of the steps",
      t.warmup, given ? "" : " by default", t.steps, std::max<std::int64_t>(1, t.steps / 10));
}

const char* name_of(kernels::ScheduleKind kind) {
  switch (kind) {
    case kernels::ScheduleKind::cosine:
      return "cosine";
    case kernels::ScheduleKind::constant:
      return "constant";
    case kernels::ScheduleKind::warmup_stable_decay:
      return "warmup_stable_decay";
    case kernels::ScheduleKind::reciprocal_sqrt:
      return "reciprocal_sqrt";
  }
  return "";
}

// Keys that only reciprocal_sqrt reads.
void check_reciprocal(RecipeChecker& check, const TrainConfig& t) {
  if (!check.none_in({"train.schedule", "train.warmup", "train.steps", "train.decay_from", "train.lr_is"})) return;
  constexpr const char* advice = "remove it, or set train.schedule: reciprocal_sqrt";
  const bool reciprocal = t.schedule == kernels::ScheduleKind::reciprocal_sqrt;
  if (!reciprocal && t.decay_from > 0)
    check.refuse("train.decay_from", "train.decay_from is {}, but train.schedule {} does not begin to fall there; {}",
                 t.decay_from, name_of(t.schedule), advice);
  if (!reciprocal && t.lr_is == LearningRateIs::factor)
    check.refuse("train.lr_is", "train.lr_is is factor, but with train.schedule {} train.lr is the peak; {}",
                 name_of(t.schedule), advice);
  if (reciprocal && t.decay_from > 0 && t.decay_from < t.warmup)
    check.refuse("train.decay_from",
                 "train.decay_from is {}, but must be at least train.warmup, {}, or the learning rate falls before it "
                 "has risen; set train.decay_from: 0 for the end of the warmup",
                 t.decay_from, t.warmup);
}

// Keys that the optimizer would ignore.
void check_optimizer(RecipeChecker& check, const TrainConfig& t) {
  if (!check.none_in({"optimizer", "train.beta1", "train.beta2"})) return;
  const bool adagrad = t.optimizer == OptimizerKind::adagrad, adafactor = t.optimizer == OptimizerKind::adafactor;
  const TrainConfig usual;
  const auto refuse = [&](const char* key, bool given, const char* kind) {
    if (given) check.refuse(key, "{} has no effect: only optimizer.kind {} reads it; remove it", key, kind);
  };
  refuse("train.beta1", adagrad && t.beta1 != usual.beta1, "adam, muon or adafactor");
  refuse("train.beta2", (adagrad || adafactor) && t.beta2 != usual.beta2, "adam or muon");
  refuse("optimizer.tensor_clip", !adagrad && t.tensor_clip > 0, "adagrad");
  refuse("optimizer.decay_rate", !adafactor && t.decay_rate != usual.decay_rate, "adafactor");
  refuse("optimizer.clip_threshold", !adafactor && t.clip_threshold != usual.clip_threshold, "adafactor");
  refuse("optimizer.scale_parameter", !adafactor && !t.scale_parameter, "adafactor");
}

// Keys that the schedule would ignore, and phases that do not fit.
void check_schedule(RecipeChecker& check, const TrainConfig& t) {
  if (!check.none_in({"train.schedule", "train.warmup", "train.steps", "train.decay_steps"})) return;
  const bool decays = t.schedule == kernels::ScheduleKind::warmup_stable_decay;
  if (t.decay_steps > 0 && !decays)
    check.refuse("train.decay_steps",
                 "train.decay_steps is {}, but train.schedule {} has no such phase; remove it, or set train.schedule: "
                 "warmup_stable_decay",
                 t.decay_steps, name_of(t.schedule));
  else if (decays && t.decay_steps > t.steps)
    check.refuse("train.decay_steps",
                 "train.decay_steps is {}, but must be at most train.steps, {}; set train.decay_steps: {}, a tenth of "
                 "the steps",
                 t.decay_steps, t.steps, t.last_tenth());
  else if (decays && t.warmup <= t.steps && t.warmup + t.steps_of_decay() > t.steps)
    check.refuse_at(where_of(check.root(), check.sets("train.decay_steps") ? "train.decay_steps" : "train.schedule"),
                    "train.decay_steps",
                    "train.decay_steps is {}{}, but with train.warmup, {}, must be at most train.steps, {}; lower one "
                    "of the two",
                    t.steps_of_decay(), t.decay_steps == 0 ? ", a tenth of the steps" : "", t.warmup, t.steps);
}

void check_floor(RecipeChecker& check, const TrainConfig& t) {
  if (!check.none_in({"train.lr_floor", "train.lr", "train.schedule"}) || t.lr_floor == 0) return;
  if (t.schedule == kernels::ScheduleKind::constant)
    check.refuse("train.lr_floor",
                 "train.lr_floor is {}, but train.schedule constant never lowers the learning rate; remove it, or set "
                 "train.schedule: cosine",
                 t.lr_floor);
  else if (t.lr_floor >= t.peak())
    check.refuse("train.lr_floor",
                 "train.lr_floor is {}, but must be below {}, {:.6g}: it is a learning rate, not a part of one; set "
                 "train.lr_floor: {:.3g}, a tenth of it",
                 t.lr_floor, t.peak() == t.lr ? "train.lr" : "the peak", t.peak(), t.peak() / 10);
}

// Adam moves a weight by at most about the learning rate, and so does Muon as it is scaled here (optim/muon.h).
void check_rate(RecipeChecker& check, const TrainConfig& t) {
  const double peak = t.peak();
  if (check.none_in({"train.lr"}) && (peak > 1 || peak < static_cast<double>(least_normal)))
    check.refuse(
        "train.lr",
        "train.lr is {}, but must be {}: a step moves every weight by about that much; set train.lr: 3.5e-4, the "
        "paper's",
        t.lr,
        peak <= 1      ? "a number that fp32 can represent"
        : peak == t.lr ? "at most 1"
                       : fmt::format("at most {:.6g}, so that the learning rate is at most 1", t.lr / peak));
  double largest = peak;
  for (const Stage& stage : t.stages) largest = std::max(largest, t.peak_at(stage.until - 1));
  if (check.none_in({"train.lr", "train.weight_decay", "train.stages"}) && largest * t.weight_decay >= 1)
    check.refuse("train.weight_decay",
                 "train.weight_decay is {}, but its product with {}, {}, must be below 1, or a step flips every "
                 "weight's sign; set train.weight_decay: 0.01",
                 t.weight_decay, largest == t.lr ? "train.lr" : "the largest learning rate", largest);
}

// Values that fp32 cannot distinguish from 0 or 1.
void check_rounding(RecipeChecker& check, const TrainConfig& t) {
  if (check.none_in({"train.epsilon"}) && t.epsilon < static_cast<double>(least_normal))
    check.refuse("train.epsilon", "train.epsilon is {}, which is 0 in fp32; set train.epsilon: 1e-8", t.epsilon);
  if (check.none_in({"train.clip"}) && t.clip > 0 && t.clip * t.clip < static_cast<double>(least_normal))
    check.refuse("train.clip", "train.clip is {}, whose square is 0 in fp32; set train.clip: 1.0, or 0 for no clipping",
                 t.clip);
  const struct {
    const char* key;
    double value;
    const char* usual;
  } fractions[] = {{"train.beta1", t.beta1, "0.9"}, {"train.beta2", t.beta2, "0.999"}, {"train.ema", t.ema, "0.999"}};
  for (const auto& f : fractions)
    if (check.none_in({f.key}) && static_cast<float>(f.value) == 1.0F)
      check.refuse(f.key, "{} is {}, which is 1 in fp32; set {}: {}", f.key, f.value, f.key, f.usual);
}

// The best checkpoint is one of those that are saved at a step that is evaluated.
void check_best(RecipeChecker& check, const TrainConfig& t) {
  if (!check.none_in({"train.keep_best", "train.evaluate_every", "train.checkpoint_every"}) || !t.keep_best) return;
  const std::int64_t evaluate = t.evaluate_every, save = t.checkpoint_every;
  if (evaluate == 0)
    check.refuse("train.keep_best",
                 "train.keep_best is true, but train.evaluate_every is 0, so there are no validation losses to choose "
                 "by; set train.evaluate_every: {}",
                 save > 0 ? save : t.last_tenth());
  else if (save == 0)
    check.refuse("train.keep_best",
                 "train.keep_best is true, but train.checkpoint_every is 0, so there is only the last checkpoint; set "
                 "train.checkpoint_every: {}",
                 evaluate);
  else if (save % evaluate != 0 && evaluate % save != 0)
    check.refuse("train.keep_best",
                 "train.keep_best is true, but few checkpoints have a validation loss, because train.checkpoint_every, "
                 "{}, and train.evaluate_every, {}, are not multiples of one another; set train.evaluate_every: {}",
                 save, evaluate, save);
}

// A picture is whole. A model that remembers can draw more than its context.
void check_samples(RecipeChecker& check, const Recipe& recipe) {
  const std::int64_t length = recipe.train.sample_length, context = recipe.data.context;
  if (!check.none_in({"train.sample_length", "data.context"}) || length == 0) return;
  if (length > context && !recipe.model->remembers())
    check.refuse("train.sample_length",
                 "train.sample_length is {}, but the context has {} bytes; set train.sample_length: 0 for all", length,
                 context);
  else if (recipe.model->geometry.rows > 0 && length != context)
    check.refuse("train.sample_length",
                 "train.sample_length is {}, but a picture has {} bytes; set train.sample_length: 0 for all", length,
                 context);
}

// Ranks signal each other every tenth of hang_seconds, and a busy host may delay one by some tenths of a second.
void check_watchdog(RecipeChecker& check, const TrainConfig& t) {
  if (check.none_in({"train.hang_seconds"}) && t.hang_seconds > 0 && t.hang_seconds < 1)
    check.refuse("train.hang_seconds",
                 "train.hang_seconds is {}, but must be at least 1, or 0 for no watchdog: a rank that is merely busy "
                 "would end the job; set train.hang_seconds: 25",
                 t.hang_seconds);
}

}  // namespace

void check_training_can_work(const Setting& root, const Recipe& recipe, RecipeMistakes& mistakes) {
  RecipeChecker check(root, mistakes);
  recipe.model->check_training(check);
  check_warmup(check, recipe.train);
  check_schedule(check, recipe.train);
  check_reciprocal(check, recipe.train);
  check_optimizer(check, recipe.train);
  check_floor(check, recipe.train);
  check_rate(check, recipe.train);
  check_rounding(check, recipe.train);
  check_best(check, recipe.train);
  check_samples(check, recipe);
  check_watchdog(check, recipe.train);
}

}  // namespace longstride
