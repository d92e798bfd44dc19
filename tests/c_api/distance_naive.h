/* Attention with distances from its definition, with every number a REAL. Included once per REAL, with NAME(x) to tell
   the functions apart. Arrays are contiguous: (batch, rows, heads, size), (distances, heads or 1, size), (heads, size).
 */
static void NAME(naive)(const struct distance_problem* p, const struct distance_arrays* a, struct distance_arrays* r) {
  const struct longstride_distance_config* c = &p->config;
  const REAL scale = (REAL)1 / (REAL)sqrt((double)c->key_size);
  REAL* weight = malloc((size_t)c->keys * sizeof *weight);
  REAL* ramp = malloc((size_t)c->keys * sizeof *ramp);
  for (int64_t b = 0; b < c->batch; ++b)
    for (int64_t h = 0; h < c->heads; ++h)
      for (int64_t i = 0; i < c->queries; ++i) {
        const double* q = a->q + ((b * c->queries + i) * c->heads + h) * c->key_size;
        double* dq = r->q + ((b * c->queries + i) * c->heads + h) * c->key_size;
        const double* dout = a->o + ((b * c->queries + i) * c->heads + h) * c->value_size;
        double* o = r->o + ((b * c->queries + i) * c->heads + h) * c->value_size;
        const int64_t position = c->keys - c->queries + i;
        REAL top = -INFINITY, sum = 0, delta = 0;
        for (int64_t j = 0; j < c->keys; ++j) {
          weight[j] = -INFINITY;
          ramp[j] = 1;
          if (c->longest_span > 0)
            ramp[j] = ((REAL)c->ramp + (REAL)a->span[h] * (REAL)c->longest_span - (REAL)(position - j)) / (REAL)c->ramp;
          if (!sees(p, h, position, j) || j < p->first_key[b] || ramp[j] < (REAL)1 / 1024) continue;
          const double* k = a->k + ((b * c->keys + j) * c->heads + h) * c->key_size;
          const double* t = row_of(p, a->table, h, position - j);
          REAL score = 0;
          for (int64_t d = 0; d < c->key_size; ++d) {
            score += ((REAL)q[d] + (REAL)bias_of(p, a->content_bias, h, d)) * (REAL)k[d];
            if (t != NULL) score += ((REAL)q[d] + (REAL)bias_of(p, a->position_bias, h, d)) * (REAL)t[d];
          }
          weight[j] = score * scale;
          if (weight[j] > top) top = weight[j];
        }
        for (int64_t j = 0; j < c->keys; ++j)
          if (weight[j] > -INFINITY)
            sum += weight[j] = NAME(exponential)(weight[j] - top) * (ramp[j] < 1 ? ramp[j] : 1);
          else
            weight[j] = 0;
        r->lse[(b * c->heads + h) * c->queries + i] = sum > 0 ? (double)(top + NAME(logarithm)(sum)) : -INFINITY;
        for (int64_t d = 0; d < c->value_size; ++d) {
          REAL mean = 0;
          for (int64_t j = 0; j < c->keys; ++j)
            if (weight[j] > 0)
              mean += weight[j] / sum * (REAL)a->v[((b * c->keys + j) * c->heads + h) * c->value_size + d];
          o[d] = (double)mean;
          delta += (REAL)dout[d] * mean;
        }
        for (int64_t j = 0; j < c->keys; ++j) {
          if (weight[j] <= 0) continue;
          const int64_t kj = ((b * c->keys + j) * c->heads + h) * c->key_size,
                        vj = ((b * c->keys + j) * c->heads + h) * c->value_size;
          const double* t = row_of(p, a->table, h, position - j);
          double* dt = (double*)row_of(p, r->table, h, position - j);
          REAL slope = 0;
          for (int64_t d = 0; d < c->value_size; ++d) slope += (REAL)dout[d] * (REAL)a->v[vj + d];
          if (ramp[j] < 1)
            r->span[h] = (double)((REAL)r->span[h] +
                                  weight[j] / sum / ramp[j] * (slope - delta) * (REAL)(c->longest_span / c->ramp));
          slope = weight[j] / sum * (slope - delta) * scale;
          for (int64_t d = 0; d < c->key_size; ++d) {
            const REAL row = t == NULL ? 0 : (REAL)t[d];
            dq[d] = (double)((REAL)dq[d] + slope * ((REAL)a->k[kj + d] + row));
            r->k[kj + d] =
                (double)((REAL)r->k[kj + d] + slope * ((REAL)q[d] + (REAL)bias_of(p, a->content_bias, h, d)));
            r->content_bias[h * c->key_size + d] =
                (double)((REAL)r->content_bias[h * c->key_size + d] + slope * (REAL)a->k[kj + d]);
            if (t == NULL) continue;
            dt[d] = (double)((REAL)dt[d] + slope * ((REAL)q[d] + (REAL)bias_of(p, a->position_bias, h, d)));
            r->position_bias[h * c->key_size + d] = (double)((REAL)r->position_bias[h * c->key_size + d] + slope * row);
          }
          for (int64_t d = 0; d < c->value_size; ++d)
            r->v[vj + d] = (double)((REAL)r->v[vj + d] + weight[j] / sum * (REAL)dout[d]);
        }
      }
  free(weight);
  free(ramp);
}
