/* Attention from its definition, with every number a REAL, in arrays (batch, n, heads, size). Included once per REAL,
   with NAME(x) to tell the functions apart. */
static void NAME(naive)(const struct problem* p, const double* q, const double* k, const double* v, const double* dout,
                        struct result* r) {
  const size_t n = (size_t)p->n;
  const REAL scale = (REAL)1 / (REAL)sqrt((double)p->key_size);
  REAL* weight = malloc(n * sizeof *weight);
  REAL* slope = malloc(n * sizeof *slope);
  char* sees = malloc(n); /* whether the position may attend to j */
  for (int64_t b = 0; b < p->batch; ++b)
    for (int64_t h = 0; h < p->heads; ++h)
      for (int64_t i = 0; i < p->n; ++i) {
        const int64_t qi = at(p, b, i, h, p->key_size), oi = at(p, b, i, h, p->value_size);
        REAL top = -INFINITY, sum = 0, delta = 0;
        for (int64_t j = 0; j <= i; ++j) {
          sees[j] = (char)allowed(p->pattern, p->heads, h, i, j);
          if (!sees[j]) continue;
          weight[j] = 0;
          for (int64_t d = 0; d < p->key_size; ++d)
            weight[j] += (REAL)q[qi + d] * (REAL)k[at(p, b, j, h, p->key_size) + d];
          weight[j] *= scale;
          if (weight[j] > top) top = weight[j];
        }
        for (int64_t j = 0; j <= i; ++j)
          if (sees[j]) sum += weight[j] = NAME(exponential)(weight[j] - top);
        r->lse[(b * p->heads + h) * p->n + i] = sum > 0 ? (double)(top + NAME(logarithm)(sum)) : -INFINITY;
        for (int64_t d = 0; d < p->value_size; ++d) {
          REAL o = 0;
          for (int64_t j = 0; j <= i; ++j)
            if (sees[j]) o += weight[j] / sum * (REAL)v[at(p, b, j, h, p->value_size) + d];
          r->o[oi + d] = (double)o;
          delta += (REAL)dout[oi + d] * o;
        }
        for (int64_t j = 0; j <= i; ++j) {
          if (!sees[j]) continue;
          const int64_t kj = at(p, b, j, h, p->key_size), vj = at(p, b, j, h, p->value_size);
          slope[j] = 0;
          for (int64_t d = 0; d < p->value_size; ++d) slope[j] += (REAL)dout[oi + d] * (REAL)v[vj + d];
          slope[j] = weight[j] / sum * (slope[j] - delta) * scale;
          for (int64_t d = 0; d < p->key_size; ++d) {
            r->dq[qi + d] = (double)((REAL)r->dq[qi + d] + slope[j] * (REAL)k[kj + d]);
            r->dk[kj + d] = (double)((REAL)r->dk[kj + d] + slope[j] * (REAL)q[qi + d]);
          }
          for (int64_t d = 0; d < p->value_size; ++d)
            r->dv[vj + d] = (double)((REAL)r->dv[vj + d] + weight[j] / sum * (REAL)dout[oi + d]);
        }
      }
  free(weight);
  free(slope);
  free(sees);
}
