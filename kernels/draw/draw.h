// The next byte of every sequence, drawn from softmax(logits / temperature) by inversion of one counter-based number of
// (seed, sequence, position), or taken from a prompt. With log p the logarithm of the probability that the model gives
// the byte (temperature 1, nothing left out).
//
// top_k leaves the k likeliest bytes; top_p then leaves the fewest of the likeliest whose share of what is left reaches
// p. Among equals the smaller byte comes first.
#pragma once
#include <cstdint>

#include "kernels/base/host_device.h"
#include "kernels/base/op.h"
#include "kernels/base/philox.h"

namespace longstride::kernels {

// How bytes are drawn, whatever the model.
struct Sampling {
  double temperature = 1;  // 0: always the likeliest byte
  std::int64_t top_k = 0;  // 0: all
  double top_p = 1;
  std::uint64_t seed = 1;
};

// Sequences that are being generated.
struct Drawing {
  Tensor bytes;  // (batch, length) u8: the first `prompted` of each are given, the others written in turn
  Tensor log_probabilities = {};  // (batch, length) f32, written; may be absent
  Tensor previous;                // (batch, 1) u8, written: the byte at this position, which the next one follows
  std::int64_t prompted = 0;
  Sampling sampling;
  std::int64_t first_sequence = 0;  // of the batch, among all that are drawn with this seed
};

struct DrawArgs : Drawing {
  Tensor logits;  // (batch, vocabulary) contiguous; f32 or f64, f32 on a GPU; vocabulary at most 256
  std::int64_t position = 0;
  std::int64_t* position_at = nullptr;  // GPU: when given, `position` is read there and increased

  void check(Device device) const;
  Cost cost() const { return {Work::other, bytes_of(logits), 0}; }
};
LONGSTRIDE_OP(draw, DrawArgs)

LONGSTRIDE_HOST_DEVICE inline double uniform_for(const Sampling& s, std::int64_t sequence, std::int64_t position) {
  const Philox4 r = philox(s.seed, static_cast<std::uint64_t>(sequence), static_cast<std::uint32_t>(position),
                           domain_of(Purpose::sample, 0));
  return uniform_of(r.word[0]);
}

namespace cpu {
// One draw, of a uniform number in (0, 1).
std::uint8_t draw_one(const double* logits, std::int64_t vocabulary, const Sampling& sampling, double uniform);
}  // namespace cpu

}  // namespace longstride::kernels
