// Gradients summed over all ranks, bucket by bucket, while the backward pass goes on or after it.
//
// Overlapped, a bucket is sent as soon as its gradients are complete. An exchange that waits for another rank's holds
// multiprocessors meanwhile, which the backward pass needs: between GPUs linked by NVLink this was measured to cost
// three times what the exchange takes alone (docs/notes/2026-11/performance.md). Either way buckets are sent in the
// same order, matrices from the last to the first, then vectors, and the bits are the same. Every rank receives the sum
// of its own piece of the bucket (reduce-scatter), in the wire's type; unless the optimizer is sharded, the pieces then
// go to all ranks (all-gather). Sharded or not, the pieces are the same bits, and so is the norm, which every rank
// measures on its own pieces before the ranks add up. On a GPU all of it runs on a stream of its own, which the step's
// stream waits for at the end, so a captured step holds both.
#pragma once
#include <cstdint>
#include <memory>
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
  // `stream` is the step's; null on the CPU. All live longer.
  GradientExchange(const ParameterSet& parameters, const TrainingState& state, Collectives& ranks, const Stream* stream,
                   Way way);

  // Before the last backward pass of a step. `ctx` is the step's, and watches from now on.
  void begin(Context& ctx);
  void complete_from(const Parameter& first) override;
  // After it: the rest of the gradients, the sum of all ranks' nats and the squares that the optimizer measures.
  void finish(Optimizer& optimizer);
  // Sharded: after the optimizer has updated this rank's pieces of the masters, all of them.
  void gather_masters(Context& ctx);

 private:
  struct Gpu {
    Stream stream;
    std::vector<Event> ready;  // one a bucket, and one for what follows all of them
    Event done;
  };
  void follow(std::size_t event);  // the exchange's stream waits for what the step's has done so far
  void join();                     // the step's stream waits for all of the exchange
  void send(std::size_t bucket);
  void* stream() const { return ctx_.launch.stream; }
  Tensor piece_of(const Tensor& flat, const Bucket& bucket) const;  // of one rank

  const ParameterSet& parameters_;
  const TrainingState& state_;
  Collectives& ranks_;
  const Stream* step_stream_;
  const Way way_;
  std::vector<Piece> pieces_;   // of this rank
  std::size_t matrix_buckets_;  // they come first in flat order
  std::size_t unsent_ = 0;      // buckets of matrices not yet sent
  Context ctx_;                 // the step's, on the exchange's stream
  std::unique_ptr<Gpu> gpu_;
};

// What ParallelConfig::overlap comes to. Every rank calls it.
bool overlaps(const ParallelConfig& config, Communicator& comm, Device device);

// Rank `rank` of `ranks` ranks sums and, where the optimizer is sharded, updates these pieces.
std::vector<Piece> pieces_of(const ParameterSet& parameters, int rank, int ranks);
// What this rank's optimizer updates: these, or everything.
std::vector<Piece> updated_pieces(const ParameterSet& parameters, const TrainConfig& config, int rank, int ranks);

}  // namespace longstride
