// The framework's names for tensors.
#pragma once
#include "kernels/base/tensor.h"

namespace longstride {

using kernels::bytes_of;
using kernels::Dtype;
using kernels::Shape;
using kernels::Tensor;

}  // namespace longstride
