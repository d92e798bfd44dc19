/* The scan from C, forward and backward on the CPU, against the recurrence in long double. An error may be twice the
   largest of the recurrence in the type under test, and the rounding of a few terms. */
#include "kernels/c_api/scan.h"

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tests/c_api/expect.h"
#include "tests/c_api/memory.h"
#include "tests/c_api/naive.h"
#include "tests/c_api/numbers.h"

struct scan_problem {
  struct longstride_scan_config config;
  int32_t states; /* 1: first and last states */
};

/* Inputs, with the gradients of o and of the last state, or what is computed: in place of q its gradient, and so on. */
struct scan_arrays {
  double *q, *k, *v, *decay, *beta, *first_state, *o, *last_state;
};
enum { arrays = 8 };
static double** nth(struct scan_arrays* a, int n) {
  double** all[arrays] = {&a->q, &a->k, &a->v, &a->decay, &a->beta, &a->first_state, &a->o, &a->last_state};
  return all[n];
}
static const char* const names[arrays] = {"q", "k", "v", "decay", "beta", "first_state", "o", "last_state"};

static int has(const struct scan_problem* p, int n) {
  return !(n == 3 && p->config.decay == LONGSTRIDE_NO_DECAY) && !(n == 4 && p->config.form != LONGSTRIDE_DELTA) &&
         !((n == 5 || n == 7) && !p->states);
}
static size_t count_of(const struct scan_problem* p, int n) {
  const struct longstride_scan_config* c = &p->config;
  const int64_t rows = c->batch * c->n * c->heads,
                state = c->batch * c->heads * c->key_size * (c->value_size + c->normalised);
  const int64_t counts[arrays] = {rows * c->key_size,
                                  rows * c->key_size,
                                  rows * c->value_size,
                                  c->decay == LONGSTRIDE_DECAY_PER_CHANNEL ? rows * c->key_size : rows,
                                  rows,
                                  state,
                                  rows * c->value_size,
                                  state};
  return (size_t)counts[n];
}

static struct scan_arrays zeros(const struct scan_problem* p) {
  struct scan_arrays a;
  for (int n = 0; n < arrays; ++n) *nth(&a, n) = calloc(count_of(p, n), sizeof(double));
  return a;
}
static void release(struct scan_arrays* a) {
  for (int n = 0; n < arrays; ++n) free(*nth(a, n));
}
/* Decays from 0 to 1 as logarithms, betas from 0 to 2, keys that delta erases rather than overshoots, and denominators
   above 0. */
static struct scan_arrays inputs(const struct scan_problem* p) {
  struct scan_arrays a = zeros(p);
  uint64_t state = 1;
  for (int n = 0; n < arrays; ++n)
    for (size_t i = 0; i < count_of(p, n); ++i) {
      const double x = next_number(&state);
      double* to = *nth(&a, n) + i;
      *to = n == 3 ? -x * x : n == 4 ? 1 + x : n < 2 && p->config.normalised ? fabs(x) + 0.1 : x;
      if (n == 1) *to /= sqrt((double)p->config.key_size);
      if (n == 5) *to = fabs(*to);
      *to = (double)(float)*to;
    }
  return a;
}

static void naive(const struct scan_problem* p, const struct scan_arrays* a, const int32_t* begin, enum arithmetic type,
                  struct scan_arrays* r, double* summand) {
  const struct longstride_scan_config* c = &p->config;
  const struct naive_scan_problem problem = {.batch = c->batch,
                                             .n = c->n,
                                             .heads = c->heads,
                                             .key_size = c->key_size,
                                             .value_size = c->value_size,
                                             .form = c->form,
                                             .decay = c->decay,
                                             .normalised = c->normalised,
                                             .both = c->both,
                                             .q = a->q,
                                             .k = a->k,
                                             .v = a->v,
                                             .decays = has(p, 3) ? a->decay : NULL,
                                             .beta = has(p, 4) ? a->beta : NULL,
                                             .first_state = p->states ? a->first_state : NULL,
                                             .dout = a->o,
                                             .dlast_state = p->states ? a->last_state : NULL,
                                             .begin = c->groups ? begin : NULL};
  struct naive_scan_result result = {.o = r->o,
                                     .last_state = r->last_state,
                                     .dq = r->q,
                                     .dk = r->k,
                                     .dv = r->v,
                                     .ddecay = has(p, 3) ? r->decay : NULL,
                                     .dbeta = r->beta,
                                     .dfirst_state = r->first_state};
  naive_scan(&problem, type, &result);
  *summand = result.summand;
}

