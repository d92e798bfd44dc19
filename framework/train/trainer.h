// The training loop: batches in, checkpoints and metrics out. It depends on models, batches and ranks, but not on
// dataset files or recipes.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "framework/comm/communicator.h"
#include "framework/comm/watchdog/watchdog.h"
#include "framework/core/batch_source.h"
#include "framework/core/errors.h"
#include "framework/models/model.h"
#include "framework/train/checkpoint/checkpoint.h"
#include "framework/train/metrics/event_file.h"
#include "framework/train/sample/sampler.h"
#include "framework/train/step/training_step.h"
#include "framework/train/train_config.h"

namespace longstride {

// Writes what was drawn after `step` steps to the run, and returns it for TensorBoard.
using KeepSamples = std::function<std::vector<Media>(std::int64_t step, const Samples& samples)>;

struct TrainerSetup {
  Model* model = nullptr;
  const BatchSource* data = nullptr;
  const Objective* objective = nullptr;     // written into the rows of `data`
  const SequenceSet* validation = nullptr;  // absent: no evaluation during training
  Communicator* comm = nullptr;
  Watchdog* watchdog = nullptr;  // null: no watchdog
  Device device = Device::cpu;
  TrainConfig config;
  std::string data_path;  // name of the data in messages
  std::string run;        // directory
  std::string mirror;     // directory of the checkpoints' second copies; empty: none
  std::string run_id;     // rank 0's
  std::string recipe;     // resolved; stored with every checkpoint
  DataRecord record;      // the data that the run reads
  bool resume = false;
  FirstWeights first_weights;          // a new run's; empty: random
  std::string began_from;              // where these are from, for the record; a resumed run keeps what it recorded
  KeepSamples keep_samples;            // rank 0's: of train.sample_every
  std::function<void()> check_lock;    // rank 0's: throws when the run no longer belongs to this process; may be empty
  std::function<void()> check_mirror;  // the same for the mirror, from any thread
};

// Training has failed: the loss is not finite, or stays far above that of guessing. It has a separate exit code, so
// that a script can tell it from a mistake in the recipe.
class TrainingDiverged : public UserError {
 public:
  using UserError::UserError;
};
inline constexpr int diverged_exit_code = 3;
// Training has diverged when `diverged_reports` consecutive reports exceed this multiple of what guessing has, such as
// 8 bits per byte; training may recover from a learning rate that is too high for a while.
inline constexpr double diverged_guesses = 8;
inline constexpr int diverged_reports = 3;

struct TrainingOutcome {
  std::int64_t step = 0;       // steps done
  bool stopped = false;        // by a signal, after saving
  std::optional<double> loss;  // mean of the last step, nats; nothing if there was none left to take
};

// Trains until config.steps, or until SIGTERM, SIGINT, SIGUSR1 or SIGHUP requests a checkpoint at the next step
// boundary. The same recipe, seed and number of ranks give the same bits, even across restarts. Throws TrainingDiverged
// on every rank.
TrainingOutcome train(const TrainerSetup& setup);

}  // namespace longstride
