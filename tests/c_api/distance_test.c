/* Attention with distances from C, forward and backward on the CPU, against a naive computation in long double. An
   error may be twice the largest of a naive computation in the type under test, and the rounding of a few terms. */
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/c_api/distance.h"
#include "tests/c_api/expect.h"
#include "tests/c_api/memory.h"
#include "tests/c_api/naive.h"
#include "tests/c_api/numbers.h"

struct distance_problem {
  struct longstride_distance_config config;
  int64_t first_key[2];
};

/* Inputs, or what is computed: in place of q its gradient, and so on; of inputs `o` is the gradient of the output. */
struct distance_arrays {
  double *q, *k, *v, *table, *content_bias, *position_bias, *span, *o, *lse;
};
enum { arrays = 9 };
static double** nth(struct distance_arrays* a, int n) {
  double** all[arrays] = {&a->q,    &a->k, &a->v,  &a->table, &a->content_bias, &a->position_bias,
                          &a->span, &a->o, &a->lse};
  return all[n];
}
static const char* const names[arrays] = {"q", "k", "v", "table", "content_bias", "position_bias", "span", "o", "lse"};

static size_t count_of(const struct distance_problem* p, int n) {
  const struct longstride_distance_config* c = &p->config;
  const int64_t rows = c->batch * c->heads, bias = c->heads * c->key_size;
  const int64_t counts[arrays] = {rows * c->queries * c->key_size,
                                  rows * c->keys * c->key_size,
                                  rows * c->keys * c->value_size,
                                  c->distances * (c->shared_table ? 1 : c->heads) * c->key_size,
                                  bias,
                                  bias,
                                  c->heads,
                                  rows * c->queries * c->value_size,
                                  rows * c->queries};
  return (size_t)counts[n];
}

/* Of a problem's query i for key j, before spans: whether it sees the key, which is at a distance t >= 0. */
static int sees(const struct distance_problem* p, int64_t sequence, int64_t head, int64_t t, int64_t j) {
  const struct longstride_distance_config* c = &p->config;
  const int64_t step = c->dilation_count > 0 ? c->dilation[head] : 1;
  return t % step == 0 && (t > 0 || !c->without_self) && (c->window == 0 || t / step < c->window) &&
         j >= p->first_key[sequence];
}
struct spans {
  const struct distance_problem* p;
  const double* span;
};
static double weight(const void* of, int64_t sequence, int64_t head, int64_t i, int64_t j) {
  const struct spans* s = of;
  const struct longstride_distance_config* c = &s->p->config;
  const int64_t t = c->keys - c->queries + i - j;
  if (!sees(s->p, sequence, head, t, j)) return 0;
  const double w = c->longest_span > 0 ? (c->ramp + s->span[head] * c->longest_span - (double)t) / c->ramp : 1;
  return w < 1.0 / 1024 ? 0 : w < 1 ? w : 1;
}

static void naive(const struct distance_problem* p, const struct distance_arrays* a, enum arithmetic type,
                  const struct distance_arrays* r) {
  const struct longstride_distance_config* c = &p->config;
  const struct spans spans = {p, a->span};
  const struct naive_problem defined = {.batch = c->batch,
                                        .queries = c->queries,
                                        .keys = c->keys,
                                        .heads = c->heads,
                                        .key_size = c->key_size,
                                        .value_size = c->value_size,
                                        .q = a->q,
                                        .k = a->k,
                                        .v = a->v,
                                        .dout = a->o,
                                        .distances = c->distances,
                                        .tables = c->shared_table ? 1 : c->heads,
                                        .table = a->table,
                                        .content_bias = c->content_bias ? a->content_bias : NULL,
                                        .position_bias = c->position_bias ? a->position_bias : NULL,
                                        .slope = c->longest_span > 0 ? c->longest_span / c->ramp : 0,
                                        .weight = weight,
                                        .of = &spans};
  const struct naive_result result = {r->o,    r->lse, r->q, r->k, r->v, r->table, r->content_bias, r->position_bias,
                                      r->span, NULL};
  naive_attention(&defined, type, &result);
}

