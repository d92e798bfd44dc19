#include "kernels/c_api/distance_settings.h"

#include <cmath>

#include "kernels/c_api/mistakes.h"
#include "kernels/distance_attention/distance_attention.h"

namespace longstride::kernels::c_api {
namespace {

constexpr std::int64_t most_keys = (1 << 24) - 1;

bool flag(const char* name, std::int32_t value) {
  check_flag(name, value);
  return value != 0;
}

void check_sizes(const DistanceSettings& s) {
  if (s.queries.n < 1 || s.queries.n > s.keys.n)
    throw Mistake("queries is {}, but must be from 1 to keys, {}", s.queries.n, s.keys.n);
  if (s.keys.device == Device::cuda) check_range("heads", s.keys.heads, 1, most_distance_on_gpu);
}

void check_table(const DistanceSettings& s) {
  check_range("distances", s.distances, 0, most_keys);
  if (s.shared_table && s.distances == 0)
    throw Mistake("shared_table is 1, but distances is 0: set the rows of the table");
  if (s.position_bias && s.distances == 0)
    throw Mistake("position_bias is 1, but distances is 0: without a table it has no effect");
}

void check_spans(const DistanceSettings& s) {
  const bool positive = s.longest_span > 0 && s.ramp > 0 && std::isfinite(s.longest_span) && std::isfinite(s.ramp);
  if (!positive && !(s.longest_span == 0 && s.ramp == 0))
    throw Mistake("longest_span is {} and ramp {}, but both must be positive, or both 0 for no spans", s.longest_span,
                  s.ramp);
}

std::vector<std::int32_t> dilation_of(const longstride_distance_config& c) {
  check_count("dilation", "dilation_count", c.dilation, c.dilation_count);
  if (c.dilation_count != 0 && c.dilation_count != static_cast<std::size_t>(c.heads))
    throw Mistake("dilation has {} steps, but must have none, or one for each of {} heads", c.dilation_count, c.heads);
  std::vector<std::int32_t> steps;
  for (std::size_t h = 0; h < c.dilation_count; ++h) {
    check_range("dilation", c.dilation[h], 1, most_keys);
    steps.push_back(static_cast<std::int32_t>(c.dilation[h]));
  }
  return steps;
}

}  // namespace

DistanceSettings distance_settings_of(const longstride_distance_config* config) {
  const auto c = complete(config, "the config");
  check_range("keys", c.keys, 1, most_keys);
  DistanceSettings s;
  s.keys = checked({.batch = c.batch,
                    .n = c.keys,
                    .heads = c.heads,
                    .key_size = c.key_size,
                    .value_size = c.value_size,
                    .scale = c.scale},
                   c.dtype, c.device, "keys");
  s.queries = s.keys;
  s.queries.n = c.queries;
  s.distances = c.distances;
  s.shared_table = flag("shared_table", c.shared_table);
  s.content_bias = flag("content_bias", c.content_bias);
  s.position_bias = flag("position_bias", c.position_bias);
  s.first_keys = flag("first_keys", c.first_keys);
  s.self = !flag("without_self", c.without_self);
  s.window = c.window;
  s.longest_span = c.longest_span;
  s.ramp = c.ramp;
  check_sizes(s);
  check_range("window", s.window, 0, most_keys);
  check_table(s);
  check_spans(s);
  s.dilation = dilation_of(c);
  return s;
}

}  // namespace longstride::kernels::c_api
