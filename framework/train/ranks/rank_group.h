// The ranks that hold a sequence together, as layers see them (framework/core/context.h).
#pragma once
#include "framework/comm/collectives.h"
#include "framework/core/context.h"

namespace longstride {

class RankGroup final : public SequenceGroup {
 public:
  // `ranks` is null while planning.
  RankGroup(Collectives* ranks, int index, int size) : ranks_(ranks), index_(index), size_(size) {}
  int index() const override { return index_; }
  int size() const override { return size_; }
  void all_to_all(const Context& ctx, const Tensor& from, const Tensor& to) const override {
    if (!ctx.planning()) ranks_->all_to_all(from, to, ctx.launch.stream);
  }

 private:
  Collectives* ranks_;
  int index_, size_;
};

}  // namespace longstride
