// The element types that tensors hold. The CPU computes in f32 (training) and f64 (references and finite differences);
// only the GPU computes in bf16 and f16. Operands of products alone are e4m3 or e5m2 (kernels/quantise).
#pragma once
#include <cstddef>
#include <cstdint>

namespace longstride::kernels {

enum class Dtype : std::uint8_t { f64, f32, bf16, f16, u8, u16, i32, i64, e4m3, e5m2 };

constexpr std::size_t bytes_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::f64:
    case Dtype::i64:
      return 8;
    case Dtype::f32:
    case Dtype::i32:
      return 4;
    case Dtype::bf16:
    case Dtype::f16:
    case Dtype::u16:
      return 2;
    case Dtype::u8:
    case Dtype::e4m3:
    case Dtype::e5m2:
      return 1;
  }
  return 0;
}

constexpr const char* name_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::f64:
      return "f64";
    case Dtype::f32:
      return "f32";
    case Dtype::bf16:
      return "bf16";
    case Dtype::f16:
      return "f16";
    case Dtype::u8:
      return "u8";
    case Dtype::u16:
      return "u16";
    case Dtype::i32:
      return "i32";
    case Dtype::i64:
      return "i64";
    case Dtype::e4m3:
      return "e4m3";
    case Dtype::e5m2:
      return "e5m2";
  }
  return "?";
}

constexpr bool is_fp8(Dtype dtype) { return dtype == Dtype::e4m3 || dtype == Dtype::e5m2; }

template <class T>
struct DtypeOf;
template <>
struct DtypeOf<double> {
  static constexpr Dtype value = Dtype::f64;
};
template <>
struct DtypeOf<float> {
  static constexpr Dtype value = Dtype::f32;
};
template <>
struct DtypeOf<std::uint8_t> {
  static constexpr Dtype value = Dtype::u8;
};
template <>
struct DtypeOf<std::uint16_t> {
  static constexpr Dtype value = Dtype::u16;
};
template <>
struct DtypeOf<std::int32_t> {
  static constexpr Dtype value = Dtype::i32;
};
template <>
struct DtypeOf<std::int64_t> {
  static constexpr Dtype value = Dtype::i64;
};

}  // namespace longstride::kernels
