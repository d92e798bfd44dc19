// Settings of attention with distances from a caller in C, checked and in the terms of the kernels.
#pragma once
#include <cstdint>
#include <vector>

#include "kernels/c_api/distance.h"
#include "kernels/c_api/settings.h"

namespace longstride::kernels::c_api {

struct DistanceSettings {
  Settings queries, keys;  // equal but for their positions
  std::int64_t distances = 0;
  bool shared_table = false, content_bias = false, position_bias = false, first_keys = false, self = true;
  std::int64_t window = 0;
  double longest_span = 0, ramp = 0;
  std::vector<std::int32_t> dilation = {};

  bool spans() const { return longest_span > 0; }
};

// Throws Mistake or Unsupported.
DistanceSettings distance_settings_of(const longstride_distance_config* config);

}  // namespace longstride::kernels::c_api
