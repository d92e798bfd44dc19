#include "launch/run/recompute.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "framework/core/device/device.h"
#include "framework/core/errors.h"
#include "framework/core/text/numbers.h"
#include "launch/console/device_option.h"
#include "launch/console/host_share.h"

namespace longstride {
namespace {

constexpr std::int64_t one_gib = std::int64_t{1} << 30;

// The least that any rank has; every rank calls it.
MemoryLimit least_of_all(MemoryLimit limit, Communicator& comm) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(comm.size()));
  all[static_cast<std::size_t>(comm.rank())] = limit.bytes.value_or(-1);
  comm.all_gather(all.data(), sizeof(std::int64_t));
  const std::int64_t least = *std::min_element(all.begin(), all.end());
  limit.bytes = least < 0 ? std::nullopt : std::optional(least);
  if (comm.size() > 1) limit.origin += ", the least of all ranks";
  return limit;
}

}  // namespace

MemoryLimit free_memory(Device device, int ranks, int ranks_on_host) {
  const auto gpu = gpu_info(device);
  if (!gpu) {
    MemoryLimit host = host_share(ranks_on_host);
    if (host.bytes) host.bytes = *host.bytes / 10 * 9;
    return {host.bytes, "nine tenths of what is " + host.origin};
  }
  const std::int64_t reserve = ranks > 1 ? 2 : 1;
  return {std::max<std::int64_t>(0, static_cast<std::int64_t>(gpu->free_bytes) - reserve * one_gib),
          fmt::format("free on this GPU, less {} GiB for kernels and libraries", reserve)};
}

MemoryLimit free_memory(Device device, Communicator& comm) {
  return least_of_all(free_memory(device, comm.size(), comm.local_size()), comm);
}

void check_training_fits(Model& model, const TrainConfig& config, Device device, Communicator& comm) {
  const MemoryLimit host = least_of_all(host_share(comm.local_size()), comm);
  const MemoryPlan plan = plan_memory(model, config, comm.size(), device);
  if (shares_host_memory(device)) return check_fits(model, config, comm.size(), plan, host);
  if (!host.bytes || plan.on_host() <= *host.bytes) return;  // TrainingStep looks at the GPU
  throw user_error(
      "{:.3f} GiB of the host's memory per rank are needed for checkpoints and for reading ahead, but only {:.3f} are "
      "{}; start fewer ranks on a host, or raise the limit",
      gib(plan.on_host()), gib(*host.bytes), host.origin);
}

bool recompute_is_automatic(const Recipe& recipe) { return recipe.model->recompute_policies().size() > 1; }

std::optional<RecomputeChoice> choose_recompute(Recipe& recipe, int ranks, Device device, const MemoryLimit& limit) {
  auto choice = choose_recompute(*recipe.model, recipe.train, ranks, device, limit);
  if (choice && recompute_is_automatic(recipe)) recipe = with_model(recipe, choice->policy.config);
  return choice;
}

std::optional<RecomputeChoice> choose_automatic_recompute(Recipe& recipe, Device device, Communicator& comm) {
  if (!recompute_is_automatic(recipe)) return std::nullopt;
  check_device_computes(*recipe.model->make_model(), device);
  return choose_recompute(recipe, comm.size(), device, free_memory(device, comm));
}

}  // namespace longstride
