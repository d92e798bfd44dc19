// Philox4x32-10 (Salmon et al. 2011): a counter-based generator. The same (key, counter) gives the same four words on
// every device, so neither dropout masks nor generator state are ever stored.
//
// The counter is (element lo, element hi, step, purpose << 24 | layer); the key is the recipe's seed.
#pragma once
#include <cmath>
#include <cstdint>

#include "kernels/base/host_device.h"

namespace longstride::kernels {

// The purpose of a random number. Two purposes never share a counter.
enum class Purpose : std::uint32_t {
  initialise = 1,
  dropout = 2,
  data_order = 3,
  sample = 4,
  split = 5,
  attention_dropout = 6,
  projection = 7,
  masks = 8,
  blocks = 9,
  test = 255
};

struct Philox4 {
  std::uint32_t word[4];
};

constexpr int philox_rounds = 10;
constexpr std::uint32_t philox_step0 = 0x9E3779B9u, philox_step1 = 0xBB67AE85u;  // a round adds them to the key's words

LONGSTRIDE_HOST_DEVICE inline void philox_round(std::uint32_t (&c)[4], std::uint32_t k0, std::uint32_t k1) {
  const std::uint64_t p0 = std::uint64_t{c[0]} * 0xD2511F53u, p1 = std::uint64_t{c[2]} * 0xCD9E8D57u;
  c[0] = static_cast<std::uint32_t>(p1 >> 32) ^ c[1] ^ k0;
  c[1] = static_cast<std::uint32_t>(p1);
  c[2] = static_cast<std::uint32_t>(p0 >> 32) ^ c[3] ^ k1;
  c[3] = static_cast<std::uint32_t>(p0);
}

LONGSTRIDE_HOST_DEVICE inline Philox4 philox(std::uint64_t key, std::uint64_t element, std::uint32_t step,
                                             std::uint32_t domain) {
  std::uint32_t c[4] = {static_cast<std::uint32_t>(element), static_cast<std::uint32_t>(element >> 32), step, domain};
  std::uint32_t k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < philox_rounds; ++round) {
    philox_round(c, k0, k1);
    k0 += philox_step0;
    k1 += philox_step1;
  }
  return {{c[0], c[1], c[2], c[3]}};
}

LONGSTRIDE_HOST_DEVICE constexpr std::uint32_t domain_of(Purpose purpose, std::uint32_t layer) {
  return static_cast<std::uint32_t>(purpose) << 24 | (layer & 0xFFFFFFu);
}

// A uniform number in (0, 1), excluding 0 and 1, from one word.
LONGSTRIDE_HOST_DEVICE inline double uniform_of(std::uint32_t word) { return (word + 0.5) * (1.0 / 4294967296.0); }

// A standard normal number (Box-Muller) from words 0 and 1, in double. Parameters are initialised on the host, so that
// every device starts from the same bits; a GPU's logarithm and cosine may round differently.
LONGSTRIDE_HOST_DEVICE inline double normal_of(const Philox4& r) {
  return std::sqrt(-2.0 * std::log(uniform_of(r.word[0]))) * std::cos(6.283185307179586477 * uniform_of(r.word[1]));
}

}  // namespace longstride::kernels
