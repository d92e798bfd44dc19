// Exact bytes that training takes on one rank, by purpose, found by running the training step itself in a planning
// arena: nothing is allocated, and the run then takes exactly this.
#pragma once
#include <cstdint>
#include <vector>

#include "framework/core/context.h"
#include "framework/models/model.h"
#include "framework/optim/optimizer.h"
#include "framework/train/evaluate/evaluator.h"
#include "framework/train/train_config.h"

namespace longstride {

// How a global batch is divided: group g of parallel.context ranks that follow each other takes rows [g * per_rank,
// (g + 1) * per_rank), `micro` at a time.
struct Batching {
  std::int64_t per_rank = 0;
  std::int64_t micro = 0;
  int context = 1;  // ranks of a group
  std::int64_t accumulation() const { return per_rank / micro; }
  int group_of(int rank) const { return rank / context; }
  int index_of(int rank) const { return rank % context; }
};
// UserError when the ranks do not divide the global batch, or micro_batch a rank's share. A micro_batch larger than
// the share means the whole share. A group of several ranks takes one sequence at a time.
Batching divide_batch(const TrainConfig& config, int ranks);

struct MemoryPlan {
  Device device = Device::cpu;
  Dtype compute = Dtype::f32;
  std::int64_t parameters = 0;  // fp32 masters (and the low-precision copy, where there is one)
  std::int64_t gradients = 0;
  std::int64_t exchange = 0;     // gradients on their way between ranks, where they travel in a narrow type
  std::int64_t optimizer = 0;    // two moments and the scalars; of this rank's part when it is sharded
  std::int64_t average = 0;      // running average of weights
  std::int64_t batch = 0;        // tokens of a step, losses of a micro-batch
  std::int64_t libraries = 0;    // GPU: what cuBLASLt may use
  std::int64_t activations = 0;  // the arena at its high-water mark
  std::int64_t tape = 0;         // of the activations: what forward saves for backward, at its own peak
  std::int64_t input = 0;        // rows read ahead; with a GPU, also what passes between it and the host
  std::int64_t communication = 0;
  std::int64_t snapshot = 0;  // the copy that a checkpoint is written from
  // One block, on the device, holds all but `input`, `communication` and `snapshot`, which are the host's.
  std::int64_t block() const {
    return parameters + gradients + exchange + optimizer + average + batch + libraries + activations;
  }
  std::int64_t total() const { return block() + input + communication + snapshot; }
};

inline constexpr int prefetch_depth = 2;                                       // steps read ahead
inline constexpr std::size_t library_workspace_bytes = std::size_t{32} << 20;  // what NVIDIA advises for Hopper

inline constexpr int staging_buffers = 2;

// What the optimizer needs to know of the recipe, and what the evaluations during training do.
Optimizer::Config optimizer_config(const TrainConfig& config, Device device = Device::cpu);
// The matrices that Muon updates; none with Adam. The parameters are laid out.
std::vector<HiddenMatrix> orthogonalised_matrices(const ParameterSet& parameters, const TrainConfig& config);
EvaluationConfig validation_config(const TrainConfig& config, const Batching& batching, std::int64_t context);

// Of the step's number and its tokens, which travel to a GPU together.
std::int64_t staging_bytes(std::int64_t tokens);

// UserError when the plan takes more than what is free on the GPU; it names the largest micro-batch that would fit.
void check_fits(Model& model, const TrainConfig& config, int ranks, const MemoryPlan& plan, std::int64_t free);

// The type in which gradients travel between ranks. UserError for what the device does not compute in.
Dtype gradient_type(const TrainConfig& config, Device device);
// Whether ranks exchange gradients at all.
bool exchanges(const TrainConfig& config, int ranks);
// Elements of the flat buffers that one rank's optimizer keeps state for. The parameters are laid out for the ranks.
std::int64_t optimizer_elements(const ParameterSet& parameters, const TrainConfig& config, int ranks);

// Lays the model's parameters out for the ranks. For a GPU, no GPU is needed, but a build with CUDA.
MemoryPlan plan_memory(Model& model, const TrainConfig& config, int ranks, Device device = Device::cpu);

}  // namespace longstride
