// Gradients summed over all ranks, bucket by bucket, during the backward pass or after it.
//
// Overlapped, a bucket is sent as soon as its gradients are complete. An exchange that waits for another rank's holds
// multiprocessors meanwhile, which the backward pass needs: between GPUs linked by NVLink this was measured to cost
// three times what the exchange takes alone (docs/notes/2026-11/performance.md). Either way buckets are sent in the
// same order, matrices from the last to the first, then vectors, and the bits are the same. Every rank receives the sum
// of its own piece of the bucket (reduce-scatter), in the wire's type; unless the optimizer is sharded, the pieces then
// go to all ranks (all-gather). Sharded or not, the pieces are the same bits, and so is the norm, which every rank
// measures on its own pieces before the ranks add up. On a GPU all of it runs on a stream of its own, which the step's
// stream waits for at the end, so a captured step has both.
#pragma once
#include <cstdint>
#include <vector>

#include "framework/comm/collectives.h"
#include "framework/core/context.h"
#include "framework/core/parameters.h"
#include "framework/optim/optimizer.h"
#include "framework/train/step/training_state.h"

namespace longstride {

class GradientExchange final : public GradientWatcher {
 public:
  struct Way {
    bool sharded = false, overlapped = true;
  };
  // `step` is where the step's work is put. The others live longer.
  GradientExchange(const ParameterSet& parameters, const TrainingState& state, Collectives& ranks, const Queue& step,
                   Way way);

  // Before the last backward pass of a step. `ctx` is the step's, and watches from now on.
  void begin(Context& ctx);
  void complete_from(const Parameter& first) override;
  // After it: the rest of the gradients, the sum of all ranks' nats and the squares that the optimizer measures.
  void finish(Optimizer& optimizer);
  // Sharded: after the optimizer has updated this rank's pieces of the masters, all of them.
  void gather_masters(Context& ctx);

 private:
  void follow(std::size_t event);  // the exchange's stream waits for what the step's has done so far
  void join();                     // the step's stream waits for all of the exchange
  void send(std::size_t index);    // of a bucket

  const ParameterSet& parameters_;
  const TrainingState& state_;
  Collectives& ranks_;
  const Queue step_;
  const Way way_;
  std::vector<FlatRange> pieces_;  // of this rank, one per bucket
  std::size_t matrix_buckets_;     // they come first in flat order
  std::size_t unsent_ = 0;         // buckets of matrices not yet sent
  Context ctx_;                    // the step's, on the exchange's stream
  Stream stream_;
  std::vector<Event> ready_;  // one per bucket, and one for what follows all of them
  Event done_;
};

// What ParallelConfig::overlap comes to. Every rank calls it.
bool overlaps(const ParallelConfig& config, Communicator& comm, Device device);

}  // namespace longstride
