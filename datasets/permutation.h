// A seeded permutation of [0, size) in constant memory, for any size: a Feistel network over Philox on the smallest
// even number of bits that holds `size`, iterated until the image falls inside (Black and Rogaway 2002). It is a
// bijection, and every index can be computed on its own.
#pragma once
#include <bit>
#include <cstdint>

#include "kernels/base/philox.h"

namespace longstride {

class Permutation {
 public:
  // `round` distinguishes permutations of one seed, such as those of successive epochs.
  Permutation(std::uint64_t size, std::uint64_t seed, std::uint32_t round, kernels::Purpose purpose)
      : size_(size), seed_(seed), round_(round), purpose_(purpose) {
    const int bits = size > 1 ? std::bit_width(size - 1) : 1;
    half_ = (bits + 1) / 2;
  }

  std::uint64_t operator()(std::uint64_t index) const {
    do index = encrypt(index);
    while (index >= size_);  // the domain is under 4 * size: fewer than four iterations on average
    return index;
  }

 private:
  static constexpr std::uint32_t feistel_rounds = 8;

  std::uint64_t encrypt(std::uint64_t index) const {
    const std::uint64_t mask = (std::uint64_t{1} << half_) - 1;
    std::uint64_t left = index >> half_, right = index & mask;
    for (std::uint32_t r = 0; r < feistel_rounds; ++r) {
      const std::uint32_t mixed = kernels::philox(seed_, right, round_, kernels::domain_of(purpose_, r)).word[0];
      const std::uint64_t next = left ^ (mixed & mask);
      left = right;
      right = next;
    }
    return left << half_ | right;
  }

  std::uint64_t size_, seed_;
  std::uint32_t round_;
  kernels::Purpose purpose_;
  int half_ = 1;  // bits
};

}  // namespace longstride