static struct distance_arrays zeros(const struct distance_problem* p) {
  struct distance_arrays a;
  for (int n = 0; n < arrays; ++n) *nth(&a, n) = calloc(count_of(p, n) + 1, sizeof(double));
  return a;
}
static struct distance_arrays inputs(const struct distance_problem* p) {
  struct distance_arrays a = zeros(p);
  uint64_t state = 1;
  for (int n = 0; n < arrays; ++n)
    for (size_t i = 0; i < count_of(p, n); ++i) (*nth(&a, n))[i] = next_number(&state);
  /* From 0 to 1, and no distance at the end of a ramp, where a weight has a kink. */
  for (int64_t h = 0; h < p->config.heads; ++h) {
    const double reach = floor(fabs(a.span[h]) * p->config.longest_span) + 0.37;
    a.span[h] = p->config.longest_span > 0 ? (double)(float)(reach / p->config.longest_span) : 0;
  }
  return a;
}
static void release(struct distance_arrays* a) {
  for (int n = 0; n < arrays; ++n) free(*nth(a, n));
}

/* By the library. */
static void run(const struct distance_problem* p, int32_t dtype, const struct distance_arrays* given,
                struct distance_arrays* r) {
  struct longstride_distance_config c = p->config;
  c.dtype = dtype;
  struct longstride_distance_plan* plan = NULL;
  EXPECT(longstride_distance_create(&c, &plan) == LONGSTRIDE_OK, "%s", longstride_last_error());
  if (plan == NULL) return;
  struct longstride_memory memory = {sizeof memory, 0, 0, 0};
  EXPECT(longstride_distance_memory(plan, &memory) == LONGSTRIDE_OK, "%s", longstride_last_error());
  void *in[arrays], *out[arrays];
  struct distance_arrays numbers = *given;
  for (int n = 0; n < arrays; ++n) {
    in[n] = as_type(*nth(&numbers, n), count_of(p, n), dtype);
    out[n] = as_type(*nth(r, n), count_of(p, n), dtype); /* zeros, to which gradients of parameters are added */
  }
  const int32_t first_key[2] = {(int32_t)p->first_key[0], (int32_t)p->first_key[1]};
  const struct longstride_distance_scores scores = {input_of(in[0], c.queries, c.heads, c.key_size),
                                                    input_of(in[1], c.keys, c.heads, c.key_size),
                                                    c.distances > 0 ? in[3] : NULL,
                                                    c.content_bias ? in[4] : NULL,
                                                    c.position_bias ? in[5] : NULL,
                                                    c.longest_span > 0 ? in[6] : NULL,
                                                    c.first_keys ? first_key : NULL};
  const struct longstride_input v = input_of(in[2], c.keys, c.heads, c.value_size);
  unsigned char* scratch_memory;
  void* scratch = scratch_of(memory.forward_scratch, &scratch_memory);
  const struct longstride_distance_forward_call forward = {
      sizeof forward,         scores, v, output_of(out[7], c.queries, c.heads, c.value_size), out[8], scratch,
      memory.forward_scratch, NULL};
  if (memory.forward_scratch > 0) {
    struct longstride_distance_forward_call without = forward;
    without.scratch = NULL;
    EXPECT(longstride_distance_forward(plan, &without) == LONGSTRIDE_INVALID &&
               strstr(longstride_last_error(), " bytes (longstride_distance_memory)") != NULL,
           "%s", longstride_last_error());
  }
  EXPECT(longstride_distance_forward(plan, &forward) == LONGSTRIDE_OK, "%s", longstride_last_error());
  free(scratch_memory);
  scratch = scratch_of(memory.backward_scratch, &scratch_memory);
  const struct longstride_distance_backward_call backward = {.struct_bytes = sizeof backward,
                                                             .scores = scores,
                                                             .v = v,
                                                             .o = input_of(out[7], c.queries, c.heads, c.value_size),
                                                             .lse = out[8],
                                                             .dout = input_of(in[7], c.queries, c.heads, c.value_size),
                                                             .dq = output_of(out[0], c.queries, c.heads, c.key_size),
                                                             .dk = output_of(out[1], c.keys, c.heads, c.key_size),
                                                             .dv = output_of(out[2], c.keys, c.heads, c.value_size),
                                                             .dtable = c.distances > 0 ? out[3] : NULL,
                                                             .dcontent_bias = c.content_bias ? out[4] : NULL,
                                                             .dposition_bias = c.position_bias ? out[5] : NULL,
                                                             .dspan = c.longest_span > 0 ? out[6] : NULL,
                                                             .scratch = scratch,
                                                             .scratch_bytes = memory.backward_scratch};
  EXPECT(longstride_distance_backward(plan, &backward) == LONGSTRIDE_OK, "%s", longstride_last_error());
  free(scratch_memory);
  longstride_distance_destroy(plan);
  for (int n = 0; n < arrays; ++n) {
    back(*nth(r, n), out[n], count_of(p, n), dtype);
    free(in[n]);
  }
}

