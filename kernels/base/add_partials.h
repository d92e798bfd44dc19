// The second half of a reduction over row chunks: total (n) += the rows of partials (chunks, n), in order.
#pragma once
#include <cstdint>

namespace longstride::kernels::cpu {

// Call it inside a parallel region: the threads share the columns and synchronise before and after.
template <class T>
void add_partials(const T* partials, std::int64_t chunks, std::int64_t n, std::int64_t stride, T* total) {
  constexpr std::int64_t block = 64;
#pragma omp barrier
#pragma omp for schedule(static)
  for (std::int64_t begin = 0; begin < n; begin += block) {
    const std::int64_t count = n - begin < block ? n - begin : block;
    T sums[block] = {};
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
      const T* from = partials + chunk * stride + begin;
      for (std::int64_t j = 0; j < count; ++j) sums[j] += from[j];
    }
    for (std::int64_t j = 0; j < count; ++j) total[begin + j] += sums[j];
  }
}

}  // namespace longstride::kernels::cpu
