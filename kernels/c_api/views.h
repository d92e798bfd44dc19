// The tensors of a caller in C: checks of their memory, and the kernels' views of it.
#pragma once
#include <cstddef>
#include <cstdint>

#include "kernels/attention/pattern/block_lists.h"
#include "kernels/base/tensor_checks.h"
#include "kernels/c_api/settings.h"

namespace longstride::kernels::c_api {

// Throw Mistake.
void check_plan(const void* plan, const char* maker);
void check_input(const Settings& s, const longstride_input& input, const char* name);
void check_output(const Settings& s, const longstride_output& output, std::int64_t size, const char* name);
void check_lse(const Settings& s, const void* lse);
// An array of elements of `bytes`, which may be null only if `absent`, and must be then.
void check_array(const void* data, std::size_t bytes, bool absent, const char* name);
// One that may always be null.
void check_optional(const void* data, std::size_t bytes, bool absent, const char* name);
// Bounds, a sink, lists and numbers, in the host's memory.
void check_bounds(const Settings& queries, const Extras& extras, std::int64_t keys, const std::int32_t* begin,
                  const std::int32_t* end);
void check_sink(const Settings& s, const void* sink);
void check_lists(const BlockLists& lists, std::int64_t keys);
void check_begin(const Settings& s, const std::int32_t* begin);
// No number may be below `least`, above `most` or NaN. allowed: of the message.
void check_numbers(const Tensor& numbers, double least, double most, const char* name, const char* allowed);
constexpr std::size_t scratch_line = 64;  // to which scratch is aligned
void check_lines(const void* data, const char* name);
// memory_function: the function of the interface that returns `needed`.
void check_scratch(const void* scratch, std::size_t bytes, std::size_t needed, const char* memory_function);

// (batch, n, heads, size); kernels do not write to inputs.
template <class Rows>
Tensor view_of(const Settings& s, const Rows& rows, std::int64_t size) {
  return {const_cast<void*>(static_cast<const void*>(rows.data)),
          s.dtype,
          {s.batch, s.n, s.heads, size},
          {rows.batch_stride, rows.position_stride, rows.head_stride, 1}};
}

// An array of the call, or no tensor where it has none.
inline Tensor array_of(bool given, const void* data, Dtype dtype, const Shape& shape) {
  return given ? Tensor(const_cast<void*>(data), dtype, shape) : Tensor();
}

}  // namespace longstride::kernels::c_api
