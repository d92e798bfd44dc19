#include "kernels/base/tensor_checks.h"

namespace longstride::kernels {

void cuda_is_absent() { throw std::runtime_error("this build of Longstride has no CUDA kernels"); }

bool computes(Device device, Dtype dtype) {
  if (dtype == Dtype::f32) return true;
  return device == Device::cpu ? dtype == Dtype::f64 : dtype == Dtype::bf16 || dtype == Dtype::f16;
}

Dtype exact_type(Device device, Dtype dtype) { return device == Device::cpu ? dtype : Dtype::f32; }

bool goes_with(Device device, Dtype dtype, Dtype other) {
  return computes(device, other) && (other == dtype || other == exact_type(device, dtype));
}

void check_computes(Device device, const Tensor& t, const char* name) {
  LONGSTRIDE_CHECK(computes(device, t.dtype()), "{} is {}", name, name_of(t.dtype()));
}

void check_contiguous(const Tensor& t, const char* name) {
  LONGSTRIDE_CHECK(t.given() && t.contiguous(), "{} {} is not contiguous", name, t.shape().text());
}

void check_vector(const Tensor& t, std::int64_t count, Dtype dtype, const char* name) {
  LONGSTRIDE_CHECK(t.given() && t.contiguous() && t.count() == count && t.dtype() == dtype,
                   "{} is {} {}, not {} elements of {}", name, t.shape().text(), name_of(t.dtype()), count,
                   name_of(dtype));
}

void check_ids(const Tensor& t, std::int64_t count, const char* name) {
  check_vector(t, count, t.dtype() == Dtype::u16 ? Dtype::u16 : Dtype::u8, name);
}

void check_rows(const Tensor& t, const Shape& shape, Dtype dtype, const char* name) {
  LONGSTRIDE_CHECK(t.shape() == shape && t.dtype() == dtype && (t.size(-1) == 1 || t.stride(-1) == 1),
                   "{} is {} of {} with last stride {}, but must be {} of {} with last stride 1", name,
                   t.shape().text(), name_of(t.dtype()), t.given() ? t.stride(-1) : 0, shape.text(), name_of(dtype));
}

}  // namespace longstride::kernels
