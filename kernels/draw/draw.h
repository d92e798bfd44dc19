// The next byte, or other token, of every sequence, drawn from softmax(logits / temperature) by inversion of one
// counter-based number of (seed, sequence, position), or taken from a prompt. Also gives log p, the logarithm of the
// probability that the model assigns to the byte (temperature 1, nothing excluded).
//
// top_k keeps the k likeliest bytes. top_p then keeps the smallest number of the likeliest bytes whose share of the
// remaining probability reaches p. Among equals the smaller byte comes first.
#pragma once
#include <cstdint>

#include "kernels/base/host_device.h"
#include "kernels/base/op.h"
#include "kernels/base/philox.h"

namespace longstride::kernels {

// How bytes are drawn, independent of the model.
struct Sampling {
  double temperature = 1;  // 0: always the likeliest byte
  std::int64_t top_k = 0;  // 0: all
  double top_p = 1;
  std::uint64_t seed = 1;
};

// Sequences being generated.
struct Drawing {
  Tensor bytes;  // (batch, length) u8, or u16 for a vocabulary beyond 256: the first `prompted` of each are given, the
                 // others are written in order
  Tensor log_probabilities = {};  // (batch, length) f32, written; may be absent
  Tensor previous;                // (batch, 1) like bytes, written: that at this position, which precedes the next
  std::int64_t prompted = 0;
  Sampling sampling;
  std::int64_t first_sequence = 0;  // index of the batch's first sequence among all drawn with this seed
};

struct DrawArgs : Drawing {
  Tensor logits;  // (batch, vocabulary) contiguous; f32 or f64, f32 on a GPU; vocabulary at most 65,536
  std::int64_t position = 0;
  std::int64_t* position_at = nullptr;  // GPU: if given, `position` is read from it and incremented

  void check(Device device) const;
  Cost cost() const { return {WorkKind::other, bytes_of(logits), 0}; }
};
LONGSTRIDE_OP(draw, DrawArgs)

LONGSTRIDE_HOST_DEVICE inline double uniform_for(const Sampling& s, std::int64_t sequence, std::int64_t position) {
  const Philox4 r = philox(s.seed, static_cast<std::uint64_t>(sequence), static_cast<std::uint32_t>(position),
                           domain_of(Purpose::sample, 0));
  return uniform_of(r.word[0]);
}

namespace cpu {
// One draw with a uniform number in (0, 1).
int draw_one(const double* logits, std::int64_t vocabulary, const Sampling& sampling, double uniform);
}  // namespace cpu

}  // namespace longstride::kernels
