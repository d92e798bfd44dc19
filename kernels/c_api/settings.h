// Settings of a plan from a caller in C, checked and in the terms of the kernels.
#pragma once
#include <cstddef>
#include <cstdint>

#include "kernels/attention/pattern/pattern.h"
#include "kernels/base/op.h"
#include "kernels/c_api/attention.h"

namespace longstride::kernels::c_api {

#ifdef LONGSTRIDE_CUDA
inline constexpr bool has_cuda = true;
#else
inline constexpr bool has_cuda = false;
#endif

struct Settings {
  std::int64_t batch = 0, n = 0, heads = 0, key_size = 0, value_size = 0;
  double scale = 1;
  Dtype dtype = Dtype::f32;
  Device device = Device::cpu;
};

// Throw Mistake or Unsupported.
void check_range(const char* name, std::int64_t value, std::int64_t least, std::int64_t most);
void check_flag(const char* name, std::int32_t value);
// An array that is null has no elements.
void check_count(const char* name, const char* count_name, const void* array, std::size_t count);
inline constexpr std::int64_t most_size = 65536, most_size_on_gpu = 128;
// `s` with a dtype and a device of their enums; a scale of 0 becomes 1 / sqrt(key_size). `n`: what callers call s.n.
// most_on_gpu: elements of a head there.
Settings checked(Settings s, std::int32_t dtype, std::int32_t device, const char* n,
                 std::int64_t most_on_gpu = most_size_on_gpu);
Settings settings_of(const longstride_plan_config& config);

// Bounds, sinks, lists and labels, which calls may give besides tensors.
struct Extras {
  longstride_bounds bounds = LONGSTRIDE_NO_BOUNDS;
  std::int64_t bounds_heads = 1;
  bool sink = false;
  std::int32_t block = 0;  // rows; 0: no lists
  std::int64_t list_batch = 1, list_heads = 1, list_entries = 0;
  std::int64_t labels = 0;
  std::int32_t clip = 0;
  bool labels_from_end = false, label_groups = false, shared_labels = false;
};
// Settings of q and o, next to those of the keys, which have heads of their own.
Settings queries_of(const longstride_plan_config& config, const PatternConfig& pattern, const Settings& keys);
Extras extras_of(const longstride_plan_config& config, const Settings& queries, const Settings& keys);
PatternConfig pattern_of(const longstride_pattern& pattern, std::int64_t heads);

}  // namespace longstride::kernels::c_api
