// The term of labels (labels.h) as Hopper's general kernels receive it, by value; without products, only other queries
// than keys, which these kernels take as well.
#pragma once
#include <cstdint>

#include "kernels/attention/sm90/general/shares.h"
#include "kernels/attention/term/label_products.h"

namespace longstride::kernels::cuda::sm90 {

struct LabelsView {
  std::int32_t queries = 0, keys = 0, heads = 0;  // rows of queries and of keys; of lse
  std::int32_t count = 0, clip = 0, key_size = 0;
  const float* products = nullptr;  // (rows of lse, labels): queries times the table
  float* sums = nullptr;            // likewise: gradients of scores, by label
  const void* table = nullptr;
  std::int64_t table_label = 0, table_head = 0;  // strides in elements
  const std::int32_t *query_groups = nullptr, *key_groups = nullptr;
  Shares shares;

  // Without labels, `of` has only sizes. rows: of keys.
  LabelsView(const Labels& labels, const LabelMatrices& of, std::int64_t rows)
      : queries(of.n_q), keys(static_cast<std::int32_t>(rows)), heads(of.heads) {
    if (!labels.given()) return;
    count = of.count;
    clip = labels.clip;
    key_size = of.key_size;
    products = of.products;
    sums = of.sums;
    table = of.table;
    table_label = of.table_label;
    table_head = of.table_head;
    query_groups = labels.query_groups.as<const std::int32_t>();
    key_groups = labels.key_groups.as<const std::int32_t>();
  }
};

}  // namespace longstride::kernels::cuda::sm90
