// The training loop: batches in, checkpoints and metrics out. Knows models, batches and ranks; never a dataset file
// or a recipe.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "framework/comm/communicator.h"
#include "framework/comm/watchdog/watchdog.h"
#include "framework/core/batch_source.h"
#include "framework/core/errors.h"
#include "framework/models/model.h"
#include "framework/train/checkpoint/checkpoint.h"
#include "framework/train/train_config.h"

namespace longstride {

struct TrainerSetup {
  Model* model = nullptr;
  const BatchSource* data = nullptr;
  const SequenceSet* validation = nullptr;  // absent: no evaluation during training
  Communicator* comm = nullptr;
  Watchdog* watchdog = nullptr;  // absent: nobody watches the ranks
  Device device = Device::cpu;
  TrainConfig config;
  std::string run;     // directory
  std::string mirror;  // directory of the checkpoints' second copies; empty: none
  std::string recipe;  // resolved, kept with every checkpoint, as is
  DataRecord record;   // what the run reads
  bool resume = false;
  std::function<void()> check_lock;  // rank 0's: throws when the run is no longer this process's; absent: not asked
};

// Training has come to nothing: the loss is not finite, or stays far above that of guessing. Its exit code is its own,
// so that a script tells it from a mistake in the recipe.
class TrainingDiverged : public UserError {
 public:
  using UserError::UserError;
};
inline constexpr int diverged_exit_code = 3;
// A loss above this has diverged once `diverged_reports` reports in a row have it: guessing has 8 bits per byte, and a
// rate that is too high for a while may be survived.
inline constexpr double diverged_bits_per_byte = 64;
inline constexpr int diverged_reports = 3;

struct TrainingOutcome {
  std::int64_t step = 0;  // steps done
  bool stopped = false;   // by a signal, after saving
  double loss = 0;        // of the last step, nats
};

// Trains until config.steps or until SIGTERM, SIGINT or SIGUSR1 asks for a checkpoint at the next step boundary.
// Same recipe, seed and number of ranks: the same bits, across restarts too. TrainingDiverged on every rank alike.
TrainingOutcome train(const TrainerSetup& setup);

}  // namespace longstride
