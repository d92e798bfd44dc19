#include "framework/mixers/attention/plans.h"

#include <cstring>

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

std::shared_ptr<const kernels::AttentionPlan> AttentionPlans::global_plan(std::int64_t heads, std::int64_t positions,
                                                                          std::int64_t rows) const {
  std::lock_guard lock(mutex_);
  auto& made = global_plans_[{heads, positions, rows}];
  if (made != nullptr) return made;
  kernels::PatternConfig all;
  all.direction = kernels::Direction::both;
  return made = kernels::make_plan(all, 0, heads, positions, {}, rows);
}

const kernels::ListsOfHeads* AttentionPlans::lists(std::int64_t layer, std::int64_t positions) const {
  if (!kernels::has_lists(pattern_, layer, heads_)) return nullptr;
  std::lock_guard lock(mutex_);
  const auto [made, is_new] = lists_.try_emplace({layer, positions});
  if (is_new)
    made->second = kernels::lists_of_heads(pattern_, layer, heads_, kernels::blocks_in(positions, pattern_.block));
  return &made->second;
}

const std::int32_t* AttentionPlans::lists_for(Device device, std::int64_t layer, std::int64_t positions) const {
  const kernels::ListsOfHeads* made = lists(layer, positions);
  std::lock_guard lock(mutex_);
  const auto [copy, is_new] = copies_.try_emplace(made);
  if (is_new) {
    const std::size_t begins = made->key_begin.size() * sizeof(std::int32_t),
                      keys = made->keys.size() * sizeof(std::int32_t);
    copy->second = Block::host_side(device, begins + keys);
    std::memcpy(copy->second.data(), made->key_begin.data(), begins);
    std::memcpy(copy->second.data() + begins, made->keys.data(), keys);
  }
  return reinterpret_cast<const std::int32_t*>(copy->second.data());
}

std::shared_ptr<const kernels::DecodePlan> AttentionPlans::decode_plan(std::int64_t layer,
                                                                       std::int64_t positions) const {
  std::lock_guard lock(mutex_);
  const std::shared_ptr<const kernels::AttentionPlan> whole = cache_.get(layer, positions);
  auto& made = decode_plans_[whole.get()];
  if (made == nullptr) made = kernels::make_decode_plan(*whole, key_heads_);
  return made;
}

}  // namespace longstride
