// y_i = (x_i W_e) + sum_j o_i^(j) W_j (section 5.3): the token before position i, or the start vector at position 0,
// plus a row of each position table. Position p reads row (p / divisor) mod size of a table (size, width).
#pragma once
#include "kernels/base/view.h"

namespace longstride::kernels {

struct PositionTableView {
  std::int64_t divisor = 1;
  View table;  // (size, width)
};

struct EmbeddingArgs {
  static constexpr int max_tables = 4;
  View tokens;       // (batch, seq) u8
  View start;        // (width); all floating views of one type, contiguous
  View token_table;  // (vocabulary, width)
  PositionTableView positions[max_tables];
  int tables = 0;
  std::int64_t first = 0;  // position of slot 0; when not 0, slot t takes tokens[t] instead of tokens[t - 1]
  View y;                  // (batch, seq, width)
};

// Adds to the gradients in start, token_table and positions; `y` is read as the gradient of y. first is 0. Each element
// of a gradient is summed over positions in order, whatever the number of threads.
struct EmbeddingBackwardArgs : EmbeddingArgs {};

namespace cpu {
void embedding(const EmbeddingArgs&, const Launch&);
void embedding_backward(const EmbeddingBackwardArgs&, const Launch&);
}  // namespace cpu
namespace cuda {
void embedding(const EmbeddingArgs&, const Launch&);
void embedding_backward(const EmbeddingBackwardArgs&, const Launch&);
}  // namespace cuda

}  // namespace longstride::kernels
