// Stands in for the kernels' header of this name where their source is compiled for the CPU
// (tests/emulated/machine/block.h).
#pragma once
#include <cuda.h>

#include <cstdint>
#include <cstring>

#include "kernels/gpu/shared.cuh"
#include "tests/emulated/machine/block.h"

namespace longstride::kernels::cuda {

struct Coordinates {
  std::int32_t c[5];
};

inline Coordinates matrix_coordinates(std::int32_t column, std::int32_t row) { return {{column, 0, row, 0, 0}}; }

// Calls f(byte in shared memory, element in the tensor or null beyond it) for every element of a box.
template <class F>
void for_box(const void* tile, const CUtensorMap& map, const Coordinates& at, F&& f) {
  const auto row_bytes = static_cast<std::uint32_t>(map.columns) * 2;
  std::uint32_t row = shared_address(tile);
  std::int64_t i[5];
  for (i[4] = 0; i[4] < map.box[3]; ++i[4])
    for (i[3] = 0; i[3] < map.box[2]; ++i[3])
      for (i[2] = 0; i[2] < map.box[1]; ++i[2])
        for (i[1] = 0; i[1] < map.box[0]; ++i[1], row += row_bytes)
          for (i[0] = 0; i[0] < map.columns; ++i[0]) {
            bool within = true;
            std::int64_t element = i[0] + at.c[0];
            for (int d = 0; d < 5; ++d) {
              const std::int64_t x = i[d] + at.c[d];
              within = within && x >= 0 && x < map.size[d];
              if (d > 0) element += x * map.stride[d - 1];
            }
            f(shared_pointer(swizzled(row + static_cast<std::uint32_t>(i[0]) * 2, row_bytes)),
              within ? static_cast<char*>(map.data) + element * 2 : nullptr);
          }
}
inline std::uint32_t bytes_of_box(const CUtensorMap& map) {
  return static_cast<std::uint32_t>(map.columns * 2 * map.box[0] * map.box[1] * map.box[2] * map.box[3]);
}

inline void tma_load(void* to, const CUtensorMap* map, const Coordinates& at, std::uint64_t* barrier) {
  emulated::later(nullptr, [=] {
    for_box(to, *map, at, [](char* shared, const char* element) {
      element != nullptr ? std::memcpy(shared, element, 2) : std::memset(shared, 0, 2);
    });
    emulated::barrier_receive(barrier, bytes_of_box(*map));
  });
}
inline void tma_prefetch(const CUtensorMap*, const Coordinates&) {}
inline void tma_store(const CUtensorMap* map, const Coordinates& at, const void* from) {
  emulated::copy_begins([=] {
    for_box(from, *map, at, [](const char* shared, char* element) {
      if (element != nullptr) std::memcpy(element, shared, 2);
    });
  });
}
inline void bulk_load(void* to, const void* from, std::uint32_t bytes, std::uint64_t* barrier) {
  emulated::later(nullptr, [=] {
    std::memcpy(to, from, bytes);
    emulated::barrier_receive(barrier, bytes);
  });
}
inline void bulk_store(void* to, const void* from, std::uint32_t bytes) {
  emulated::copy_begins([=] { std::memcpy(to, from, bytes); });
}
inline void bulk_add(float* to, const void* from, std::uint32_t bytes) {
  emulated::copy_begins([=] {
    for (std::uint32_t i = 0; i < bytes / 4; ++i) to[i] += static_cast<const float*>(from)[i];
  });
}
inline void store_commit() { emulated::copies_committed(); }
template <int Pending>
void store_wait() {
  emulated::copies_await(Pending);
}
inline void store_complete() { store_wait<0>(); }
inline void store_wait_after(std::uint32_t) { store_wait<0>(); }
inline void proxy_fence() {}
inline void proxy_fence_global() {}

}  // namespace longstride::kernels::cuda
