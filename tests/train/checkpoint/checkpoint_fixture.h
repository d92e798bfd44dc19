// A model of three parameters with its optimizer state, all derived from one number, and a run directory.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "framework/train/checkpoint/checkpoint.h"
#include "tests/support/save_checkpoint.h"
#include "tests/support/temporary_directory.h"

namespace longstride::testing {

struct SmallTraining {
  explicit SmallTraining(Dtype dtype = Dtype::f32, std::int64_t width = 5, bool with_average = true) {
    parameters.add("embedding.weight", {7, width}, {});
    parameters.add("norm.gain", {width}, {});
    parameters.add("output.weight", {width, 7}, {});
    parameters.lay_out();
    for (Tensor* flat : {&masters, &gradients, &m, &v, &ema}) {
      buffers.push_back(std::make_unique<std::vector<double>>(static_cast<std::size_t>(parameters.flat_size()), 0.0));
      if (flat != &ema || with_average) *flat = Tensor(buffers.back()->data(), dtype, {parameters.flat_size()});
    }
    parameters.bind(masters, gradients);
  }
  SmallTraining(const SmallTraining&) = delete;
  SmallTraining& operator=(const SmallTraining&) = delete;

  // Fills every element of every buffer except the padding.
  void fill(double seed) {
    double next = seed;
    for (const Tensor& flat : {masters, m, v, ema})
      for (const Parameter& p : parameters.all())
        for (std::int64_t i = 0; flat.given() && i < p.shape.count(); ++i) set(flat, p.offset + i, next += 0.37);
  }
  static void set(const Tensor& flat, std::int64_t i, double value) {
    if (flat.dtype() == Dtype::f64)
      flat.as<double>()[i] = value;
    else
      flat.as<float>()[i] = static_cast<float>(value);
  }

  TrainingTensors tensors() { return {parameters, masters, m, v, ema}; }

  // Every bit of every buffer.
  std::string bits() const {
    std::string all;
    for (const Tensor& flat : {masters, m, v, ema}) all.append(flat.as<char>(), flat.bytes());
    return all;
  }

  ParameterSet parameters;
  std::vector<std::unique_ptr<std::vector<double>>> buffers;  // doubles: wide enough for either type
  Tensor masters, gradients, m, v, ema;
};

inline CheckpointState state_at(std::int64_t step) {
  return {step, 18446744073709551615u, step * 4096, 8, 4, "name: small\nmodel: {layers: 2}\n", {}, 0, 1.0 / 3};
}

// The same with a validation loss.
inline void save_scored(const std::string& run, std::int64_t step, std::optional<double> valid_loss,
                        std::int64_t keep = 0, bool keep_best = false, std::int64_t valid_bytes = 1000,
                        const std::string& run_id = "") {
  SmallTraining training;
  training.fill(static_cast<double>(step));
  CheckpointState state = state_at(step);
  state.valid_loss = valid_loss;
  state.valid_bytes = valid_bytes;
  state.run_id = run_id;
  save_checkpoint(run, state, training.tensors(), keep, keep_best);
}

// Saves a checkpoint with values derived from its step.
inline void save(const std::string& run, std::int64_t step, std::int64_t keep = 0, const std::string& run_id = "") {
  SmallTraining training;
  training.fill(static_cast<double>(step));
  CheckpointState state = state_at(step);
  state.run_id = run_id;
  save_checkpoint(run, state, training.tensors(), keep);
}

inline std::string directory_of(const std::string& run, std::int64_t step) {
  std::string digits = std::to_string(step);
  return run + "/checkpoints/step-" + std::string(8 - digits.size(), '0') + digits;
}

// The step that a run would resume from, after checking that the values are those of that step.
inline std::int64_t resumed_step(const std::string& run) {
  SmallTraining loaded, expected;
  const CheckpointState state = load_newest_checkpoint(run, loaded.tensors());
  expected.fill(static_cast<double>(state.step));
  EXPECT_EQ(loaded.bits(), expected.bits());
  return state.step;
}

}  // namespace longstride::testing
