// The term of labels (labels.h) before and after the CUDA kernels that add it to scores: the products of all queries
// and the table, so that a score adds one number of its query's row, and the table's gradient from the sums of the
// scores' gradients by label.
#pragma once
#include <cstdint>

#include "kernels/attention/term/labels.h"
#include "kernels/base/head_matrix.h"
#include "kernels/base/op.h"

namespace longstride::kernels::cuda {

struct LabelMatrices {
  HeadMatrix q;
  std::int32_t n_q = 0, heads = 0, batch = 0, key_size = 0, count = 0;
  float scale = 1;
  bool aligned = false;  // rows of q are on 16 bytes, and a multiple of them long
  const void* table = nullptr;
  std::int64_t table_label = 0, table_head = 0;  // strides in elements; 0: one table for all heads
  float* products = nullptr;                     // (batch, heads, n_q, labels): queries times the table
  float* sums = nullptr;                         // likewise: gradients of scores, by label
  float* partials = nullptr;                     // the table's gradient from chunks of rows (choice.h)

  LabelMatrices() = default;
  // scratch: the choice's; its sums, of `shares` parts that become one, and its partials are a backward pass's.
  LabelMatrices(const Labels& labels, const Tensor& queries, double of_scores, float* scratch, std::int32_t shares = 1)
      : q(queries),
        n_q(static_cast<std::int32_t>(queries.size(1))),
        heads(static_cast<std::int32_t>(queries.size(2))),
        batch(static_cast<std::int32_t>(queries.size(0))),
        key_size(static_cast<std::int32_t>(queries.size(3))),
        count(static_cast<std::int32_t>(labels.count())),
        scale(static_cast<float>(of_scores)),
        aligned(rows_on_16_bytes(queries)) {
    if (!labels.given()) return;
    table = labels.table.data();
    table_label = labels.table.stride(0);
    table_head = labels.table.size(1) > 1 ? labels.table.stride(1) : 0;
    products = scratch;
    sums = products + elements();
    partials = sums + shares * elements();
  }
  std::int64_t rows() const { return std::int64_t{batch} * heads * n_q; }
  std::int64_t elements() const { return rows() * count; }
};

namespace portable {

// T is __nv_bfloat16, __half or float.
template <class T>
void label_products(const LabelMatrices&, const Launch&);
void clear_label_sums(const LabelMatrices&, const Launch&);  // all before the partials
// dtable += scale times the sums' products with q, by partial sums of chunks of rows.
template <class T>
void add_table_gradient(const LabelMatrices&, float* dtable, const Launch&);

}  // namespace portable
}  // namespace longstride::kernels::cuda
