/* A problem of attention in C: its pattern from the definition (kernels/attention/pattern/pattern.h), its arrays, and
   results by a naive computation. Sources are C99 and see nothing of Longstride but attention.h. */
#ifndef TESTS_C_API_PROBLEM_H
#define TESTS_C_API_PROBLEM_H
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/c_api/attention.h"
#include "tests/c_api/expect.h"
#include "tests/c_api/naive.h"
#include "tests/c_api/numbers.h"

struct problem {
  const struct longstride_pattern* pattern;
  int64_t batch, n, heads, key_size, value_size;
  int64_t queries; /* 0: n */
  enum longstride_bounds bounds;
  int64_t bounds_heads;
  const int32_t *begin, *end;  /* (batch, bounds_heads, queries) */
  const double* sink;          /* (heads), or null */
  int64_t block, list_entries; /* rows of a block of lists, 0: none; lists are of every head, and of all sequences */
  const int32_t *key_begin, *keys;
  int64_t labels, tables; /* no labels: none */
  int32_t clip, labels_from_end;
  const int32_t *query_groups, *key_groups; /* (batch, queries) and (batch, n), or null */
  const double* table;                      /* (labels, tables, key_size) */
};

static int64_t queries_of(const struct problem* p) { return p->queries > 0 ? p->queries : p->n; }
/* Rows of queries, and elements of q, k, v and o. */
static size_t rows_of(const struct problem* p) { return (size_t)(p->batch * queries_of(p) * p->heads); }
static size_t key_rows_of(const struct problem* p) { return (size_t)(p->batch * p->n * p->heads); }
static size_t q_of(const struct problem* p) { return rows_of(p) * (size_t)p->key_size; }
static size_t k_of(const struct problem* p) { return key_rows_of(p) * (size_t)p->key_size; }
static size_t v_of(const struct problem* p) { return key_rows_of(p) * (size_t)p->value_size; }
static size_t table_of(const struct problem* p) { return (size_t)(p->labels * p->tables * p->key_size); }
static size_t o_of(const struct problem* p) { return rows_of(p) * (size_t)p->value_size; }

static int looks_ahead(const struct longstride_pattern* p) { return p->direction && strcmp(p->direction, "both") == 0; }

static int allows(const struct longstride_pattern* p, const char* part, int64_t head, int64_t i, int64_t j) {
  const int64_t l = p->stride, window = p->window > 0 ? p->window : l + 1;
  if (j > i && !looks_ahead(p)) return 0;
  if (strcmp(part, "dense") == 0) return 1;
  if (strcmp(part, "local") == 0) return looks_ahead(p) ? llabs(i - j) <= window / 2 : i - j < window;
  if (strcmp(part, "column") == 0) return (i - j) % l == 0;
  if (strcmp(part, "fixed_block") == 0) return i / l == j / l;
  if (strcmp(part, "first") == 0) return j < p->first;
  if (strcmp(part, "block_window") == 0) return llabs(i / p->block - j / p->block) <= 1;
  const int64_t c = p->summary[p->summary_count == 1 ? 0 : head], s = p->distinct_heads ? head % (l / c) : 0;
  return (j % l >= l - (s + 1) * c && j % l < l - s * c) || (p->summary_inclusive && j % l == 0);
}

/* 1 if query i of a head of the problem may attend to position j, else 0. */
static double allowed(const void* problem, int64_t sequence, int64_t head, int64_t i, int64_t j) {
  const struct problem* of = problem;
  const struct longstride_pattern* p = of->pattern;
  const int64_t count = (int64_t)p->part_count;
  if (of->bounds != LONGSTRIDE_NO_BOUNDS) {
    const int64_t row = (sequence * of->bounds_heads + head % of->bounds_heads) * queries_of(of) + i;
    if (j < of->begin[row] || j >= of->end[row]) return 0;
  }
  if (of->block > 0) {
    const int64_t blocks = (queries_of(of) + of->block - 1) / of->block;
    const int32_t *list = of->key_begin + head * (blocks + 1) + i / of->block,
                  *keys = of->keys + head * of->list_entries;
    int listed = 0;
    for (int32_t at = list[0]; at < list[1]; ++at) listed |= keys[at] == j / of->block;
    if (!listed) return 0;
  }
  if (strcmp(p->integration, "interleaved") == 0) return allows(p, p->parts[p->layer % count], head, i, j);
  if (strcmp(p->integration, "multihead") == 0) return allows(p, p->parts[head * count / of->heads], head, i, j);
  for (int64_t part = 0; part < count; ++part)
    if (allows(p, p->parts[part], head, i, j)) return 1;
  return 0;
}

/* Places from the end are those of a pattern of one part. */
static int64_t label_of(const void* problem, int64_t sequence, int64_t head, int64_t i, int64_t j) {
  const struct problem* p = problem;
  const int64_t of_set = p->query_groups ? p->labels / 2 : p->labels;
  int64_t label = (j - i < -p->clip ? -p->clip : j - i > p->clip ? p->clip : j - i) + p->clip;
  if (p->labels_from_end)
    for (int64_t after = label = 0; ++after < p->n - j && label < of_set - 1;)
      label += allowed(p, sequence, head, i, j + after) > 0;
  if (!p->query_groups) return label;
  const int32_t own = p->query_groups[sequence * queries_of(p) + i];
  return own == p->key_groups[sequence * p->n + j] ? label : label + of_set;
}

static struct naive_result result_of(const struct problem* p) {
  const struct naive_result r = {.o = calloc(o_of(p), sizeof(double)),
                                 .lse = calloc(rows_of(p), sizeof(double)),
                                 .dq = calloc(q_of(p), sizeof(double)),
                                 .dk = calloc(k_of(p), sizeof(double)),
                                 .dv = calloc(v_of(p), sizeof(double)),
                                 .dtable = calloc(table_of(p) + 1, sizeof(double)),
                                 .dsink = calloc((size_t)p->heads, sizeof(double))};
  return r;
}
static void free_result(struct naive_result* r) {
  free(r->o);
  free(r->lse);
  free(r->dq);
  free(r->dk);
  free(r->dv);
  free(r->dtable);
  free(r->dsink);
}

static double* numbers(size_t count, uint64_t* state) {
  double* x = malloc(count * sizeof *x);
  for (size_t i = 0; i < count; ++i) x[i] = next_number(state);
  return x;
}

#endif
