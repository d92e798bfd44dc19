// Hand-over of values between the blocks of one kernel: a value and a tag share one 8-byte word, which is written and
// read whole. The receiver polls the word until it carries the expected tag; no separate flag and no fence is needed. A
// word is reused only after a barrier of the whole grid.
#pragma once
#include <cstdint>

#include "kernels/gpu/global.cuh"

namespace longstride::generation {

using Word = unsigned long long;

constexpr unsigned most_polls = 1u << 25;  // seconds of waiting mean a bug: trap instead of hanging

__device__ __forceinline__ void send(Word* to, std::uint32_t value, std::uint32_t tag) {
  const Word word = static_cast<Word>(tag) << 32 | value;
  kernels::cuda::store_relaxed(to, word);
}
__device__ __forceinline__ void send(Word* to, float value, std::uint32_t tag) {
  send(to, __float_as_uint(value), tag);
}

// x[i] = words 2 (thread + i threads) and the next one of the `count` words (an even number) at `from`. Elements beyond
// `count` keep their values.
template <int pairs>
__device__ __forceinline__ void receive_pairs(const Word* from, int count, std::uint32_t tag, int thread, int threads,
                                              float (&x)[pairs][2]) {
  Word word[pairs][2];
  for (unsigned polls = 0;; ++polls) {
    bool ready = true;
#pragma unroll
    for (int i = 0; i < pairs; ++i)
      if (2 * (thread + i * threads) < count)
        kernels::cuda::load_relaxed(from + 2 * (thread + i * threads), word[i][0], word[i][1]);
#pragma unroll
    for (int i = 0; i < pairs; ++i)
      if (2 * (thread + i * threads) < count)
        ready &=
            static_cast<std::uint32_t>(word[i][0] >> 32) == tag && static_cast<std::uint32_t>(word[i][1] >> 32) == tag;
    if (ready) break;
    if (polls > most_polls) __trap();
  }
#pragma unroll
  for (int i = 0; i < pairs; ++i)
    if (2 * (thread + i * threads) < count)
#pragma unroll
      for (int e = 0; e < 2; ++e) x[i][e] = __uint_as_float(static_cast<std::uint32_t>(word[i][e]));
}

// Calls f(i, value) for words [0, count) of `from`, divided between `threads` threads; `thread` is this one's number.
template <int at_once, class F>
__device__ __forceinline__ void receive(const Word* from, int count, std::uint32_t tag, int thread, int threads,
                                        F&& f) {
  for (int first = 0; first + 2 * thread < count; first += 2 * threads * at_once) {
    float x[at_once][2];
    receive_pairs<at_once>(from + first, count - first, tag, thread, threads, x);
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      const int word = first + 2 * (thread + i * threads);
      if (word >= count) break;
      f(word, __float_as_uint(x[i][0]));
      f(word + 1, __float_as_uint(x[i][1]));
    }
  }
}

// A barrier in two halves. Between them a block can do work that no other block waits for.
struct Barrier {
  unsigned* arrived;  // never reset

  // Whatever this block read or wrote before is complete for every block that passes `wait`.
  __device__ void arrive() const {
    __syncthreads();
    if (threadIdx.x == 0) {
      __threadfence();
      kernels::cuda::count_release(arrived);
    }
  }
  // Waits until every block has arrived `times` times.
  __device__ void wait(unsigned times) const {
    if (threadIdx.x == 0) {
      unsigned now = 0, polls = 0;
      do {
        now = kernels::cuda::load_acquire(arrived);
        if (++polls > most_polls) __trap();
      } while (now < times * gridDim.x);
      __threadfence();
    }
    __syncthreads();
  }
};

}  // namespace longstride::generation
