// A model and its training step on a GPU or the CPU, fed with random bytes that follow from the step.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "framework/train/step/training_step.h"
#include "tests/gpu/gpu.h"
#include "tests/support/toy_model.h"

namespace longstride::test {

// Ragged: 75 positions are not a multiple of any tile, stride or micro-batch.
inline DecoderConfig small_config(kernels::Integration integration = kernels::Integration::merged) {
  DecoderConfig c;
  c.context = 75;
  c.layers = 3;
  c.width = 64;
  c.heads = 2;
  c.dropout = 0.1;
  c.attention.integration = integration;
  c.attention.parts = {kernels::PartKind::fixed_block, kernels::PartKind::fixed_summary};
  c.attention.stride = 16;
  c.attention.summary = {4};
  c.attention.distinct_heads = true;
  return c;
}

inline TrainConfig train_config(Precision precision) {
  TrainConfig c;
  c.steps = 40;
  c.global_batch = 4;
  c.lr = 1e-3;
  c.warmup = 5;
  c.ema = 0.9;
  c.precision = precision;
  c.seed = 11;
  return c;
}

inline std::vector<std::uint8_t> rows_of(const TrainConfig& c, std::int64_t step) {
  return toy_tokens(c.global_batch * small_config().context, 100 + static_cast<std::uint64_t>(step));
}

// A model and its step, on a given device.
struct Trained {
  Trained(const TrainConfig& settings, Device device, const ModelConfig& config = small_config())
      : train(settings),
        made(config.make_model()),
        model(*made),
        comm(make_single_communicator()),
        step(model, train, *comm, device) {}

  void go(std::int64_t steps) {
    for (const std::int64_t end = step.step() + steps; step.step() < end;) step.run(rows_of(train, step.step()).data());
  }
  // Every bit of what a checkpoint would hold.
  std::string bits() {
    std::string all;
    step.with_host_tensors([&](const TrainingTensors& t) {
      for (const Tensor& flat : {t.masters, t.m, t.v, t.ema, t.factors}) all.append(flat.as<char>(), flat.bytes());
    });
    return all;
  }
  std::vector<float> gradients() {
    const Tensor& g = step.state().gradients;
    std::vector<float> host(static_cast<std::size_t>(g.count()));
    step.report();
    kernels::cuda::check(cudaMemcpy(host.data(), g.data(), g.bytes(), cudaMemcpyDefault), "cudaMemcpy");
    return host;
  }

  TrainConfig train;
  std::unique_ptr<Model> made;
  Model& model;
  std::unique_ptr<Communicator> comm;
  TrainingStep step;
};

// For what bits() gives, megabytes that a failure should not print.
inline ::testing::AssertionResult same_bits(const std::string& found, const std::string& wanted) {
  if (found == wanted) return ::testing::AssertionSuccess();
  if (found.size() != wanted.size())
    return ::testing::AssertionFailure() << found.size() << " bytes instead of " << wanted.size();
  const auto first = std::mismatch(found.begin(), found.end(), wanted.begin()).first - found.begin();
  const auto same =
      std::inner_product(found.begin(), found.end(), wanted.begin(), std::size_t{0}, std::plus<>(), std::equal_to<>());
  return ::testing::AssertionFailure() << found.size() - same << " of " << found.size()
                                       << " bytes differ, the first at " << first;
}

inline std::string bits_after(std::int64_t steps, const TrainConfig& train,
                              const DecoderConfig& config = small_config()) {
  Trained run(train, Device::cuda, config);
  run.step.start();
  run.go(steps);
  return run.bits();
}

}  // namespace longstride::test
