// Stands in for the kernels' header of this name where their source is compiled for the CPU
// (tests/emulated/machine/block.h).
#pragma once
#include <cstdint>
#include <cstring>

#include "cuda_runtime.h"

namespace longstride::kernels::cuda {

inline constexpr int tile_alignment = 1024;
// A block's shared memory, which kernels declare in their namespaces as `extern __shared__ char memory[]`: one array,
// in machine/block.cpp.
#define LONGSTRIDE_SHARED_MEMORY extern __shared__ char memory[] __asm__("longstride_emulated_shared_memory")
namespace sm90 {
LONGSTRIDE_SHARED_MEMORY;
}  // namespace sm90
namespace panels {
LONGSTRIDE_SHARED_MEMORY;
}  // namespace panels
namespace portable {
namespace {
LONGSTRIDE_SHARED_MEMORY;
}  // namespace
}  // namespace portable
namespace scanning {
LONGSTRIDE_SHARED_MEMORY;
}  // namespace scanning
namespace distance {
namespace {
LONGSTRIDE_SHARED_MEMORY;
}  // namespace
namespace sm90 {
namespace {
LONGSTRIDE_SHARED_MEMORY;
}  // namespace
}  // namespace sm90
}  // namespace distance

inline std::uint32_t shared_address(const void* p) {
  return static_cast<std::uint32_t>(static_cast<const char*>(p) - sm90::memory);
}
inline char* shared_pointer(std::uint32_t address) { return sm90::memory + address; }
inline void store_halves(void* low, void* high, std::uint32_t word) {
  const std::uint16_t halves[2] = {static_cast<std::uint16_t>(word), static_cast<std::uint16_t>(word >> 16)};
  std::memcpy(low, halves, 2);
  std::memcpy(high, halves + 1, 2);
}
inline std::uint32_t bytes_to_tile(const void* p) {
  return (tile_alignment - shared_address(p) % tile_alignment) % tile_alignment;
}
// The address of a byte in rows of 32, 64 or 128 bytes with the swizzle of that size.
inline std::uint32_t swizzled(std::uint32_t address, std::uint32_t row_bytes) {
  return address ^ (address >> 7 & (row_bytes / 16 - 1)) << 4;
}

}  // namespace longstride::kernels::cuda
