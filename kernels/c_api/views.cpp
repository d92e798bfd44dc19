#include "kernels/c_api/views.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "kernels/c_api/mistakes.h"

namespace longstride::kernels::c_api {
namespace {

// Elements from the first to the last of a dimension. Three of them still fit 64 bits when counted in bytes.
constexpr std::int64_t longest_extent = std::int64_t{1} << 58;

void check_alignment(const void* data, std::size_t alignment, const char* name) {
  if (reinterpret_cast<std::uintptr_t>(data) % alignment != 0)
    throw Mistake("{} is at {}, but must be aligned to its elements of {} bytes", name, fmt::ptr(data), alignment);
}

// Null is allowed where there are no sequences and therefore no elements.
void check_pointer(const Settings& s, const void* data, std::size_t alignment, const char* name) {
  if (data == nullptr && s.batch > 0) throw Mistake("{} is null, but must point to memory", name);
  check_alignment(data, alignment, name);
}

template <class Rows>
void check_rows_of(const Settings& s, const Rows& rows, const char* name) {
  check_pointer(s, rows.data, bytes_of(s.dtype), name);
  const std::array<std::pair<std::int64_t, std::int64_t>, 3> dimensions = {
      {{rows.batch_stride, s.batch}, {rows.position_stride, s.n}, {rows.head_stride, s.heads}}};
  for (const auto& [stride, count] : dimensions)
    if (stride < 0 || (count > 1 && stride > longest_extent / (count - 1)))
      throw Mistake("{} has strides {}, {} and {}, but each must be at least 0 and the tensor below 2^58 elements",
                    name, rows.batch_stride, rows.position_stride, rows.head_stride);
}

// Throws if query i of an array of bounds, whose n queries are the rows from `row`, may not follow the one before it.
void check_interval(const std::int32_t* begin, const std::int32_t* end, std::int64_t row, std::int64_t i,
                    std::int64_t keys, bool documents) {
  const auto known = [&](const std::int32_t* x) { return x[i] >= 0 && x[i] <= keys && (i == 0 || x[i] >= x[i - 1]); };
  if (!known(begin) || !known(end))
    throw Mistake(
        "begin and end of row {} (query {}) are {} and {}, but must be from 0 to {} and at least those of the query "
        "before it",
        row + i, i, begin[i], end[i], keys);
  if (!documents) return;
  const bool same = i > 0 && begin[i] == begin[i - 1] && end[i] == end[i - 1];
  const bool next = begin[i] == (i > 0 ? end[i - 1] : 0);
  if (begin[i] > i || end[i] <= i || !(same || next) || (i == keys - 1 && end[i] != keys))
    throw Mistake(
        "begin and end of row {} (position {}) are {} and {}, but documents must hold their positions and follow each "
        "other from 0 to {}",
        row + i, i, begin[i], end[i], keys);
}

}  // namespace

void check_plan(const void* plan, const char* maker) {
  if (plan == nullptr) throw Mistake("plan is null, but must come from {}", maker);
}

void check_input(const Settings& s, const longstride_input& input, const char* name) { check_rows_of(s, input, name); }

// Elements are apart if each dimension, from the smallest stride, steps over all of those before it.
void check_output(const Settings& s, const longstride_output& output, std::int64_t size, const char* name) {
  check_rows_of(s, output, name);
  if (s.batch == 0) return;  // there are no elements
  std::array<std::pair<std::int64_t, std::int64_t>, 3> dimensions = {
      {{output.batch_stride, s.batch}, {output.position_stride, s.n}, {output.head_stride, s.heads}}};
  std::sort(dimensions.begin(), dimensions.end());
  std::int64_t extent = size;
  for (const auto& [stride, count] : dimensions) {
    if (count <= 1) continue;
    if (stride < extent)
      throw Mistake("{} has strides {}, {} and {}, with which elements share memory, but an output's must not", name,
                    output.batch_stride, output.position_stride, output.head_stride);
    extent += stride * (count - 1);
  }
}

void check_lse(const Settings& s, const void* lse) {
  check_pointer(s, lse, bytes_of(exact_type(s.device, s.dtype)), "lse");
}

void check_array(const void* data, std::size_t bytes, bool absent, const char* name) {
  if (absent && data != nullptr) throw Mistake("{} is given, but the plan has none, so it must be null", name);
  if (absent) return;
  if (data == nullptr) throw Mistake("{} is null, but must point to memory, because the plan has one", name);
  check_alignment(data, bytes, name);
}

void check_optional(const void* data, std::size_t bytes, bool absent, const char* name) {
  if (data != nullptr) check_array(data, bytes, absent, name);
}

void check_bounds(const Settings& queries, const Extras& extras, std::int64_t keys, const std::int32_t* begin,
                  const std::int32_t* end) {
  for (std::int64_t unit = 0; unit < queries.batch * extras.bounds_heads; ++unit) {
    const std::int64_t row = unit * queries.n;
    for (std::int64_t i = 0; i < queries.n; ++i)
      check_interval(begin + row, end + row, row, i, keys, extras.bounds == LONGSTRIDE_DOCUMENTS);
  }
}

void check_sink(const Settings& s, const void* sink) {
  for (std::int64_t h = 0; h < s.heads; ++h) {
    const double logit = exact_type(s.device, s.dtype) == Dtype::f64 ? static_cast<const double*>(sink)[h]
                                                                     : static_cast<const float*>(sink)[h];
    if (!std::isfinite(logit)) throw Mistake("sink of head {} is {}, but must be finite", h, logit);
  }
}

void check_lists(const BlockLists& lists, std::int64_t keys) {
  const std::string problem = problem_of(lists, tiles_in(static_cast<std::int32_t>(keys), lists.block));
  if (!problem.empty()) throw Mistake("{}", problem);
}

void check_begin(const Settings& s, const std::int32_t* begin) {
  for (std::int64_t row = 0; row < s.batch; ++row, begin += s.n)
    for (std::int64_t i = 0; i < s.n; ++i)
      if (begin[i] != i && (i == 0 || begin[i] != begin[i - 1]))
        throw Mistake("begin of row {} (position {}) is {}, but must be {}, or that of the position before it", row, i,
                      begin[i], i);
}

void check_numbers(const Tensor& numbers, double least, double most, const char* name, const char* allowed) {
  with_float_type(numbers.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T* x = numbers.as<const T>();
    for (std::int64_t i = 0; i < numbers.count(); ++i)
      if (!(x[i] >= static_cast<T>(least) && x[i] <= static_cast<T>(most)))
        throw Mistake("{} is {} at element {}, but must be {}", name, x[i], i, allowed);
  });
}

void check_lines(const void* data, const char* name) {
  if (reinterpret_cast<std::uintptr_t>(data) % scratch_line != 0)
    throw Mistake("{} is at {}, but must be aligned to {} bytes", name, fmt::ptr(data), scratch_line);
}

void check_scratch(const void* scratch, std::size_t bytes, std::size_t needed, const char* memory_function) {
  if (needed == 0) return;
  if (scratch == nullptr) throw Mistake("scratch is null, but this call needs {} bytes ({})", needed, memory_function);
  if (bytes < needed)
    throw Mistake("scratch has {} bytes, but this call needs {}: ask {} with the number of threads that is set now",
                  bytes, needed, memory_function);
  check_lines(scratch, "scratch");
}

}  // namespace longstride::kernels::c_api
