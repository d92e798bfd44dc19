// Addresses of shared memory as PTX takes them: 32 bits, counted from the start of the block's window.
#pragma once
#include <cstdint>

namespace longstride::kernels::cuda {

// cvta.to.shared
__device__ inline std::uint32_t shared_address(const void* p) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(p));
}

// Stores the halves of a register at two addresses. st.shared.b16
__device__ inline void store_halves(void* low, void* high, std::uint32_t word) {
  asm volatile("{\n.reg .b16 l, h;\nmov.b32 {l, h}, %2;\nst.shared.b16 [%0], l;\nst.shared.b16 [%1], h;\n}" ::"r"(
                   shared_address(low)),
               "r"(shared_address(high)), "r"(word)
               : "memory");
}

// The swizzles of TMA and wgmma repeat after eight rows of 128 bytes, so tiles start at multiples of that. A kernel
// asks for this many bytes more than it needs and begins at the first multiple: memory + bytes_to_tile(memory).
inline constexpr int tile_alignment = 1024;
__device__ inline std::uint32_t bytes_to_tile(const void* memory) {
  return (tile_alignment - shared_address(memory) % tile_alignment) % tile_alignment;
}

}  // namespace longstride::kernels::cuda
