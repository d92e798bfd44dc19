#include "framework/train/sample/training_samples.h"

#include "framework/core/errors.h"

namespace longstride {

SampleConfig training_samples(const TrainConfig& config, const Model& model) {
  SampleConfig samples;
  samples.count = config.sample_count;
  samples.length = config.sample_length > 0 ? config.sample_length : model.context();
  samples.sampling.seed = config.seed;
  return samples;
}

Context sampling_context(const Context& training) {
  Context ctx;
  ctx.device = training.device;
  ctx.arena = training.arena;
  ctx.launch = training.launch;
  ctx.compute = training.compute;
  ctx.exact = training.exact;
  ctx.seed = training.seed;
  return ctx;
}

void check_training_samples(const TrainConfig& config, const Model& model, const Batching& batching) {
  if (config.sample_every == 0) return;
  required<Decodes>(model, "draw samples while it trains; set train.sample_every: 0");
  if (batching.sequence_ranks > 1)
    throw user_error(
        "train.sample_every is {}, but with parallel.sequence_ranks {} no rank holds a whole sequence to draw; set "
        "train.sample_every: 0 and use `longstride sample`",
        config.sample_every, batching.sequence_ranks);
  if (config.sample_length > longest_window(model))
    throw user_error("train.sample_length is {}, but the model's context is {}; set train.sample_length: 0 for all",
                     config.sample_length, model.context());
}

}  // namespace longstride
