// Floating-point values from one type to another, if that loses nothing: a checkpoint written in another precision.
#pragma once
#include "framework/core/tensor.h"

namespace longstride {

// to = from: contiguous tensors of as many elements in host memory, f32, bf16 or f16. False if a value's bits would
// not come back from `to`, whose content is then unspecified. InternalError for other types.
bool convert_exactly(const Tensor& from, const Tensor& to);

}  // namespace longstride