/* By the library. A plan without a backward pass must find the same outputs. */
static void run(const struct scan_problem* p, int32_t dtype, const struct scan_arrays* given, const int32_t* begin,
                struct scan_arrays* r) {
  struct longstride_scan_config c = p->config;
  c.dtype = dtype;
  struct longstride_scan_plan* plan = NULL;
  EXPECT(longstride_scan_create(&c, &plan) == LONGSTRIDE_OK, "%s", longstride_last_error());
  if (plan == NULL) return;
  struct longstride_scan_bytes bytes = {sizeof bytes, 0, 0, 0};
  EXPECT(longstride_scan_memory(plan, &bytes) == LONGSTRIDE_OK, "%s", longstride_last_error());
  void *in[arrays], *out[arrays];
  struct scan_arrays numbers = *given;
  for (int n = 0; n < arrays; ++n) {
    in[n] = as_type(*nth(&numbers, n), count_of(p, n), dtype);
    out[n] = as_type(*nth(r, n), count_of(p, n), dtype);
  }
  const struct longstride_scan_inputs all = {.q = input_of(in[0], c.n, c.heads, c.key_size),
                                             .k = input_of(in[1], c.n, c.heads, c.key_size),
                                             .v = input_of(in[2], c.n, c.heads, c.value_size),
                                             .decay = has(p, 3) ? in[3] : NULL,
                                             .beta = has(p, 4) ? in[4] : NULL,
                                             .begin = c.groups ? begin : NULL};
  unsigned char *scratch_memory, *kept_memory;
  void* kept = scratch_of(bytes.kept, &kept_memory);
  struct longstride_scan_forward_call forward = {.struct_bytes = sizeof forward,
                                                 .inputs = all,
                                                 .o = output_of(out[6], c.n, c.heads, c.value_size),
                                                 .first_state = p->states ? in[5] : NULL,
                                                 .last_state = p->states ? out[7] : NULL,
                                                 .kept = kept,
                                                 .scratch = scratch_of(bytes.forward_scratch, &scratch_memory),
                                                 .scratch_bytes = bytes.forward_scratch};
  EXPECT(longstride_scan_forward(plan, &forward) == LONGSTRIDE_OK, "%s", longstride_last_error());
  free(scratch_memory);
  const struct longstride_scan_backward_call backward = {
      .struct_bytes = sizeof backward,
      .inputs = all,
      .o = input_of(c.normalised ? out[6] : NULL, c.n, c.heads, c.value_size),
      .kept = kept,
      .dout = input_of(in[6], c.n, c.heads, c.value_size),
      .dlast_state = p->states ? in[7] : NULL,
      .dq = output_of(out[0], c.n, c.heads, c.key_size),
      .dk = output_of(out[1], c.n, c.heads, c.key_size),
      .dv = output_of(out[2], c.n, c.heads, c.value_size),
      .ddecay = has(p, 3) ? out[3] : NULL,
      .dbeta = has(p, 4) ? out[4] : NULL,
      .dfirst_state = p->states ? out[5] : NULL,
      .scratch = scratch_of(bytes.backward_scratch, &scratch_memory),
      .scratch_bytes = bytes.backward_scratch};
  EXPECT(longstride_scan_backward(plan, &backward) == LONGSTRIDE_OK, "%s", longstride_last_error());
  free(scratch_memory);
  free(kept_memory);
  longstride_scan_destroy(plan);

  c.forward_only = 1;
  EXPECT(longstride_scan_create(&c, &plan) == LONGSTRIDE_OK, "%s", longstride_last_error());
  EXPECT(longstride_scan_memory(plan, &bytes) == LONGSTRIDE_OK && bytes.kept == 0 && bytes.backward_scratch == 0, "%s",
         longstride_last_error());
  const size_t size = count_of(p, 6) * (dtype == LONGSTRIDE_F64 ? sizeof(double) : sizeof(float));
  void* again = malloc(size);
  forward.o = output_of(again, c.n, c.heads, c.value_size);
  forward.kept = NULL;
  forward.scratch = scratch_of(bytes.forward_scratch, &scratch_memory);
  forward.scratch_bytes = bytes.forward_scratch;
  EXPECT(longstride_scan_forward(plan, &forward) == LONGSTRIDE_OK, "%s", longstride_last_error());
  EXPECT(memcmp(again, out[6], size) == 0, "o differs where nothing is kept");
  EXPECT(longstride_scan_backward(plan, &backward) == LONGSTRIDE_INVALID, "backward of forward_only");
  free(again);
  free(scratch_memory);
  longstride_scan_destroy(plan);
  for (int n = 0; n < arrays; ++n) {
    back(*nth(r, n), out[n], count_of(p, n), dtype);
    free(in[n]);
  }
}

