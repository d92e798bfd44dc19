// How far scores look ahead: windows of a split, each also with the bytes behind a position replaced by those of
// another window. All have the context's length, as products of other shapes round differently.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "framework/train/evaluate/evaluator.h"

namespace longstride {

class ReplacedFutures final : public SequenceSet {
 public:
  static constexpr std::int64_t most_positions = 64;

  // At most `windows` whole windows of `sequences`, spread evenly. UserError if there are not two.
  ReplacedFutures(std::shared_ptr<const SequenceSet> sequences, std::int64_t context, std::int64_t windows);

  std::int64_t sequences() const override { return windows() * (1 + positions()); }
  std::int64_t length(std::int64_t) const override { return context_; }
  std::int64_t token_bytes() const override { return from_->token_bytes(); }
  double bytes_per_token() const override { return from_->bytes_per_token(); }
  void read(std::int64_t sequence, std::int64_t offset, std::int64_t length, std::uint8_t* out) const override;

  std::int64_t windows() const { return std::ssize(windows_); }
  std::int64_t positions() const { return std::min(most_positions, context_); }  // in a window

  // Bits by which the scores at the positions of the windows change.
  struct Leak {
    std::int64_t windows = 0, positions = 0;
    double mean = 0, largest = 0;
  };
  // losses: EvaluationResult::losses of this set, in nats.
  Leak leak(const std::vector<float>& losses) const;

 private:
  std::int64_t position(std::int64_t number) const { return (2 * number + 1) * context_ / (2 * positions()); }

  std::shared_ptr<const SequenceSet> from_;
  std::int64_t context_;
  std::vector<EvaluationWindow> windows_;
};

}  // namespace longstride
