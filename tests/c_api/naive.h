/* Attention from its definition (kernels/attention/naive.h), for tests in C. */
#ifndef TESTS_C_API_NAIVE_H
#define TESTS_C_API_NAIVE_H
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum arithmetic { in_f32, in_f64, in_long_double };

/* Arrays are contiguous: (batch, rows, heads, size), (distances, tables, key_size), (heads, key_size). */
struct naive_problem {
  int64_t batch, queries, keys, heads, key_size, value_size;
  const double *q, *k, *v, *dout;
  int64_t distances, tables;                          /* no distances: no table */
  const double *table, *content_bias, *position_bias; /* null: none */
  double slope;                                       /* of a weight below 1, by the span */
  const double* sink;                                 /* (heads): a logit without a value; null: none */
  int ahead;                                          /* 1: the weight is asked of later keys as well */
  /* Factor of the exponential of a score, of a query row and a key row; 0 if the key is not seen. */
  double (*weight)(const void* of, int64_t sequence, int64_t head, int64_t i, int64_t j);
  /* The row of the table of a pair, of which the table then has labels instead of distances; null: its distance. */
  int64_t (*label)(const void* of, int64_t sequence, int64_t head, int64_t i, int64_t j);
  const void* of;
};
/* Null: not wanted; without dtable, no gradient of a parameter is. */
struct naive_result {
  double *o, *lse, *dq, *dk, *dv, *dtable, *dcontent_bias, *dposition_bias, *dspan, *dsink;
};
void naive_attention(const struct naive_problem* problem, enum arithmetic type, const struct naive_result* result);

#ifdef __cplusplus
}
#endif

#endif
