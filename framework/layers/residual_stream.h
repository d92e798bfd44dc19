// The residual stream and the branches along it, k = 0 .. K-1. Branch k reads the normalised stream X_k.
//   pre-norm   X_k = norm_k(H_k),                           H_{k+1} = H_k + dropout(branch_k(X_k))   (Eq. 10 to 13)
//   post-norm  X_0 = H_0, otherwise X_k = norm_{k-1}(H_k),  H_{k+1} = X_k + dropout(branch_k(X_k))   (Vaswani et al.
//   2017)
// The result is X_K: with pre-norm it takes one more norm. The addition, the dropout and the next normalisation take
// one pass over memory, and so do their gradients. Without dropout, and if X_k and H_k have one type, the branch's last
// product makes the addition, and the normalisation a pass of its own, which then reads one tensor. (X_k has the
// compute type. If that of H_k differs, post-norm converts X_k in a pass of its own before adding.)
//
// Recompute is a policy: with `branches` = 0 everything that backward reads is kept. With r > 0 only the residual
// stream is kept, at every r-th branch, and backward reruns the r branches that follow it. If `keep_results` is set,
// the results that branches declare worth keeping (Branch::forward_keeping) are kept too, and the second run takes them
// over. Gradients are bit-identical: the same kernels see the same values, and dropout masks are functions of the step.
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "framework/layers/branch.h"
#include "framework/layers/layer_norm.h"

namespace longstride {

// The norm is the one before the branch, or with post-norm the one behind it.
struct ResidualStep {
  std::shared_ptr<const LayerNorm> norm;
  std::shared_ptr<const Branch> branch;
  Dropout after;  // the dropout of the branch's output
};

struct RecomputedBranches {
  int branches = 0;           // branches that are rerun together
  bool keep_results = false;  // results of the first run are kept, where a branch has any to keep
};

class ResidualStream {
 public:
  // Without a last norm the stream is post-norm.
  ResidualStream(std::vector<ResidualStep> steps, std::shared_ptr<const LayerNorm> last_norm,
                 RecomputedBranches recomputed)
      : steps_(std::move(steps)), last_norm_(std::move(last_norm)), recomputed_(recomputed) {}

  // h is H_0, (batch, seq, width) of the residual stream's type; normed, of the compute type, becomes X_K.
  // Without a tape h is overwritten; with one it must stay valid until backward.
  void forward(Context& ctx, const Tensor& h, const Tensor& normed, Tape* tape) const;
  // d holds the gradient of normed and is overwritten; dh, of the residual stream's type, becomes the gradient of H_0.
  void backward(Context& ctx, const Tensor& d, const Tensor& dh, Tape& tape) const;

  // Forward without a tape that shows `observe` the input X_k of every branch before the branch runs.
  using Observer = std::function<void(int k, const Tensor& normed)>;
  void observe(Context& ctx, const Tensor& h, const Tensor& normed, const Observer& observer) const;

  // Generation: h and normed are (batch, 1, width). Caches live in `memory`.
  using Caches = std::vector<std::unique_ptr<BranchCache>>;  // one per branch
  Caches make_caches(Context& ctx, Scratch& memory, std::int64_t batch, std::int64_t positions) const;
  void decode(Context& ctx, const Tensor& h, const Tensor& normed, const Caches& caches, std::int64_t position) const;

 private:
  int size() const { return static_cast<int>(steps_.size()); }
  const ResidualStep& step(int k) const { return steps_[static_cast<std::size_t>(k)]; }
  bool post_norm() const { return last_norm_ == nullptr; }
  // The norm that makes X_k from H_k; null for post-norm's X_0.
  const LayerNorm* norm(int k) const;
  void normalise(Context& ctx, int k, const Tensor& h, const Tensor& x, Tape* tape) const;
  // H_k and X_k.
  struct At {
    Tensor h, x;
  };
  // Where H_{k+1} and X_{k+1} are written, which may be H_k and X_k unless the branch adds to H_k, and where the norm
  // between them saves.
  struct Next : At {
    Tape* tape = nullptr;
  };
  bool added_by_branch(const Context& ctx, int k) const;
  // True if some branch adds its output to H_k, and so must write H_{k+1} elsewhere.
  bool reads_one_and_writes_another(const Context& ctx) const;
  // Branch k, the addition and the next norm. run(out) computes the branch; make_next() makes the tensors of the
  // result, on the tape behind what the branch saves. `out` has the branch's output, if anything is done to it, and is
  // made in `scratch` when first needed.
  template <class Run, class MakeNext>
  Next advance(Context& ctx, int k, const At& at, Tensor& out, Scratch& scratch, Run&& run, MakeNext&& make_next) const;
  void add_and_normalise(Context& ctx, int k, const At& at, const Tensor& out, const Next& next) const;

  void forward_keeping_the_stream(Context& ctx, const Tensor& h, const Tensor& normed, Tape& tape) const;
  // Steps [begin, end) from H_begin, keeping everything. If `normed` is given, it also computes H_end and X_end;
  // otherwise the last branch computes no output. Branch k takes over kept[k - begin] of an earlier run, if there is
  // one.
  void forward_keeping_all(Context& ctx, int begin, int end, const Tensor& h, const Tensor& normed, Tape& tape,
                           const std::vector<KeptResults>& kept = {}) const;
  // The kept results of branches [begin, end); empty if the policy keeps nothing.
  std::vector<KeptResults> pop_kept(int begin, int end, Tape& tape) const;
  void backward_kept(Context& ctx, int begin, int end, const Tensor& d, const Tensor& dh, Tape& tape) const;

  // True if branch k's output is added as it is. Then its gradient is that of the stream behind it and needs no tensor.
  bool passes_unchanged(const Context& ctx, int k) const;
  // dh becomes the gradient of H_k. It holds the gradient that passes branch k, of H_k or with post-norm of X_k. d, the
  // gradient of X_k by the branch, becomes that of branch k - 1's output, unless this passes unchanged and is dh.
  void backward_norm(Context& ctx, int k, const Tensor& d, const Tensor& dh, Tape& tape) const;

  std::vector<ResidualStep> steps_;
  std::shared_ptr<const LayerNorm> last_norm_;
  RecomputedBranches recomputed_;
};

}  // namespace longstride
