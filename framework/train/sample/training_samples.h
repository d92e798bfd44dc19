// Samples that a run draws while it trains (train.sample_every), in the memory of its activations, from the weights as
// they are. Drawing changes nothing that training reads.
#pragma once
#include "framework/train/ranks/batching.h"
#include "framework/train/sample/sampler.h"
#include "framework/train/train_config.h"

namespace longstride {

// Every time with the same random numbers, so that samples of different steps differ by the weights alone.
SampleConfig training_samples(const TrainConfig& config, const Model& model);

// `sample` draws in this context: no dropout, no group, and an exact residual stream.
Context sampling_context(const Context& training);

// UserError if the model cannot draw samples, or no rank holds whole sequences.
void check_training_samples(const TrainConfig& config, const Model& model, const Batching& batching);

}  // namespace longstride
