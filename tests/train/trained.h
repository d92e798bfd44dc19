// A toy model and its training step on the CPU, fed with random bytes that follow from the step.
#pragma once
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "framework/train/step/training_step.h"
#include "tests/support/save_checkpoint.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/toy_model.h"

namespace longstride::test {

struct Trained {
  Trained(const TrainConfig& settings, const ModelConfig& config)
      : train(settings),
        made(config.make_model()),
        model(*made),
        comm(make_single_communicator()),
        step(model, train, *comm, Device::cpu) {}

  void go(std::int64_t steps) {
    for (const std::int64_t end = step.step() + steps; step.step() < end;)
      step.run(toy_tokens(step.shape_at(step.step()).positions(), 40 + static_cast<std::uint64_t>(step.step())).data());
  }
  // Every bit of what a checkpoint would hold, and of the last gradient.
  std::string bits() {
    std::string all;
    step.with_host_tensors([&](const TrainingTensors& t) {
      for (const Tensor& flat : {t.masters, t.m, t.v, t.ema, t.factors, step.state().gradients})
        all.append(flat.as<char>(), flat.bytes());
    });
    return all;
  }

  CheckpointState save(const std::string& run) {
    CheckpointState state;
    step.describe(step.report(), state);
    step.with_host_tensors([&](const TrainingTensors& t) { save_checkpoint(run, state, t, 0); });
    return state;
  }

  TrainConfig train;
  std::unique_ptr<Model> made;
  Model& model;
  std::unique_ptr<Communicator> comm;
  TrainingStep step;
};

}  // namespace longstride::test
