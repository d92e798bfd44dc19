// Which kernels compute an attention on a GPU, how they divide it into tasks, and what scratch they take. All of it
// follows from shapes alone and needs no CUDA, so scratch, launches, advice and tests read it here.
#pragma once
#include <cstddef>
#include <cstdint>

#include "kernels/attention/attention.h"
#include "kernels/attention/one_query_plan.h"
#include "kernels/attention/sm90/band/band_plan.h"
#include "kernels/attention/sm90/long_band/interval_plan.h"
#include "kernels/attention/sm90/long_band/joined_plan.h"
#include "kernels/attention/sm90/long_band/long_band_plan.h"

namespace longstride::kernels {

enum class AttentionFamily : std::uint8_t {
  portable,   // any GPU (kernels/attention/portable)
  one_query,  // forward of one query of 16 bits, any GPU: its keys are divided (portable/one_query.cu)
  general,    // Hopper, any pattern, lists, labels and other queries than keys (sm90/forward, sm90/general)
  band,       // few key tiles per query tile, all of its own row set (sm90/band)
  classes,    // backward over wider bands: a block per class (sm90/long_band)
  turns,      // the same in classes that are long or few: blocks take turns at the sums of dQ
  joined,     // backward over own blocks and summary rows: in turns as well
  intervals   // backward over windows of both directions, and whatever bounds leave of a window: likewise
};

struct AttentionChoice {
  AttentionFamily family = AttentionFamily::portable;
  // The tasks, where the family has them.
  cuda::sm90::BandPlan band;
  cuda::sm90::LongBandPlan long_band;  // classes and turns
  cuda::sm90::JoinedPlan joined;
  cuda::sm90::IntervalPlan intervals;
  cuda::portable::OneQueryPlan one_query;
  // Scratch: of a backward pass delta, which the portable kernels need in any case, and the sums of dQ behind it; with
  // labels, products of queries and the table, and in a backward pass sums of gradients by label; or bounds seen from
  // the keys.
  std::size_t delta_bytes = 0, sums_bytes = 0;
  // In the general kernels' sums_bytes labels come first, then bounds, and last what blocks that share a tile find.
  std::size_t label_bytes = 0, share_bytes = 0;
  std::int32_t query_shares = 1,
               key_shares = 1;  // blocks that share a tile of queries, or of keys (sm90/general/shares.h)
};

struct AttentionSizes {
  const AttentionPlan* plan = nullptr;
  std::int64_t batch = 1, key_size = 0, value_size = 0;
  Dtype dtype = Dtype::bf16;
  AttentionPath path = AttentionPath::automatic;
  std::int64_t bounds = 0;  // sequences times heads with bounds of their own
  bool by_documents = false;
  bool has_lists = false;
  std::int64_t labels = 0;
  std::int64_t key_heads = 0;  // 0: as many as heads
  bool mixed_labels = false;   // places, or distances and groups: only the portable kernels take them

  // Neither labels nor other queries than keys, which only the general ones of Hopper's kernels take.
  bool is_plain() const { return labels == 0 && plan->queries == plan->n; }
  // Several query heads read one key head: backward kernels of narrow bands do not.
  bool shares_keys() const { return key_heads > 0 && key_heads < std::ssize(plan->heads); }
};

// Chunks of the rows of a sequence's head, by which gradients of labels are summed.
constexpr std::int32_t label_chunks(std::int32_t n_q) {
  constexpr std::int32_t most = 128, least_rows = 64;
  const std::int32_t chunks = (n_q + least_rows - 1) / least_rows;
  return chunks < most ? chunks : most;
}

// The kernels on Hopper. A launch takes the portable ones on other GPUs, and for tensors that TMA cannot read.
AttentionChoice choose_forward(const AttentionSizes& sizes);
// AttentionPath::sm90 gives every short class a block, so that tests of few classes try this as well.
AttentionChoice choose_backward(const AttentionSizes& sizes);
AttentionChoice choose(const AttentionArgs& args);
AttentionChoice choose(const AttentionBackwardArgs& args);

// Sizes of a head's q and k, or v and o, that Hopper's kernels take: multiples of 8 within these limits.
inline constexpr std::int64_t smallest_sm90_head = 16, largest_sm90_head = 128;
constexpr bool sm90_takes_head(std::int64_t size) {
  return size >= smallest_sm90_head && size <= largest_sm90_head && size % 8 == 0;
}

}  // namespace longstride::kernels
