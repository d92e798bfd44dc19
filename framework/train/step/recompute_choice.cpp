#include "framework/train/step/recompute_choice.h"

#include <fmt/format.h>

#include "framework/core/text/numbers.h"

namespace longstride {
namespace {

std::string described(const RecomputePolicy& policy) { return fmt::format("{}: {}", policy.name, policy.summary); }

}  // namespace

std::optional<RecomputeChoice> choose_recompute(const ModelConfig& model, const TrainConfig& config, int ranks,
                                                Device device, const MemoryLimit& limit) {
  const std::vector<RecomputePolicy> policies = model.recompute_policies();
  if (policies.empty()) return std::nullopt;
  if (policies.size() == 1) return RecomputeChoice{policies.front(), described(policies.front())};
  if (!limit.bytes)
    return RecomputeChoice{policies.front(), fmt::format("{}; chosen because the free memory is not known here",
                                                         described(policies.front()))};
  std::string tried;
  for (const RecomputePolicy& policy : policies) {
    const std::int64_t bytes = plan_memory(*policy.config->make_model(), config, ranks, device).on_device();
    tried += fmt::format("{}{} takes {:.2f}", tried.empty() ? "" : ", ", policy.name, gib(bytes));
    const bool fits = bytes <= *limit.bytes;
    if (!fits && &policy != &policies.back()) continue;
    return RecomputeChoice{policy, fmt::format("{}; chosen {} {:.2f} GiB ({}): {}", described(policy),
                                               fits ? "for" : "as the smallest, although it exceeds", gib(*limit.bytes),
                                               limit.origin, tried)};
  }
  return std::nullopt;  // not reached: the last policy is chosen in any case
}

}  // namespace longstride
