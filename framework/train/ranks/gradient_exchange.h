// Gradients summed over all ranks, bucket by bucket, during the backward pass or after it.
//
// Overlapped, a bucket is sent as soon as its gradients are complete. While it waits for other ranks, an exchange
// occupies multiprocessors that the backward pass needs; between GPUs linked by NVLink this was measured to cost three
// times as much as the exchange alone (docs/notes/2026-11/performance.md). Overlapped or not, buckets are sent in the
// same order, matrices from the last to the first, then vectors, and the results are bit-identical. Every rank receives
// the sum of its own piece of the bucket (reduce-scatter), in the wire's type; unless the optimizer is sharded, all
// ranks then receive all pieces (all-gather). Sharding changes no bit of the pieces or of the norm, which every rank
// measures on its own pieces before the ranks add up. On a GPU the exchange runs on its own stream, which the step's
// stream waits for at the end, so a captured step contains both.
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
  // `step` is the queue of the step's work. The references must outlive the exchange.
  GradientExchange(const ParameterSet& parameters, const TrainingState& state, Collectives& ranks, const Queue& step,
                   Way way);

  // Call before the last backward pass of a step. If overlapped, it becomes the watcher of `ctx`, the step's context.
  void begin(Context& ctx);
  void complete_from(const Parameter& first) override;
  // Call after that pass. Exchanges the remaining gradients, all ranks' losses and the squares that the optimizer
  // measures.
  void finish(Optimizer& optimizer);
  // Sharded: gathers all pieces of the masters, after the optimizer has updated this rank's.
  void gather_masters(Context& ctx);

 private:
  void follow(std::size_t event);  // the exchange's stream waits for the step's work so far
  void join();                     // the step's stream waits for the whole exchange
  void send(std::size_t index);    // sends a bucket

  const ParameterSet& parameters_;
  const TrainingState& state_;
  Collectives& ranks_;
  const Queue step_;
  const Way way_;
  std::vector<FlatRange> pieces_;  // this rank's, one per bucket
  std::size_t matrix_buckets_;     // they come first in flat order
  std::size_t unsent_ = 0;         // buckets of matrices not yet sent
  Context ctx_;                    // the step's, on the exchange's stream
  Stream stream_;
  std::vector<Event> ready_;  // one per bucket, and one for the work after all of them
  Event done_;
};

// Resolves ParallelConfig::overlap. Every rank calls it.
bool overlaps(const ParallelConfig& config, Communicator& comm, Device device);

}  // namespace longstride