static void compare(const struct scan_problem* p, int32_t dtype) {
  const struct longstride_scan_config* c = &p->config;
  struct scan_arrays given = inputs(p), right = zeros(p), plain = zeros(p), tested = zeros(p);
  double summand, of_plain;
  int32_t* begin = malloc((size_t)(c->batch * c->n) * sizeof *begin);
  for (int64_t row = 0; row < c->batch; ++row)
    for (int64_t t = 0; t < c->n; ++t)
      begin[row * c->n + t] = (int32_t)(t < c->n / 3 + row ? 0 : c->n / 3 + row); /* two groups, but of short rows */
  naive(p, &given, begin, in_long_double, &right, &summand);
  naive(p, &given, begin, dtype == LONGSTRIDE_F64 ? in_f64 : in_f32, &plain, &of_plain);
  run(p, dtype, &given, begin, &tested);
  const double epsilon = dtype == LONGSTRIDE_F64 ? DBL_EPSILON : FLT_EPSILON;
  for (int n = 0; n < arrays; ++n) {
    if (!has(p, n)) continue;
    const size_t count = count_of(p, n);
    double size = n < 2 ? fmax(1, summand) : 1;
    for (size_t i = 0; i < count; ++i) size = fmax(size, fabs((*nth(&right, n))[i]));
    const double allowed = 2 * largest_error(*nth(&plain, n), *nth(&right, n), count) +
                           4.0 * (double)(c->key_size + c->value_size) * epsilon * size;
    const double error = largest_error(*nth(&tested, n), *nth(&right, n), count);
    EXPECT(error <= allowed && allowed < 1e-2 * size,
           "%s of form %d, decay %d, normalised %d, both %d, groups %d, states %d, n %d: error %g, allowed %g",
           names[n], c->form, c->decay, c->normalised, c->both, c->groups, p->states, (int)c->n, error, allowed);
  }
  free(begin);
  release(&given);
  release(&right);
  release(&plain);
  release(&tested);
}

/* Every combination. */
static void test_forms(int64_t batch, int64_t n, int64_t key_size, int64_t value_size) {
  int compared = 0;
  for (int32_t form = LONGSTRIDE_SUM; form <= LONGSTRIDE_DELTA; ++form)
    for (int32_t decay = LONGSTRIDE_NO_DECAY; decay <= LONGSTRIDE_DECAY_PER_CHANNEL; ++decay)
      for (int bits = 0; bits < 16; ++bits) {
        const struct scan_problem p = {{.struct_bytes = sizeof p.config,
                                        .batch = batch,
                                        .n = n,
                                        .heads = 2,
                                        .key_size = key_size,
                                        .value_size = value_size,
                                        .form = form,
                                        .decay = decay,
                                        .normalised = bits & 1,
                                        .both = bits >> 1 & 1,
                                        .groups = bits >> 2 & 1},
                                       bits >> 3};
        const int decays = decay != LONGSTRIDE_NO_DECAY;
        if ((form == LONGSTRIDE_SUM && decays) || (form == LONGSTRIDE_GATED && !decays)) continue;
        if (form == LONGSTRIDE_DELTA && p.config.normalised) continue;
        if (p.config.both && (form != LONGSTRIDE_SUM || p.states)) continue;
        for (int32_t dtype = LONGSTRIDE_F32; dtype <= LONGSTRIDE_F64; ++dtype) compare(&p, dtype);
        ++compared;
      }
  EXPECT(compared == 12 + 16 + 12, "%d combinations", compared);
}

static void expect_mistake(const char* sentence, struct longstride_scan_config config) {
  struct longstride_scan_plan* plan = NULL;
  EXPECT(longstride_scan_create(&config, &plan) == LONGSTRIDE_INVALID && plan == NULL, "%s", sentence);
  EXPECT(strcmp(longstride_last_error(), sentence) == 0, "'%s', not '%s'", longstride_last_error(), sentence);
}

static void test_mistakes_of_plans(void) {
  const struct longstride_scan_config good = {
      .struct_bytes = sizeof good, .batch = 1, .n = 4, .heads = 2, .key_size = 8, .value_size = 8};
  struct longstride_scan_config c = good;
#define MISTAKE(change, sentence) c = good, change, expect_mistake(sentence, c)
  MISTAKE(c.n = 0, "n is 0, but must be from 1 to 16777216");
  MISTAKE(c.form = 3, "form is 3, but must be from 0 to 2");
  MISTAKE(c.decay = -1, "decay is -1, but must be from 0 to 2");
  MISTAKE(c.decay = 1, "decay is 1, but the form sum takes none: the form gated does");
  MISTAKE(c.form = LONGSTRIDE_GATED, "decay is 0, but the form gated needs one, 1 per head or 2 per channel");
  MISTAKE((c.form = LONGSTRIDE_DELTA, c.normalised = 1), "normalised is 1, but must be 0 with the form delta");
  MISTAKE((c.form = LONGSTRIDE_DELTA, c.both = 1),
          "both is 1, but only the form sum has both directions: set form to 0");
  MISTAKE(c.groups = 2, "groups is 2, but must be 0 or 1");
  MISTAKE(c.dtype = LONGSTRIDE_F16, "dtype is f16, but the CPU computes in f32 and f64");
  MISTAKE(c.struct_bytes = 8,
          "struct_bytes of the config is 8, but must be 80: set it to sizeof, and use the header of "
          "version 0.1.0");
}

