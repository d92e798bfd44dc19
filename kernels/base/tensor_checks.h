// Shared by the checks of several ops. All throw InternalError.
#pragma once
#include "kernels/base/check.h"
#include "kernels/base/op.h"

namespace longstride::kernels {

// The types that the device computes in: f32 and f64 on the CPU; bf16, f16 and f32 on a GPU, where f32 may be combined
// with a 16-bit type. On the CPU an op has one type.
bool computes(Device device, Dtype dtype);
// The type of statistics, parameter gradients and losses next to tensors of this type.
Dtype exact_type(Device device, Dtype dtype);
// True if `other` may be combined with `dtype`: it must be the same type or its exact type.
bool goes_with(Device device, Dtype dtype, Dtype other);

void check_computes(Device device, const Tensor& t, const char* name);
void check_contiguous(const Tensor& t, const char* name);
// Contiguous, with `count` elements in any shape.
void check_vector(const Tensor& t, std::int64_t count, Dtype dtype, const char* name);
// The same, with u8 or u16 elements.
void check_ids(const Tensor& t, std::int64_t count, const char* name);
// Any strides, but a dense last dimension.
void check_rows(const Tensor& t, const Shape& shape, Dtype dtype, const char* name);

}  // namespace longstride::kernels
