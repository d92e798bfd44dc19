/* Attention and scans from their definitions (naive.h of kernels/attention and kernels/scan), for tests in C. */
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

/* Arrays as in scan.h, whose numbers form and decay are; null: not given. */
struct naive_scan_problem {
  int64_t batch, n, heads, key_size, value_size;
  int32_t form, decay, normalised, both;
  const double *q, *k, *v, *decays, *beta, *first_state, *dout, *dlast_state;
  const int32_t* begin;
};
/* summand: the largest product that a gradient of q or k is summed from. */
struct naive_scan_result {
  double *o, *last_state, *dq, *dk, *dv, *ddecay, *dbeta, *dfirst_state;
  double summand;
};
void naive_scan(const struct naive_scan_problem* problem, enum arithmetic type, struct naive_scan_result* result);

#ifdef __cplusplus
}
#endif

#endif