static int has(const struct longstride_distance_config* c, int n) {
  return !(n == 3 && c->distances == 0) && !(n == 4 && !c->content_bias) && !(n == 5 && !c->position_bias) &&
         !(n == 6 && c->longest_span == 0);
}

static void compare(const char* name, const struct distance_problem* p, int32_t dtype) {
  const struct longstride_distance_config* c = &p->config;
  struct distance_arrays given = inputs(p), right = zeros(p), plain = zeros(p), tested = zeros(p);
  naive(p, &given, in_long_double, &right);
  naive(p, &given, dtype == LONGSTRIDE_F64 ? in_f64 : in_f32, &plain);
  run(p, dtype, &given, &tested);
  const double epsilon = dtype == LONGSTRIDE_F64 ? DBL_EPSILON : FLT_EPSILON;
  for (int n = 0; n < arrays; ++n) {
    if (!has(c, n)) continue;
    const size_t count = count_of(p, n);
    double size = 1;
    for (size_t i = 0; i < count; ++i)
      if (isfinite((*nth(&right, n))[i])) size = fmax(size, fabs((*nth(&right, n))[i]));
    const double allowed = 2 * largest_error(*nth(&plain, n), *nth(&right, n), count) +
                           4.0 * (double)(c->key_size + c->value_size) * epsilon * size;
    const double error = largest_error(*nth(&tested, n), *nth(&right, n), count);
    EXPECT(error <= allowed && allowed < 1e-3 * size, "%s of %s, %lld keys: error %g, allowed %g", names[n], name,
           (long long)c->keys, error, allowed);
  }
  release(&given);
  release(&right);
  release(&plain);
  release(&tested);
}

static void test_forms(int64_t queries, int64_t keys, int64_t key_size, int64_t value_size) {
  static const int64_t steps[] = {1, 3, 2};
  struct longstride_distance_config any = {.struct_bytes = sizeof any,
                                           .batch = 2,
                                           .queries = queries,
                                           .keys = keys,
                                           .heads = 3,
                                           .key_size = key_size,
                                           .value_size = value_size};
  struct distance_problem xl = {any, {0, 0}}, spans = xl, dilated = xl, plain = xl, mixture = xl;
  xl.config.distances = keys;
  xl.config.content_bias = xl.config.position_bias = xl.config.first_keys = 1;
  xl.first_key[1] = keys / 3;
  spans.config.distances = 1 + keys / 2;
  spans.config.shared_table = spans.config.without_self = 1;
  spans.config.longest_span = (double)keys;
  spans.config.ramp = 4;
  dilated.config.window = 5;
  dilated.config.dilation = steps;
  dilated.config.dilation_count = 3;
  dilated.config.content_bias = 1;
  mixture = xl;
  mixture.config.window = 7;
  mixture.config.dilation = steps;
  mixture.config.dilation_count = 3;
  mixture.config.without_self = 1;
  mixture.config.longest_span = 20;
  mixture.config.ramp = 3;
  for (int32_t dtype = LONGSTRIDE_F32; dtype <= LONGSTRIDE_F64; ++dtype) {
    compare("Transformer-XL's form", &xl, dtype);
    compare("spans", &spans, dtype);
    compare("dilated windows", &dilated, dtype);
    compare("no term of the distance", &plain, dtype);
    compare("a mixture", &mixture, dtype);
  }
}

