#include "framework/mixers/attention/plans.h"

namespace longstride {

std::shared_ptr<const kernels::AttentionPlan> AttentionPlans::plan(std::int64_t layer, std::int64_t positions, int rank,
                                                                   int ranks) const {
  std::lock_guard lock(mutex_);
  const std::shared_ptr<const kernels::AttentionPlan> whole = cache_.get(layer, positions);
  if (ranks == 1) return whole;
  auto& part = parts_[{whole.get(), rank, ranks}];
  if (part != nullptr) return part;
  auto mine = std::make_shared<kernels::AttentionPlan>(*whole);
  const auto each = static_cast<std::ptrdiff_t>(whole->heads.size()) / ranks;
  const auto first = whole->heads.begin() + rank * each;
  mine->heads.assign(first, first + each);
  return part = mine;
}

std::shared_ptr<const kernels::DecodePlan> AttentionPlans::decode_plan(std::int64_t layer,
                                                                       std::int64_t positions) const {
  std::lock_guard lock(mutex_);
  const std::shared_ptr<const kernels::AttentionPlan> whole = cache_.get(layer, positions);
  auto& made = decode_plans_[whole.get()];
  if (made == nullptr) made = kernels::make_decode_plan(*whole);
  return made;
}

}  // namespace longstride