static void test_mistakes_of_calls(void) {
  const struct longstride_scan_config config = {.struct_bytes = sizeof config,
                                                .batch = 1,
                                                .n = 4,
                                                .heads = 2,
                                                .key_size = 8,
                                                .value_size = 8,
                                                .form = LONGSTRIDE_DELTA,
                                                .decay = LONGSTRIDE_DECAY_PER_HEAD,
                                                .groups = 1};
  struct longstride_scan_plan* plan = NULL;
  EXPECT(longstride_scan_create(&config, &plan) == LONGSTRIDE_OK, "%s", longstride_last_error());
  static float rows[64], o[64], decay[8], beta[8], nothing[8], state[2 * 8 * 8];
  int32_t begin[4] = {0, 0, 2, 2};
  unsigned char *kept_memory, *scratch_memory;
  struct longstride_scan_bytes bytes = {sizeof bytes, 0, 0, 0};
  EXPECT(longstride_scan_memory(plan, &bytes) == LONGSTRIDE_OK, "%s", longstride_last_error());
  const struct longstride_input in = input_of(rows, 4, 2, 8);
  const struct longstride_scan_forward_call good = {.struct_bytes = sizeof good,
                                                    .inputs = {in, in, in, decay, beta, begin},
                                                    .o = output_of(o, 4, 2, 8),
                                                    .kept = scratch_of(bytes.kept, &kept_memory),
                                                    .scratch = scratch_of(bytes.forward_scratch, &scratch_memory),
                                                    .scratch_bytes = bytes.forward_scratch};
  struct longstride_scan_forward_call call = good;
#define REFUSED(change, sentence)                                                     \
  call = good, change;                                                                \
  EXPECT(longstride_scan_forward(plan, &call) == LONGSTRIDE_INVALID, "%s", sentence); \
  EXPECT(strcmp(longstride_last_error(), sentence) == 0, "'%s', not '%s'", longstride_last_error(), sentence)
  REFUSED(call.inputs.decay = NULL, "decay is null, but must point to memory, because the plan has one");
  REFUSED(call.inputs.beta = NULL, "beta is null, but must point to memory, because the plan has one");
  REFUSED(call.inputs.begin = NULL, "begin is null, but must point to memory, because the plan has one");
  REFUSED(call.kept = NULL, "kept is null, but must point to memory, because the plan has one");
  REFUSED(decay[5] = 0.5f, "decay is 0.5 at element 5, but must be a logarithm of at most 0");
  REFUSED(decay[5] = NAN, "decay is nan at element 5, but must be a logarithm of at most 0");
  decay[5] = -INFINITY;
  REFUSED(beta[3] = 2.5f, "beta is 2.5 at element 3, but must be from 0 to 2");
  REFUSED(beta[3] = -1, "beta is -1 at element 3, but must be from 0 to 2");
  beta[3] = 2;
  REFUSED(begin[3] = 1, "begin of row 0 (position 3) is 1, but must be 3, or that of the position before it");
  begin[3] = 2;
  REFUSED(call.inputs.q.head_stride = -1,
          "q has strides 64, 16 and -1, but each must be at least 0 and the tensor below 2^58 elements");
  REFUSED(call.o.head_stride = 0,
          "o has strides 64, 16 and 0, with which elements share memory, but an output's must not");
  REFUSED(call.first_state = (const char*)nothing + 1, longstride_last_error());
  EXPECT(strstr(longstride_last_error(), "first_state is at ") != NULL, "%s", longstride_last_error());
  REFUSED(call.kept = (char*)good.kept + 4, longstride_last_error());
  EXPECT(strstr(longstride_last_error(), "but must be aligned to 64 bytes") != NULL, "%s", longstride_last_error());
  call = good, call.last_state = state;
  EXPECT(longstride_scan_forward(plan, &call) == LONGSTRIDE_OK, "%s", longstride_last_error());
  EXPECT(longstride_scan_forward(NULL, &call) == LONGSTRIDE_INVALID &&
             strstr(longstride_last_error(), "longstride_scan_create") != NULL,
         "%s", longstride_last_error());
  free(kept_memory);
  free(scratch_memory);
  longstride_scan_destroy(plan);
}

int main(void) {
  test_forms(2, 9, 16, 16);
  test_forms(1, 150, 33, 7);
  test_forms(1, 260, 4, 6);
  test_forms(1, 1, 5, 3);
  test_mistakes_of_plans();
  test_mistakes_of_calls();
  if (failures == 0) printf("passed\n");
  return failures != 0;
}
