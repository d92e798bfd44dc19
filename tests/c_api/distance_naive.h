/* Attention with distances from its definition, with every number a REAL. Included once per REAL, with NAME(x) to tell
   the functions apart. Arrays are contiguous: (batch, rows, heads, size), (distances, heads or 1, size), (heads, size).
 */

/* f(t) exp(score - top) of every key of a row, 0 if it is not seen, and f(t); the result is their sum. */
static REAL NAME(weigh)(const struct distance_problem* p, const struct distance_arrays* a, struct distance_arrays* r,
                        struct distance_row row, REAL* weight, REAL* ramp) {
  const struct longstride_distance_config* c = &p->config;
  const REAL scale = (REAL)1 / (REAL)sqrt((double)c->key_size);
  const double* q = a->q + query_at(p, row) * c->key_size;
  REAL top = -INFINITY, sum = 0;
  for (int64_t j = 0; j < c->keys; ++j) {
    weight[j] = -INFINITY;
    ramp[j] = 1;
    if (c->longest_span > 0)
      ramp[j] =
          ((REAL)c->ramp + (REAL)a->span[row.head] * (REAL)c->longest_span - (REAL)(row.position - j)) / (REAL)c->ramp;
    if (!sees(p, row.head, row.position, j) || j < p->first_key[row.sequence] || ramp[j] < (REAL)1 / 1024) continue;
    const double *k = a->k + key_at(p, row, j) * c->key_size, *t = row_of(p, a->table, row.head, row.position - j);
    REAL score = 0;
    for (int64_t d = 0; d < c->key_size; ++d) {
      score += ((REAL)q[d] + (REAL)bias_of(p, a->content_bias, row.head, d)) * (REAL)k[d];
      if (t != NULL) score += ((REAL)q[d] + (REAL)bias_of(p, a->position_bias, row.head, d)) * (REAL)t[d];
    }
    weight[j] = score * scale;
    if (weight[j] > top) top = weight[j];
  }
  for (int64_t j = 0; j < c->keys; ++j)
    if (weight[j] > -INFINITY)
      sum += weight[j] = NAME(exponential)(weight[j] - top) * (ramp[j] < 1 ? ramp[j] : 1);
    else
      weight[j] = 0;
  r->lse[(row.sequence * c->heads + row.head) * c->queries + row.query] =
      sum > 0 ? (double)(top + NAME(logarithm)(sum)) : -INFINITY;
  return sum;
}

/* The row's output; the result is dout . o. */
static REAL NAME(mix)(const struct distance_problem* p, const struct distance_arrays* a, struct distance_arrays* r,
                      struct distance_row row, const REAL* weight, REAL sum) {
  const struct longstride_distance_config* c = &p->config;
  const int64_t at = query_at(p, row) * c->value_size;
  REAL delta = 0;
  for (int64_t d = 0; d < c->value_size; ++d) {
    REAL mean = 0;
    for (int64_t j = 0; j < c->keys; ++j)
      if (weight[j] > 0) mean += weight[j] / sum * (REAL)a->v[key_at(p, row, j) * c->value_size + d];
    r->o[at + d] = (double)mean;
    delta += (REAL)a->o[at + d] * mean;
  }
  return delta;
}

static void NAME(add)(double* to, REAL value) { *to = (double)((REAL)*to + value); }

/* Adds what a pair of the row and key j, of probability p, contributes to all gradients. */
static void NAME(differentiate)(const struct distance_problem* p, const struct distance_arrays* a,
                                struct distance_arrays* r, struct distance_row row, int64_t j, REAL probability,
                                REAL ramp, REAL delta) {
  const struct longstride_distance_config* c = &p->config;
  const double *q = a->q + query_at(p, row) * c->key_size, *dout = a->o + query_at(p, row) * c->value_size;
  const double *k = a->k + key_at(p, row, j) * c->key_size, *v = a->v + key_at(p, row, j) * c->value_size;
  double *dq = r->q + query_at(p, row) * c->key_size, *dk = r->k + key_at(p, row, j) * c->key_size,
         *dv = r->v + key_at(p, row, j) * c->value_size;
  const double* t = row_of(p, a->table, row.head, row.position - j);
  double* dt = (double*)row_of(p, r->table, row.head, row.position - j);
  REAL slope = 0;
  for (int64_t d = 0; d < c->value_size; ++d) slope += (REAL)dout[d] * (REAL)v[d];
  if (ramp < 1) NAME(add)(r->span + row.head, probability / ramp * (slope - delta) * (REAL)(c->longest_span / c->ramp));
  slope = probability * (slope - delta) / (REAL)sqrt((double)c->key_size);
  for (int64_t d = 0; d < c->key_size; ++d) {
    NAME(add)(dq + d, slope * ((REAL)k[d] + (t == NULL ? 0 : (REAL)t[d])));
    NAME(add)(dk + d, slope * ((REAL)q[d] + (REAL)bias_of(p, a->content_bias, row.head, d)));
    NAME(add)(r->content_bias + row.head * c->key_size + d, slope * (REAL)k[d]);
    if (t == NULL) continue;
    NAME(add)(dt + d, slope * ((REAL)q[d] + (REAL)bias_of(p, a->position_bias, row.head, d)));
    NAME(add)(r->position_bias + row.head * c->key_size + d, slope * (REAL)t[d]);
  }
  for (int64_t d = 0; d < c->value_size; ++d) NAME(add)(dv + d, probability * (REAL)dout[d]);
}

static void NAME(naive)(const struct distance_problem* p, const struct distance_arrays* a, struct distance_arrays* r) {
  const struct longstride_distance_config* c = &p->config;
  REAL* weight = malloc((size_t)c->keys * sizeof *weight);
  REAL* ramp = malloc((size_t)c->keys * sizeof *ramp);
  for (int64_t b = 0; b < c->batch; ++b)
    for (int64_t h = 0; h < c->heads; ++h)
      for (int64_t i = 0; i < c->queries; ++i) {
        const struct distance_row row = {b, h, i, c->keys - c->queries + i};
        const REAL sum = NAME(weigh)(p, a, r, row, weight, ramp), delta = NAME(mix)(p, a, r, row, weight, sum);
        for (int64_t j = 0; j < c->keys; ++j)
          if (weight[j] > 0) NAME(differentiate)(p, a, r, row, j, weight[j] / sum, ramp[j], delta);
      }
  free(weight);
  free(ramp);
}
