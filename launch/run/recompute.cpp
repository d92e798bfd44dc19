#include "launch/run/recompute.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "framework/core/device/device.h"
#include "framework/core/device/host_memory.h"
#include "launch/console/device_option.h"

namespace longstride {
namespace {

constexpr std::int64_t one_gib = std::int64_t{1} << 30;

MemoryLimit free_on_host(int ranks_on_host) {
  MemoryLimit limit;
  if (const auto free = free_host_memory()) limit.bytes = *free / 10 * 9 / ranks_on_host;
  limit.origin = ranks_on_host == 1 ? "nine tenths of what is free on this machine"
                                    : fmt::format("nine tenths of what is free, for each of {} ranks", ranks_on_host);
  return limit;
}

}  // namespace

MemoryLimit free_memory(Device device, int ranks, int ranks_on_host) {
  const auto gpu = gpu_info(device);
  if (!gpu) return free_on_host(ranks_on_host);
  const std::int64_t reserve = ranks > 1 ? 2 : 1;
  return {std::max<std::int64_t>(0, static_cast<std::int64_t>(gpu->free_bytes) - reserve * one_gib),
          fmt::format("free on this GPU, less {} GiB for kernels and libraries", reserve)};
}

MemoryLimit free_memory(Device device, Communicator& comm) {
  MemoryLimit limit = free_memory(device, comm.size(), comm.local_size());
  std::vector<std::int64_t> all(static_cast<std::size_t>(comm.size()));
  all[static_cast<std::size_t>(comm.rank())] = limit.bytes.value_or(-1);
  comm.all_gather(all.data(), sizeof(std::int64_t));
  const std::int64_t least = *std::min_element(all.begin(), all.end());
  limit.bytes = least < 0 ? std::nullopt : std::optional(least);
  if (comm.size() > 1) limit.origin += ", the least of all ranks";
  return limit;
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
