// Philox4x32-10 (Salmon et al. 2011): a counter-based generator. The same (key, counter) gives the same
// four words on every device, so nothing random is ever stored: not dropout masks, not generator state.
//
// The counter is (element lo, element hi, step, purpose << 24 | layer); the key is the recipe's seed.
#pragma once
#include <cmath>
#include <cstdint>

#include "kernels/base/host_device.h"

namespace longstride::kernels {

// What a random number is for. Two purposes never share a counter.
enum class Purpose : std::uint32_t { initialise = 1, dropout = 2, data_order = 3, sample = 4, split = 5, test = 255 };

struct Philox4 {
  std::uint32_t word[4];
};

LONGSTRIDE_HOST_DEVICE inline Philox4 philox(std::uint64_t key, std::uint64_t element, std::uint32_t step,
                                             std::uint32_t domain) {
  std::uint32_t c0 = static_cast<std::uint32_t>(element), c1 = static_cast<std::uint32_t>(element >> 32), c2 = step,
                c3 = domain;
  std::uint32_t k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = 0xD2511F53ull * c0, p1 = 0xCD9E8D57ull * c2;
    const std::uint32_t h0 = static_cast<std::uint32_t>(p0 >> 32), l0 = static_cast<std::uint32_t>(p0);
    const std::uint32_t h1 = static_cast<std::uint32_t>(p1 >> 32), l1 = static_cast<std::uint32_t>(p1);
    c0 = h1 ^ c1 ^ k0;
    c1 = l1;
    c2 = h0 ^ c3 ^ k1;
    c3 = l0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

LONGSTRIDE_HOST_DEVICE constexpr std::uint32_t domain_of(Purpose purpose, std::uint32_t layer) {
  return static_cast<std::uint32_t>(purpose) << 24 | (layer & 0xFFFFFFu);
}

// A uniform number in (0, 1), never 0 and never 1, from one word.
LONGSTRIDE_HOST_DEVICE inline double uniform_of(std::uint32_t word) { return (word + 0.5) * (1.0 / 4294967296.0); }

// A standard normal number (Box-Muller) from words 0 and 1. Host only: used for initialisation, in double,
// so that every device starts from the same bits.
inline double normal_of(const Philox4& r) {
  return std::sqrt(-2.0 * std::log(uniform_of(r.word[0]))) * std::cos(6.283185307179586477 * uniform_of(r.word[1]));
}

}  // namespace longstride::kernels
