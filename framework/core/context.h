// Everything that a layer or op needs to know: where it runs, which memory it may take, in which element types it
// computes, and which step of the run this is (for dropout, whose masks are functions of the step).
#pragma once
#include <cstdint>
#include <vector>

#include "framework/core/arena.h"
#include "framework/core/device/stream.h"
#include "framework/core/state.h"
#include "framework/core/tensor.h"
#include "kernels/base/op.h"
#include "kernels/global_rows/global_rows.h"

namespace longstride {

struct Context;
struct Parameter;

// Ranks that hold one sequence together: rank `index` of `size` has the index-th of `size` equal runs of its positions.
// Everything but attention treats each position independently (framework/layers/sequence_exchange.h).
class SequenceGroup {
 public:
  virtual ~SequenceGroup() = default;
  virtual int index() const = 0;
  virtual int size() const = 0;
  // Piece r of `from` becomes piece `index` of rank r's `to`; `size` equal pieces. In the order of ctx's queue.
  virtual void exchange(const Context& ctx, const Tensor& from, const Tensor& to) = 0;
};

// Notified by the backward pass as gradients become complete, so that ranks can exchange them while it continues.
class GradientWatcher {
 public:
  virtual ~GradientWatcher() = default;
  // The gradients of this matrix and of all matrices declared after it are complete.
  virtual void complete_from(const Parameter& first) = 0;
};

// Losses that a model adds to the mean loss of its predictions (Model::auxiliary_losses), as one micro-batch has them.
// Like the main one, they are multiplied by Context::loss_scale before gradients are taken, but not where they are
// reported.
struct AuxiliaryLosses {
  Tensor sums;       // (names) f64 in device memory: the micro-batch adds its share of each. Absent: none is computed
  double share = 1;  // this micro-batch's part of the global batch: the factor of a mean over its rows
  bool once = true;  // losses of parameters alone are added here: in one micro-batch of a step, on one rank
};

// Documents in the rows of a micro-batch, which do not see one another: position i of a row may see [begin_i, end_i).
struct DocumentBounds {
  Tensor begin = {}, end = {};  // (rows, 1, seq) i32, of whole rows even if ranks divide them; absent: nothing is apart
  bool restart = false;         // positions count from the beginning of their document

  bool given() const { return begin.given(); }
  // The positions that others are counted from: (rows, seq) i32; absent: 0.
  Tensor origin() const { return given() && restart ? begin.reshape({begin.size(0), begin.size(2)}) : Tensor{}; }
};

struct Context {
  Device device = Device::cpu;
  Arena* arena = nullptr;
  kernels::Launch launch;               // the stream, and workspace for libraries
  Dtype compute = Dtype::f32;           // activations inside a branch, and the weights that matrix products read
  Dtype exact = Dtype::f32;             // statistics, losses and gradients of parameters
  bool low_precision_residual = false;  // the residual stream and its gradient are of the compute type, not exact
  bool fp8_products = false;            // linear layers multiply operands of 8 bits (framework/ops/linear.h)
  std::uint64_t seed = 0;
  const std::int64_t* step = nullptr;  // device memory: the current step, read by kernels; null outside training
  std::int64_t trained = 0;  // outside training: the steps that the weights have taken, for what some steps draw anew
  const float* loss_scale = nullptr;  // device memory: what the loss is multiplied by (fp16); null: nothing
  std::int64_t* position = nullptr;   // device memory: while decoding on a GPU, the batch's position, which replaces
                                      // the host's, so that one graph serves every position
  std::int64_t* segment_position = nullptr;  // device memory: its place in the segment of the stream, for what sees one
                                             // segment alone; null: the position itself
  std::int64_t first_row = 0;   // index in the global batch of this micro-batch's first sequence: dropout is keyed by
                                // it, so that the masks do not depend on the number of ranks or on accumulation. With a
                                // group it counts runs of positions instead, `size` per sequence
  DocumentBounds documents;     // in the micro-batch's rows
  kernels::GlobalSight global;  // likewise the rows in front of positions: whom they see, and who sees them
  RowStates state;              // states of the micro-batch's rows; absent: the model has none
  AuxiliaryLosses auxiliary;    // absent outside training and if the model has none
  SequenceGroup* group = nullptr;  // null: this rank holds whole sequences. Otherwise it takes one sequence at a time
  GradientWatcher* watcher = nullptr;  // null: not needed

  // How many ranks divide a sequence's positions, and which of the equal runs this rank has.
  int sequence_ranks() const { return group == nullptr ? 1 : group->size(); }
  int sequence_rank() const { return group == nullptr ? 0 : group->index(); }

  // This context for products that stay in the compute type: those of the output head and of what a block has besides
  // its linear layers, and all of evaluation.
  Context without_fp8() const {
    Context ctx = *this;
    ctx.fp8_products = false;
    return ctx;
  }

  StateTypes state_types() const { return {compute, exact}; }
  Dtype residual_dtype() const { return low_precision_residual ? compute : exact; }
  Queue queue() const { return Queue(device, launch.stream); }
  bool planning() const { return arena->planning(); }
};

// Memory that is released when the scope ends.
class Tape;
class Scratch {
 public:
  explicit Scratch(Context& ctx) : ctx_(ctx), mark_(ctx.arena->scratch_used()) {}
  ~Scratch() { ctx_.arena->release_scratch(mark_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  Tensor tensor(const Shape& shape, Dtype dtype) {
    const Tensor sized(nullptr, dtype, shape);
    return Tensor(ctx_.arena->allocate_scratch(sized.bytes()), dtype, shape);
  }
  Tensor like(const Tensor& x) { return tensor(x.shape(), x.dtype()); }

  // On the tape when there is one (backward will read it), in scratch when there is none (evaluation).
  Tensor tensor(const Shape& shape, Dtype dtype, Tape* tape);
  Tensor like(const Tensor& x, Tape* tape) { return tensor(x.shape(), x.dtype(), tape); }

 private:
  Context& ctx_;
  std::size_t mark_;
};

// Tensors that forward saves for backward: a stack of views, and the arena's low end behind them. Layers push in
// forward and pop in the reverse order in backward. A frame brackets the memory of one layer's forward; close_frame, at
// the end of that layer's backward, releases it. After a step the tape must be empty.
class Tape {
 public:
  explicit Tape(Arena& arena) : arena_(arena) {}

  Tensor tensor(const Shape& shape, Dtype dtype) {
    const Tensor sized(nullptr, dtype, shape);
    return Tensor(arena_.allocate_tape(sized.bytes()), dtype, shape);
  }
  void push(const Tensor& t) { saved_.push_back(t); }
  Tensor pop();
  void open_frame() { frames_.push_back({arena_.tape_used(), saved_.size()}); }
  void close_frame();
  bool empty() const { return saved_.empty() && frames_.empty(); }

 private:
  struct Frame {
    std::size_t bytes;
    std::size_t saved;
  };
  Arena& arena_;
  std::vector<Tensor> saved_;
  std::vector<Frame> frames_;
};

}  // namespace longstride
