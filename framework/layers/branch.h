// A branch of a residual block: a function of the normalised residual stream. ResidualStream does the normalisation,
// the dropout and the addition to the stream, in one pass, unless the branch adds its output itself.
//
// All tensors are (batch, seq, width), of the compute type, and owned by the caller. With a tape, `normed` must stay
// valid until backward; without one nothing is saved (evaluation). `out` may be absent when only the tape is needed
// (recompute); a branch then skips work that only contributes to out.
#pragma once
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "framework/core/context.h"
#include "framework/core/parameters.h"

namespace longstride {

// Results of a branch's forward pass that a second one takes over, in the order in which they were pushed.
using KeptResults = std::vector<Tensor>;

// Tensors that a branch keeps between the positions of sequences being generated.
class BranchCache {
 public:
  virtual ~BranchCache() = default;
};

// Where a branch writes its output: to a tensor, or added to the residual stream.
class BranchOutput {
 public:
  struct Place {
    Tensor to, residual;  // to = residual + output, or the output alone without a residual; `to` may not be `residual`
  };

  BranchOutput() = default;  // absent
  BranchOutput(const Tensor& to) : to_(to) {}
  // `place` makes the tensors, on the tape behind everything that the branch saves.
  explicit BranchOutput(std::function<Place()> place) : place_(std::move(place)) {}

  bool given() const { return place_ != nullptr || to_.given(); }
  // Call once, after the last push to the tape.
  Place place() const { return place_ != nullptr ? place_() : Place{to_, {}}; }

 private:
  Tensor to_;
  std::function<Place()> place_;
};

class Branch {
 public:
  virtual ~Branch() = default;
  virtual void forward(Context& ctx, const Tensor& normed, const BranchOutput& out, Tape* tape) const = 0;
  // True if forward() and its variants add a residual. Other branches are given none.
  virtual bool adds_residual() const { return false; }
  // Overwrites dnormed, which may be dout, but not dout otherwise. Parameter gradients accumulate. Exception: the
  // output bias, whose gradient (column sums of dout) is accumulated into output_bias_gradient() by the kernel that
  // produces dout.
  virtual void backward(Context& ctx, const Tensor& dout, const Tensor& dnormed, Tape& tape) const = 0;
  virtual Tensor output_bias_gradient() const = 0;

  // Selective recompute. forward_keeping is forward without a tape, but pushes kept_results() tensors to `tape`: what
  // takes long to compute and little memory to keep. forward_again is forward with a tape that takes them over instead
  // of computing them; they stay valid until backward. A branch may keep nothing.
  virtual int kept_results() const { return 0; }
  virtual void forward_keeping(Context& ctx, const Tensor& normed, const BranchOutput& out, Tape& /*tape*/) const {
    forward(ctx, normed, out, nullptr);
  }
  virtual void forward_again(Context& ctx, const Tensor& normed, const BranchOutput& out, const KeptResults& /*kept*/,
                             Tape& tape) const {
    forward(ctx, normed, out, &tape);
  }

  // The first matrix that the branch declared: once backward has returned, the gradients of this matrix and of all
  // matrices declared later are final.
  virtual const Parameter& gradients_final_from() const = 0;

  // Generation of `batch` sequences of at most `positions`, in order and one position at a time, or several where all
  // mixers take them: normed and out are (batch, 1 or more, width). A branch that treats each position independently
  // needs no cache.
  virtual std::unique_ptr<BranchCache> make_cache(Context& /*ctx*/, Scratch& /*memory*/, std::int64_t /*batch*/,
                                                  std::int64_t /*positions*/) const {
    return nullptr;
  }
  virtual void decode(Context& ctx, const Tensor& normed, const Tensor& out, BranchCache* /*cache*/,
                      std::int64_t /*position*/) const {
    forward(ctx, normed, out, nullptr);
  }
};

}  // namespace longstride
