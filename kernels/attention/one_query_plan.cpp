#include "kernels/attention/one_query_plan.h"

#include <algorithm>

namespace longstride::kernels::cuda::portable {
namespace {

// A head's geometry: what its passes show the only query.
bool geometry_of(const AttentionPlan& plan, std::int64_t head, OneQueryPlan::Geometry& out) {
  for (const Pass& pass : plan.passes_of(head)) {
    if (pass.classes != 1) return false;
    for (const Part& part : plan.parts_of(pass)) {
      if (out.parts == OneQueryPlan::most_parts) return false;
      const Interval in = part.interval(part.keys, 0);
      if (in.end > in.begin) out.part[out.parts++] = {part.keys, in};
    }
  }
  return true;
}

std::int32_t tiles_of(const OneQueryPlan::Geometry& geometry) {
  std::int32_t tiles = 0;
  for (std::int32_t p = 0; p < geometry.parts; ++p)
    tiles += tiles_in(geometry.part[p].in.end - geometry.part[p].in.begin, OneQueryPlan::tile_keys);
  return tiles;
}

}  // namespace

bool OneQueryPlan::find(const AttentionPlan& plan, std::int64_t batch, std::int64_t key_heads, bool packs) {
  if (plan.queries != 1 || std::ssize(plan.heads) > most_heads) return false;
  heads = static_cast<std::int32_t>(plan.heads.size());
  const auto group = static_cast<std::int32_t>(heads / key_heads);
  std::int32_t first_pass[most_geometries], found = 0, most_tiles = 0;
  for (std::int32_t h = 0; h < heads; ++h) {
    const std::int32_t pass = plan.heads[static_cast<std::size_t>(h)].first_pass;
    const auto same = static_cast<std::int32_t>(std::find(first_pass, first_pass + found, pass) - first_pass);
    if (same == most_geometries) return false;
    if (same == found) {
      geometry[found] = {};
      if (!geometry_of(plan, h, geometry[found])) return false;
      most_tiles = std::max(most_tiles, tiles_of(geometry[found]));
      first_pass[found++] = pass;
    }
    of_head[h] = static_cast<std::uint8_t>(same);
    packs = packs && of_head[h] == of_head[h / group * group];
  }
  rows = packs ? std::min<std::int32_t>(group, most_rows) : 1;
  while (group % rows != 0) --rows;
  const std::int64_t units = std::max<std::int64_t>(batch * (heads / rows), 1);
  splits = static_cast<std::int32_t>(std::clamp<std::int64_t>(wanted_blocks / units, 1, std::max(most_tiles / 2, 1)));
  return true;
}

}  // namespace longstride::kernels::cuda::portable
