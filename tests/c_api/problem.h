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
};

static size_t rows_of(const struct problem* p) { return (size_t)(p->batch * p->n * p->heads); }
static size_t keys_of(const struct problem* p) { return rows_of(p) * (size_t)p->key_size; }
static size_t values_of(const struct problem* p) { return rows_of(p) * (size_t)p->value_size; }

static int allows(const struct longstride_pattern* p, const char* part, int64_t head, int64_t i, int64_t j) {
  const int64_t l = p->stride, window = p->window > 0 ? p->window : l + 1;
  if (strcmp(part, "dense") == 0) return 1;
  if (strcmp(part, "local") == 0) return p->direction == LONGSTRIDE_BOTH ? 2 * llabs(i - j) < window : i - j < window;
  if (strcmp(part, "column") == 0) return (i - j) % l == 0;
  if (strcmp(part, "fixed_block") == 0) return i / l == j / l;
  if (strcmp(part, "first") == 0) return j < p->first;
  const int64_t c = p->summary[p->summary_count == 1 ? 0 : head], s = p->distinct_heads ? head % (l / c) : 0;
  return (j % l >= l - (s + 1) * c && j % l < l - s * c) || (p->summary_inclusive && j % l == 0);
}

/* 1 if position i of a head of the problem may attend to position j, at most i unless in both directions, else 0. */
static double allowed(const void* problem, int64_t sequence, int64_t head, int64_t i, int64_t j) {
  const struct problem* of = problem;
  const struct longstride_pattern* p = of->pattern;
  const int64_t count = (int64_t)p->part_count;
  (void)sequence;
  if (strcmp(p->integration, "interleaved") == 0) return allows(p, p->parts[p->layer % count], head, i, j);
  if (strcmp(p->integration, "multihead") == 0) return allows(p, p->parts[head * count / of->heads], head, i, j);
  for (int64_t part = 0; part < count; ++part)
    if (allows(p, p->parts[part], head, i, j)) return 1;
  return 0;
}

static struct naive_result result_of(const struct problem* p) {
  struct naive_result r = {calloc(values_of(p), sizeof(double)),
                           calloc(rows_of(p), sizeof(double)),
                           calloc(keys_of(p), sizeof(double)),
                           calloc(keys_of(p), sizeof(double)),
                           calloc(values_of(p), sizeof(double)),
                           NULL,
                           NULL,
                           NULL,
                           NULL};
  return r;
}
static void free_result(struct naive_result* r) {
  free(r->o);
  free(r->lse);
  free(r->dq);
  free(r->dk);
  free(r->dv);
}

static double* numbers(size_t count, uint64_t* state) {
  double* x = malloc(count * sizeof *x);
  for (size_t i = 0; i < count; ++i) x[i] = next_number(state);
  return x;
}

#endif
