// How scratch of the CUDA kernels is divided, in every build, so that memory can be planned without a GPU.
#pragma once
#include <cstddef>

#include "kernels/attention/cpu/tiles.h"
#include "kernels/distance_attention/distance_attention.h"

namespace longstride::kernels::cuda::distance {

// Pieces of scratch; null where a call needs none.
struct ScratchPieces {
  void *content = nullptr, *position = nullptr;
  float *delta = nullptr, *bias_sums = nullptr, *table_sums = nullptr;
  std::byte *score_gradients = nullptr, *probabilities = nullptr;  // where the kernels for Hopper may be taken
  std::int32_t query_tiles = 0, chunks = 0, bands = 0, saved_units = 0;
  std::size_t total = 0;  // bytes

  ScratchPieces(const DistanceAttentionArgs& args, void* memory);
  ScratchPieces(const DistanceAttentionBackwardArgs& args, void* memory);

 private:
  void take_queries(const DistanceScores& s, cpu::Carver& carver);
  void take_table_sums(const DistanceScores& s, cpu::Carver& carver);
  void take_saved(const DistanceAttentionBackwardArgs& args, cpu::Carver& carver);
};

}  // namespace longstride::kernels::cuda::distance