static void expect_mistake(const char* sentence, struct longstride_distance_config config) {
  struct longstride_distance_plan* plan = NULL;
  EXPECT(longstride_distance_create(&config, &plan) == LONGSTRIDE_INVALID && plan == NULL, "%s", sentence);
  EXPECT(strcmp(longstride_last_error(), sentence) == 0, "'%s', not '%s'", longstride_last_error(), sentence);
}

static void test_mistakes(void) {
  const struct longstride_distance_config good = {.struct_bytes = sizeof good,
                                                  .batch = 1,
                                                  .queries = 4,
                                                  .keys = 6,
                                                  .heads = 2,
                                                  .key_size = 8,
                                                  .value_size = 8,
                                                  .distances = 6};
  struct longstride_distance_config c = good;
#define MISTAKE(change, sentence) c = good, change, expect_mistake(sentence, c)
  MISTAKE(c.queries = 7, "queries is 7, but must be from 1 to keys, 6");
  MISTAKE(c.keys = 0, "keys is 0, but must be from 1 to 16777215");
  MISTAKE(c.distances = -1, "distances is -1, but must be from 0 to 16777215");
  MISTAKE((c.distances = 0, c.shared_table = 1), "shared_table is 1, but distances is 0: set the rows of the table");
  MISTAKE((c.distances = 0, c.position_bias = 1),
          "position_bias is 1, but distances is 0: without a table it has no effect");
  MISTAKE(c.without_self = 2, "without_self is 2, but must be 0 or 1");
  MISTAKE(c.longest_span = 5, "longest_span is 5 and ramp 0, but both must be positive, or both 0 for no spans");
  MISTAKE(c.dilation_count = 2, "dilation is null, but dilation_count is 2");
  MISTAKE(c.window = -3, "window is -3, but must be from 0 to 16777215");
  MISTAKE(c.dtype = LONGSTRIDE_BF16, "dtype is bf16, but the CPU computes in f32 and f64");

  struct longstride_distance_plan* plan = NULL;
  EXPECT(longstride_distance_create(&good, &plan) == LONGSTRIDE_OK, "%s", longstride_last_error());
  static float memory[4096];
  struct longstride_distance_forward_call call = {
      .struct_bytes = sizeof call,
      .scores = {.q = input_of(memory, 4, 2, 8), .k = input_of(memory, 6, 2, 8)},
      .v = input_of(memory, 6, 2, 8),
      .o = output_of(memory + 1024, 4, 2, 8),
      .lse = memory + 2048};
  EXPECT(longstride_distance_forward(plan, &call) == LONGSTRIDE_INVALID, "without a table");
  EXPECT(strstr(longstride_last_error(), "table is null, but must point to memory") != NULL, "%s",
         longstride_last_error());
  call.scores.table = memory;
  call.scores.span = memory;
  EXPECT(longstride_distance_forward(plan, &call) == LONGSTRIDE_INVALID, "with a span");
  EXPECT(strstr(longstride_last_error(), "span is given, but the plan has none") != NULL, "%s",
         longstride_last_error());
  EXPECT(longstride_distance_forward(NULL, &call) == LONGSTRIDE_INVALID &&
             strstr(longstride_last_error(), "longstride_distance_create") != NULL,
         "%s", longstride_last_error());
  longstride_distance_destroy(plan);
}

int main(void) {
  test_forms(9, 9, 8, 8);
  test_forms(37, 64, 16, 24);
  test_forms(70, 133, 33, 7);
  test_forms(1, 20, 8, 16);
  test_mistakes();
  if (failures == 0) printf("passed\n");
  return failures != 0;
}
