// y_i = scale (x_i W_e) + sum_j o_i^(j) W_j (section 5.3; scale is 1 there, and the root of the width in Vaswani et al.
// 2017): the token before position i, or the start vector at position 0, plus a row of each position table. Position p
// reads row (p / divisor) mod size of a table (size, width). A row may hold several documents: each begins like a row,
// with the start vector, and positions may count from there. `own`: every position reads its own token instead, and
// there is no start vector.
#pragma once
#include <algorithm>

#include "kernels/base/op.h"

namespace longstride::kernels {

struct PositionTable {
  std::int64_t divisor = 1;
  Tensor table;  // (size, width)
};

struct EmbeddingArgs {
  static constexpr int max_tables = 4;
  static constexpr std::int64_t most_ids = 512;  // rows of a table whose gradients a GPU computes at a time
  Tensor tokens;                                 // (batch, seq) u8 or u16
  Tensor start = {};   // (width), absent with `own`; all floating tensors contiguous and of one type; on a GPU f32, but
                       // y of any type
  Tensor token_table;  // (vocabulary, width)
  // Not negative: the table is a band of the vocabulary, the ids from this one on. Slots of other ids read 0, and so do
  // those that read the start vector, if that is absent.
  std::int64_t band = -1;
  PositionTable positions[max_tables];
  int tables = 0;
  double scale = 1;        // factor of the token's row and of the start vector
  Tensor starts = {};      // (batch) u8; if given, slot t takes tokens[t], except slot 0 of a row that starts (not 0)
  Tensor begin = {};       // (batch, seq) i32: position of the first slot of each slot's document
  bool restart = false;    // positions for the tables count from begin
  std::int64_t first = 0;  // position of slot 0; when not 0, slot t takes tokens[t] instead of tokens[t - 1]
  const std::int64_t* first_at = nullptr;  // GPU, forward: if given, `first` is read from it and slot t takes tokens[t]
  bool own = false;                        // slot t takes tokens[t], whatever it begins
  Tensor y;                                // (batch, seq, width)

  std::int64_t width() const { return token_table.size(1); }
  void check(Device device) const;
  Cost cost() const { return {WorkKind::embedding, bytes_of(tokens, y), 0}; }
};
LONGSTRIDE_OP(embedding, EmbeddingArgs)

// Adds to the gradients in start, token_table and positions; `y` is read as the gradient of y. Each element
// of a gradient is summed over positions in order, whatever the number of threads; on a GPU in parts of a fixed order.
// A GPU refuses 2^30 or more slots (std::logic_error).
struct EmbeddingBackwardArgs : EmbeddingArgs {
  Tensor scratch = {};

  Tensor scratch_on(Device device) const;
};
LONGSTRIDE_OP(embedding_backward, EmbeddingBackwardArgs)

namespace cuda {

// How the backward pass is split, depending only on the sizes. The slots are sorted by token, one chunk of slots at a
// time. The slots of one token are summed in pieces, and those of one row of a position table in chunks, each into its
// own row of the workspace. Slots are sorted by `most_ids` rows of a table at a time: of the tokens', and where
// positions restart of theirs.
struct EmbeddingSplit {
  static constexpr std::int64_t order_chunks(std::int64_t slots) {
    return std::clamp<std::int64_t>(slots / 1024, 1, 128);
  }
  static constexpr std::int64_t piece = 128;  // slots
  static constexpr std::int64_t most_pieces(std::int64_t slots, std::int64_t rows) { return slots / piece + rows; }
  // The pieces' sums and then, as integers, the sorted slots, the rows' counts in every chunk, and where each row's
  // slots and pieces begin.
  static constexpr std::int64_t sorted(std::int64_t slots, std::int64_t rows, std::int64_t width) {
    return most_pieces(slots, rows) * width + slots + order_chunks(slots) * rows + 2 * (rows + 1);
  }
  // Enough for a thousand blocks if each then has at least 64 slots.
  static constexpr std::int64_t row_chunks(std::int64_t slots, std::int64_t size) {
    return std::max<std::int64_t>(1, std::min(1024 / size, slots / size / 64));
  }
};

// The token table and the position tables use the workspace in turn.
inline std::int64_t embedding_partials(const EmbeddingArgs& args) {
  const std::int64_t slots = args.tokens.count(), width = args.width();
  std::int64_t most = EmbeddingSplit::sorted(slots, std::min(args.token_table.size(0), EmbeddingArgs::most_ids), width);
  for (int i = 0; i < args.tables; ++i) {
    const std::int64_t size = args.positions[i].table.size(0);
    most = std::max(most, args.restart && args.begin.given()
                              ? EmbeddingSplit::sorted(slots, std::min(size, EmbeddingArgs::most_ids), width)
                              : EmbeddingSplit::row_chunks(slots, size) * size * width);
  }
  return most;
}

}  // namespace cuda

inline Tensor EmbeddingBackwardArgs::scratch_on(Device device) const {
  return device == Device::cpu ? Tensor() : Tensor(nullptr, Dtype::f32, {cuda::embedding_partials(*this)});
}

}  // namespace longstride::kernels
