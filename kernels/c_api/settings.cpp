#include "kernels/c_api/settings.h"

#include <cmath>
#include <limits>
#include <string>
#include <string_view>

#include "kernels/attention/pattern/block_lists.h"
#include "kernels/base/tensor_checks.h"
#include "kernels/c_api/mistakes.h"

namespace longstride::kernels::c_api {
namespace {

// Kernels number heads by 16 bits, and those for GPUs rows by 31 and sequences by 16.
constexpr std::int64_t most_heads = 32767, most_elements = std::int64_t{1} << 48;
constexpr std::int64_t most_rows_on_gpu = std::numeric_limits<std::int32_t>::max(), most_sequences_on_gpu = 65535;
constexpr std::size_t most_parts = 4096;
constexpr std::int64_t most_layers = std::int64_t{1} << 31;  // far above those of recipes

Dtype dtype_of(std::int32_t number) {
  switch (number) {
    case LONGSTRIDE_F32:
      return Dtype::f32;
    case LONGSTRIDE_F64:
      return Dtype::f64;
    case LONGSTRIDE_BF16:
      return Dtype::bf16;
    case LONGSTRIDE_F16:
      return Dtype::f16;
    default:
      throw Mistake("dtype is {}, but must be one of enum longstride_dtype, from 0 to 3", number);
  }
}

Device device_of(std::int32_t number) {
  if (number == LONGSTRIDE_CPU) return Device::cpu;
  if (number != LONGSTRIDE_CUDA_DEVICE)
    throw Mistake("device is {}, but must be LONGSTRIDE_CPU (0) or LONGSTRIDE_CUDA_DEVICE (1)", number);
  if (!has_cuda)
    throw Unsupported(
        "this build of longstride_attention has no CUDA kernels: use LONGSTRIDE_CPU, or build where the CUDA toolkit "
        "is installed");
  return Device::cuda;
}

Integration integration_of(const char* given) {
  const std::string_view name = given == nullptr ? "interleaved" : given;
  if (name == "interleaved") return Integration::interleaved;
  if (name == "merged") return Integration::merged;
  if (name == "multihead") return Integration::multihead;
  throw Mistake("integration is '{}', but must be one of interleaved, merged, multihead", shown(name));
}

PartKind part_of(const char* given) {
  const std::string_view name = given == nullptr ? "" : given;
  for (const PartKind kind :
       {PartKind::dense, PartKind::local, PartKind::column, PartKind::fixed_block, PartKind::fixed_summary,
        PartKind::first, PartKind::block_window, PartKind::dilated, PartKind::shifted_block})
    if (name == name_of(kind)) return kind;
  throw Mistake(
      "parts has '{}', but must name dense, local, column, fixed_block, fixed_summary, first, block_window, "
      "dilated or shifted_block",
      shown(name));
}

Direction direction_of(const char* given) {
  const std::string_view name = given == nullptr ? "past" : given;
  if (name == "past") return Direction::past;
  if (name == "both") return Direction::both;
  throw Mistake("direction is '{}', but must be past or both", shown(name));
}

// A problem without the prefix that it has in recipes.
std::string without_prefix(std::string problem) {
  constexpr std::string_view prefix = "attention.";
  for (std::size_t at = 0; (at = problem.find(prefix, at)) != std::string::npos;) problem.erase(at, prefix.size());
  return problem;
}

void check_sizes(const Settings& s, const char* n, std::int64_t most_on_gpu = most_size_on_gpu) {
  const bool gpu = s.device == Device::cuda;
  check_range("batch", s.batch, 0, gpu ? most_sequences_on_gpu : most_elements);
  check_range(n, s.n, 1, longest_plan);
  check_range("heads", s.heads, 1, most_heads);
  check_range("key_size", s.key_size, 1, gpu ? most_on_gpu : most_size);
  check_range("value_size", s.value_size, 1, gpu ? most_on_gpu : most_size);
  const std::int64_t rows = s.n * s.heads;
  const std::int64_t most = gpu ? most_rows_on_gpu : most_elements / std::max(s.key_size, s.value_size);
  if (s.batch > most / rows)
    throw Mistake("batch * {} * heads is {} * {} * {}, but must be at most {}", n, s.batch, s.n, s.heads, most);
}

// The pattern says which numbers are allowed.
std::vector<std::int64_t> numbers_of(const char* name, const char* count_name, const std::int64_t* numbers,
                                     std::size_t count, std::int64_t most) {
  check_count(name, count_name, numbers, count);
  if (count > static_cast<std::size_t>(most))
    throw Mistake("{} has {} numbers, but must have at most {}", name, count, most);
  return {numbers, numbers + count};
}

void check_labels(const longstride_plan_config& c) {
  check_range("labels", c.labels, 0, most_size);
  check_range("clip", c.clip, 0, c.labels_from_end != 0 ? 0 : most_size);
  check_flag("labels_from_end", c.labels_from_end);
  check_flag("label_groups", c.label_groups);
  check_flag("shared_labels", c.shared_labels);
  const std::int64_t sets = c.label_groups + 1, wanted = sets * (2 * std::int64_t{c.clip} + 1);
  const bool is_plain = c.clip == 0 && sets == 1 && c.labels_from_end == 0 && c.shared_labels == 0;
  if (c.labels == 0 && is_plain) return;
  if (c.labels_from_end != 0 && (c.labels == 0 || c.labels % sets != 0))
    throw Mistake("labels is {}, but must be a positive multiple of {}", c.labels, sets);
  if (c.labels_from_end == 0 && c.labels != wanted)
    throw Mistake("labels is {}, but must be {} with clip {} {} groups", c.labels, wanted, c.clip,
                  sets == 2 ? "and" : "and no");
}

}  // namespace

void check_range(const char* name, std::int64_t value, std::int64_t least, std::int64_t most) {
  if (value < least || value > most) throw Mistake("{} is {}, but must be from {} to {}", name, value, least, most);
}

void check_flag(const char* name, std::int32_t value) {
  if (value != 0 && value != 1) throw Mistake("{} is {}, but must be 0 or 1", name, value);
}

void check_count(const char* name, const char* count_name, const void* array, std::size_t count) {
  if (array == nullptr && count > 0) throw Mistake("{} is null, but {} is {}", name, count_name, count);
}

Settings checked(Settings s, std::int32_t dtype, std::int32_t device, const char* n, std::int64_t most_on_gpu) {
  s.dtype = dtype_of(dtype);
  s.device = device_of(device);
  if (!computes(s.device, s.dtype))
    throw Mistake("dtype is {}, but {}", name_of(s.dtype),
                  s.device == Device::cpu ? "the CPU computes in f32 and f64" : "a GPU computes in f32, bf16 and f16");
  check_sizes(s, n, most_on_gpu);
  if (!(s.scale >= 0 && std::isfinite(s.scale)))
    throw Mistake("scale is {}, but must be a positive number, or 0 for 1 / sqrt(key_size)", s.scale);
  if (s.scale == 0) s.scale = 1 / std::sqrt(static_cast<double>(s.key_size));
  return s;
}

Settings settings_of(const longstride_plan_config& c) {
  Settings keys = checked({.batch = c.batch,
                           .n = c.n,
                           .heads = c.heads,
                           .key_size = c.key_size,
                           .value_size = c.value_size,
                           .scale = c.scale},
                          c.dtype, c.device, "n");
  if (c.key_heads == 0) return keys;
  check_range("key_heads", c.key_heads, 1, c.heads);
  if (c.heads % c.key_heads != 0) throw Mistake("key_heads is {}, but must divide heads, {}", c.key_heads, c.heads);
  keys.heads = c.key_heads;
  return keys;
}

Settings queries_of(const longstride_plan_config& c, const PatternConfig& pattern, const Settings& keys) {
  Settings queries = keys;
  queries.heads = c.heads;
  if (c.queries == 0) return queries;
  queries.n = c.queries;
  check_sizes(queries, "queries");
  if (queries.n == keys.n || pattern.direction == Direction::both) return queries;
  if (queries.n != 1)
    throw Mistake(
        "queries is {}, but a pattern of the past has as many queries as keys, {}, or 1, the last: set direction to "
        "both",
        queries.n, keys.n);
  if (c.labels > 0 && c.labels_from_end == 0)
    throw Mistake("labels is {}, but queries is 1, which has no distances to keys of the past: set labels_from_end",
                  c.labels);
  return queries;
}

Extras extras_of(const longstride_plan_config& c, const Settings& queries, const Settings& keys) {
  check_range("bounds", c.bounds, LONGSTRIDE_NO_BOUNDS, LONGSTRIDE_DOCUMENTS);
  check_flag("sink", c.sink);
  check_labels(c);
  check_range("block", c.block, 0, longest_plan);
  if (c.block % BlockLists::unit != 0)
    throw Mistake("block is {}, but must be a multiple of {}, or 0 for no lists", c.block,
                  std::int32_t{BlockLists::unit});
  check_range("list_entries", c.list_entries, 0, std::numeric_limits<std::int32_t>::max());
  const Extras extras{.bounds = static_cast<longstride_bounds>(c.bounds),
                      .bounds_heads = c.bounds_heads == 0 ? 1 : c.bounds_heads,
                      .sink = c.sink != 0,
                      .block = static_cast<std::int32_t>(c.block),
                      .list_batch = c.list_batch == 0 ? 1 : c.list_batch,
                      .list_heads = c.list_heads == 0 ? 1 : c.list_heads,
                      .list_entries = c.list_entries,
                      .labels = c.labels,
                      .clip = c.clip,
                      .labels_from_end = c.labels_from_end != 0,
                      .label_groups = c.label_groups != 0,
                      .shared_labels = c.shared_labels != 0};
  if (extras.bounds_heads != 1 && extras.bounds_heads != queries.heads)
    throw Mistake("bounds_heads is {}, but must be 1 or heads, {}", extras.bounds_heads, queries.heads);
  if (extras.list_batch != 1 && extras.list_batch != keys.batch)
    throw Mistake("list_batch is {}, but must be 1 or batch, {}", extras.list_batch, keys.batch);
  if (extras.list_heads != 1 && extras.list_heads != queries.heads)
    throw Mistake("list_heads is {}, but must be 1 or heads, {}", extras.list_heads, queries.heads);
  if (extras.bounds == LONGSTRIDE_DOCUMENTS && queries.n != keys.n)
    throw Mistake("queries is {}, but documents have as many queries as keys, {}", queries.n, keys.n);
  return extras;
}

PatternConfig pattern_of(const longstride_pattern& p, std::int64_t heads) {
  PatternConfig pattern;
  pattern.integration = integration_of(p.integration);
  check_count("parts", "part_count", p.parts, p.part_count);
  if (p.part_count > most_parts)
    throw Mistake("parts has {} names, but must have at most {}", p.part_count, most_parts);
  pattern.parts.clear();
  for (std::size_t i = 0; i < p.part_count; ++i) pattern.parts.push_back(part_of(p.parts[i]));
  check_range("stride", p.stride, 0, longest_plan);
  check_range("window", p.window, 0, longest_plan);
  check_range("layer", p.layer, 0, most_layers - 1);
  pattern.stride = p.stride;
  pattern.window = p.window;
  check_count("summary", "summary_count", p.summary, p.summary_count);
  if (p.summary_count > static_cast<std::size_t>(heads))
    throw Mistake("summary has {} widths, but must have none, one, or one for each of {} heads", p.summary_count,
                  heads);
  pattern.summary.assign(p.summary, p.summary + p.summary_count);
  check_flag("distinct_heads", p.distinct_heads);
  check_flag("summary_inclusive", p.summary_inclusive);
  pattern.distinct_heads = p.distinct_heads != 0;
  pattern.summary_inclusive = p.summary_inclusive != 0;
  pattern.direction = direction_of(p.direction);
  check_range("first", p.first, 0, longest_plan);
  pattern.first = p.first;
  check_range("block", p.block, 0, longest_plan);
  check_range("blocks", p.blocks, 0, longest_plan);
  pattern.block = p.block;
  pattern.blocks = p.blocks;
  pattern.dilation = numbers_of("dilation", "dilation_count", p.dilation, p.dilation_count, heads);
  pattern.shifts = numbers_of("shifts", "shift_count", p.shifts, p.shift_count, longest_plan);
  if (const std::string problem = problem_of(pattern, heads, 1); !problem.empty())
    throw Mistake("{}", without_prefix(problem));
  return pattern;
}

}  // namespace longstride::kernels::c_api
