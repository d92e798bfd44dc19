// Directions of the rows of a projection that are made of few random numbers: row i of a product of d x d matrices, one
// product per run of d rows. A run's draws have the elements first_direction + run * (numbers of a run) and so on:
// three times d signs, the top bit of word 0 each; or its rotations, of which word 0 is the angle and words 1 and 2 the
// plane.
#pragma once
#include <cmath>
#include <cstdint>

#include "kernels/base/philox.h"

namespace longstride::kernels {

inline constexpr std::uint64_t first_direction = std::uint64_t{1} << 40;  // behind the normal numbers

struct DirectionDraws {
  std::uint64_t seed, first;  // first: the run's first element
  std::uint32_t redraw, domain;

  LONGSTRIDE_HOST_DEVICE Philox4 at(std::uint64_t number) const { return philox(seed, first + number, redraw, domain); }
};

LONGSTRIDE_HOST_DEVICE inline int rotations_of(int d) {
  return d * static_cast<int>(std::ceil(std::log(static_cast<double>(d))));
}
LONGSTRIDE_HOST_DEVICE inline std::uint64_t hadamard_draws(int d) { return 3 * static_cast<std::uint64_t>(d); }
LONGSTRIDE_HOST_DEVICE inline std::uint64_t givens_draws(int d) { return static_cast<std::uint64_t>(rotations_of(d)); }

// x = row i of H D_1 H D_2 H D_3 / d^(3/2); d is a power of two.
LONGSTRIDE_HOST_DEVICE inline void hadamard_row(double* x, int i, int d, const DirectionDraws& draws) {
  for (int j = 0; j < d; ++j) x[j] = j == i ? 1 : 0;
  for (int factor = 0; factor < 3; ++factor) {
    for (int half = 1; half < d; half *= 2)
      for (int j = 0; j < d; ++j) {
        if ((j & half) != 0) continue;
        const double a = x[j], b = x[j + half];
        x[j] = a + b;
        x[j + half] = a - b;
      }
    for (int j = 0; j < d; ++j) {
      const auto number =
          static_cast<std::uint64_t>(factor) * static_cast<std::uint64_t>(d) + static_cast<std::uint64_t>(j);
      if (draws.at(number).word[0] >> 31 != 0) x[j] = -x[j];
    }
  }
  const double scale = 1 / (d * std::sqrt(static_cast<double>(d)));
  for (int j = 0; j < d; ++j) x[j] *= scale;
}

// x = row i of G_1 G_2 ..., each a rotation of two columns.
LONGSTRIDE_HOST_DEVICE inline void givens_row(double* x, int i, int d, const DirectionDraws& draws) {
  for (int j = 0; j < d; ++j) x[j] = j == i ? 1 : 0;
  for (int r = 0; r < rotations_of(d); ++r) {
    const Philox4 drawn = draws.at(static_cast<std::uint64_t>(r));
    const double angle = 6.283185307179586477 * uniform_of(drawn.word[0]), cosine = std::cos(angle),
                 sine = std::sin(angle);
    const auto below = [&](int word, int count) {
      return static_cast<int>(std::uint64_t{drawn.word[word]} * static_cast<std::uint64_t>(count) >> 32);
    };
    const int a = below(1, d), other = below(2, d - 1), b = other < a ? other : other + 1;
    const double before = x[a];
    x[a] = cosine * before - sine * x[b];
    x[b] = sine * before + cosine * x[b];
  }
}

}  // namespace longstride::kernels
