// The training loop: batches in, checkpoints and metrics out. Knows models, batches and ranks; never a dataset file
// or a recipe.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "framework/comm/communicator.h"
#include "framework/comm/watchdog.h"
#include "framework/core/batch_source.h"
#include "framework/models/model.h"
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
  std::string recipe;  // resolved, kept with every checkpoint
  bool resume = false;
};

struct TrainingOutcome {
  std::int64_t step = 0;  // steps done
  bool stopped = false;   // by a signal, after saving
  double loss = 0;        // of the last step, nats
};

// Trains until config.steps or until SIGTERM, SIGINT or SIGUSR1 asks for a checkpoint at the next step boundary.
// Same recipe, seed and number of ranks: the same bits, across restarts too.
TrainingOutcome train(const TrainerSetup& setup);

}  // namespace longstride
