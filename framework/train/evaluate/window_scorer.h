// Scores windows of a split on this rank, some of them at a time.
#pragma once
#include <cstdint>
#include <vector>

#include "framework/core/device/memory.h"
#include "framework/train/evaluate/evaluator.h"

namespace longstride {

// A row of the model's batch: a window, by its index, or none; whether it does not continue the row's last one; and
// whether its bytes count, or are only read to be remembered.
struct ScoredRow {
  std::int64_t window = -1;
  bool starts = true, counts = true;
};

class WindowScorer {
 public:
  // All references must outlive this object. It takes scratch from ctx's arena until it is destroyed.
  WindowScorer(const Model& model, const Objective& objective, Context& ctx, const SequenceSet& sequences,
               const std::vector<EvaluationWindow>& windows, const EvaluationConfig& config);

  // Rows of `length` positions; a shorter window is padded at its end, where no scored byte attends to it. If the model
  // has states, all calls must have the same rows, in order.
  void score(const std::vector<ScoredRow>& rows, std::int64_t length);
  // For every window the weight of its losses and the objective's sums of them: 0 for those not scored here.
  std::vector<double>& scores() { return scores_; }
  // EvaluationResult::losses, of all ranks; empty unless they are to be kept.
  std::vector<float> take_losses(Communicator& comm);

  // Exact arena bytes that it needs, and bytes on the host for transfers to a GPU.
  static std::size_t bytes(const Model& model, const Context& ctx, const EvaluationConfig& config);
  static std::size_t host_bytes(const Model& model, const EvaluationConfig& config);

 private:
  void read(const std::vector<ScoredRow>& rows, const Batch& batch) const;
  // The losses of a window among `positions` from `first` on, or all of a window that is asked as a whole.
  struct LossRange {
    std::int64_t begin, end;
  };
  LossRange scored_of(const EvaluationWindow& window, std::int64_t first, std::int64_t positions) const;
  template <class T>
  void add(const std::vector<ScoredRow>& rows, std::int64_t run, const Tensor& weights, const T* losses,
           const std::byte* right);

  const Model& model_;
  const Objective& objective_;
  Context ctx_;
  const SequenceSet& sequences_;
  const std::vector<EvaluationWindow>& windows_;
  Scratch scratch_;  // holds the states
  HostSide host_rows_, host_losses_, host_right_;
  std::vector<double> scores_;
  const BatchFields fields_;
  const bool judges_;           // the objective wants to know which answers are right
  const std::int64_t longest_;  // positions of a row
  const std::int64_t most_;     // losses of a window
  std::vector<float> losses_;   // (windows, most_), if they are to be kept
};

}  // namespace longstride
