// The plans of attention with a pattern.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <utility>

#include "framework/core/device/memory.h"
#include "kernels/attention/decode/decode.h"
#include "kernels/attention/pattern/plan.h"
#include "kernels/attention/pattern/random_blocks.h"

namespace longstride {

// The plans of a model's layers, by sequence length; layers with equal parts share a plan. Each rank of a group that
// divides a sequence has an equal run of the heads. Thread-safe.
class AttentionPlans {
 public:
  AttentionPlans(kernels::PatternConfig pattern, std::int64_t heads, std::int64_t key_heads)
      : pattern_(pattern), heads_(heads), key_heads_(key_heads), cache_(std::move(pattern), heads) {}
  const kernels::PatternConfig& pattern() const { return pattern_; }
  std::shared_ptr<const kernels::AttentionPlan> plan(std::int64_t layer, std::int64_t positions, int rank = 0,
                                                     int ranks = 1) const;
  // The plan of `rows` queries that see every position, for so many heads.
  std::shared_ptr<const kernels::AttentionPlan> global_plan(std::int64_t heads, std::int64_t positions,
                                                            std::int64_t rows) const;
  // The lists that restrict a plan, or null; they live as long as this.
  const kernels::ListsOfHeads* lists(std::int64_t layer, std::int64_t positions) const;
  // Their key_begin, and keys behind it, where a device may copy them from at any time: for a GPU in pinned memory,
  // which a captured step needs.
  const std::int32_t* lists_for(Device device, std::int64_t layer, std::int64_t positions) const;
  std::shared_ptr<const kernels::DecodePlan> decode_plan(std::int64_t layer, std::int64_t positions) const;

 private:
  kernels::PatternConfig pattern_;
  std::int64_t heads_, key_heads_;
  mutable std::mutex mutex_;
  mutable kernels::PlanCache cache_;
  mutable std::map<std::tuple<const kernels::AttentionPlan*, int, int>, std::shared_ptr<const kernels::AttentionPlan>>
      parts_;  // parts of the cached plans, which are never dropped
  mutable std::map<const kernels::AttentionPlan*, std::shared_ptr<const kernels::DecodePlan>> decode_plans_;
  mutable std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t>, std::shared_ptr<const kernels::AttentionPlan>>
      global_plans_;
  mutable std::map<std::pair<std::int64_t, std::int64_t>, kernels::ListsOfHeads> lists_;
  mutable std::map<const kernels::ListsOfHeads*, Block> copies_;
};

}  // namespace longstride
