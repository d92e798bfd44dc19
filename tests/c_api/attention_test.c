/* Every pattern from C, forward and backward on the CPU, against a naive computation in long double. An error may be
   twice the largest of a naive computation in the type under test, and the rounding of a few terms. */
#include "tests/c_api/problem.h"

/* Where the arrays of a call are. */
enum layout { apart, packed, heads_first, layouts };

/* The elements of a tensor inside of memory that ends, on both sides and between rows, in a mark. */
struct array {
  int32_t dtype;
  unsigned char* memory;
  size_t bytes;
  int64_t stride[3], size[4];
};
static const unsigned char mark = 0xa5;

static struct array array_of(const struct problem* p, int64_t size, int32_t dtype, enum layout layout) {
  const int64_t row = layout == packed ? 2 * size + 3 : size, width = layout == apart ? size : row;
  struct array a = {dtype, NULL, 0, {0, 0, 0}, {p->batch, p->n, p->heads, size}};
  a.stride[2] = layout == heads_first ? p->n * width : width;
  a.stride[1] = layout == heads_first ? width : p->heads * width;
  a.stride[0] = p->n * p->heads * width;
  a.bytes = (size_t)(p->batch * a.stride[0] + 2) * sizeof(double);
  a.memory = malloc(a.bytes);
  memset(a.memory, mark, a.bytes);
  return a;
}
static size_t width_of(int32_t dtype) { return dtype == LONGSTRIDE_F64 ? sizeof(double) : sizeof(float); }
static unsigned char* first_of(const struct array* a) { return a->memory + sizeof(double); }
static unsigned char* element(const struct array* a, int64_t b, int64_t i, int64_t h, int64_t d) {
  return first_of(a) + (size_t)(b * a->stride[0] + i * a->stride[1] + h * a->stride[2] + d) * width_of(a->dtype);
}

/* Copies between an array and plain numbers; copying out overwrites elements with marks. */
enum direction { in, out };
static void copy(struct array* a, double* x, enum direction direction) {
  for (int64_t b = 0; b < a->size[0]; ++b)
    for (int64_t i = 0; i < a->size[1]; ++i)
      for (int64_t h = 0; h < a->size[2]; ++h)
        for (int64_t d = 0; d < a->size[3]; ++d, ++x) {
          unsigned char* to = element(a, b, i, h, d);
          const float single = (float)*x;
          if (direction == in) {
            memcpy(to, a->dtype == LONGSTRIDE_F64 ? (const void*)x : (const void*)&single, width_of(a->dtype));
          } else {
            float found;
            if (a->dtype == LONGSTRIDE_F64)
              memcpy(x, to, sizeof *x);
            else
              memcpy(&found, to, sizeof found), *x = (double)found;
            memset(to, mark, width_of(a->dtype));
          }
        }
}
static void expect_marks_and_free(const unsigned char* memory, size_t bytes, const char* what) {
  size_t changed = 0;
  for (size_t i = 0; i < bytes; ++i) changed += memory[i] != mark;
  EXPECT(changed == 0, "%zu bytes around %s have changed", changed, what);
}
static struct longstride_input input_of(const struct array* a) {
  struct longstride_input view = {first_of(a), a->stride[0], a->stride[1], a->stride[2]};
  return view;
}
static struct longstride_output output_of(const struct array* a) {
  struct longstride_output view = {first_of(a), a->stride[0], a->stride[1], a->stride[2]};
  return view;
}

static void* scratch_of(size_t bytes, unsigned char** memory) {
  *memory = malloc(bytes + 256);
  memset(*memory, mark, bytes + 256);
  return *memory + 64 + (64 - (uintptr_t)*memory % 64);
}
static void free_scratch(unsigned char* memory, const void* scratch, size_t bytes) {
  const unsigned char* begin = scratch;
  expect_marks_and_free(memory, (size_t)(begin - memory), "scratch");
  expect_marks_and_free(begin + bytes, 256 - (size_t)(begin - memory), "scratch");
  free(memory);
}

/* By the library: from numbers to numbers, through arrays of the layout. */
static void run(const struct problem* p, int32_t dtype, enum layout layout, double* input[4], struct naive_result* r) {
  struct longstride_plan_config config = {sizeof config, p->pattern,    p->batch, p->n,  p->heads,
                                          p->key_size,   p->value_size, 0,        dtype, LONGSTRIDE_CPU};
  struct longstride_plan* plan = NULL;
  EXPECT(longstride_attention_create(&config, &plan) == LONGSTRIDE_OK, "%s", longstride_last_error());
  if (plan == NULL) return;
  struct longstride_memory memory = {sizeof memory, 0, 0, 0};
  EXPECT(longstride_attention_memory(plan, &memory) == LONGSTRIDE_OK, "%s", longstride_last_error());
  EXPECT(memory.lse == rows_of(p) * width_of(dtype), "%zu", memory.lse);

  enum { q, k, v, dout, o, dq, dk, dv, count };
  struct array arrays[count];
  double* numbers_of[count] = {input[0], input[1], input[2], input[3], r->o, r->dq, r->dk, r->dv};
  for (int x = 0; x < count; ++x) {
    const int of_keys = x == q || x == k || x == dq || x == dk;
    arrays[x] = array_of(p, of_keys ? p->key_size : p->value_size, dtype, layout);
    if (x <= dout) copy(&arrays[x], numbers_of[x], in);
  }
  struct problem sums = *p; /* lse is (batch, heads, n) */
  sums.n = p->heads * p->n;
  sums.heads = 1;
  struct array lse = array_of(&sums, 1, dtype, apart);
  unsigned char *forward_memory, *backward_memory;
  void* forward_scratch = scratch_of(memory.forward_scratch, &forward_memory);
  void* backward_scratch = scratch_of(memory.backward_scratch, &backward_memory);
  struct longstride_forward_call forward = {sizeof forward,       input_of(&arrays[q]),   input_of(&arrays[k]),
                                            input_of(&arrays[v]), output_of(&arrays[o]),  first_of(&lse),
                                            forward_scratch,      memory.forward_scratch, NULL};
  EXPECT(longstride_attention_forward(plan, &forward) == LONGSTRIDE_OK, "%s", longstride_last_error());
  struct longstride_backward_call backward = {sizeof backward,
                                              input_of(&arrays[q]),
                                              input_of(&arrays[k]),
                                              input_of(&arrays[v]),
                                              input_of(&arrays[o]),
                                              first_of(&lse),
                                              input_of(&arrays[dout]),
                                              output_of(&arrays[dq]),
                                              output_of(&arrays[dk]),
                                              output_of(&arrays[dv]),
                                              backward_scratch,
                                              memory.backward_scratch,
                                              NULL};
  EXPECT(longstride_attention_backward(plan, &backward) == LONGSTRIDE_OK, "%s", longstride_last_error());
  longstride_attention_destroy(plan);

  free_scratch(forward_memory, forward_scratch, memory.forward_scratch);
  free_scratch(backward_memory, backward_scratch, memory.backward_scratch);
  copy(&lse, r->lse, out);
  expect_marks_and_free(lse.memory, lse.bytes, "lse");
  free(lse.memory);
  for (int x = 0; x < count; ++x) {
    const size_t bytes = (x == v || x == dout ? values_of(p) : keys_of(p)) * sizeof(double);
    double* after = malloc(bytes);
    copy(&arrays[x], x <= dout ? after : numbers_of[x], out);
    EXPECT(x > dout || memcmp(after, numbers_of[x], bytes) == 0, "input %d has changed", x);
    free(after);
    expect_marks_and_free(arrays[x].memory, arrays[x].bytes, "a tensor");
    free(arrays[x].memory);
  }
}

static void compare(const char* name, const struct problem* p, int32_t dtype, enum layout layout) {
  uint64_t state = 1;
  double* input[4] = {numbers(keys_of(p), &state), numbers(keys_of(p), &state), numbers(values_of(p), &state),
                      numbers(values_of(p), &state)};
  struct naive_result right = result_of(p), naive = result_of(p), tested = result_of(p);
  const struct naive_problem defined = {.batch = p->batch,
                                        .both = p->pattern->direction == LONGSTRIDE_BOTH,
                                        .queries = p->n,
                                        .keys = p->n,
                                        .heads = p->heads,
                                        .key_size = p->key_size,
                                        .value_size = p->value_size,
                                        .q = input[0],
                                        .k = input[1],
                                        .v = input[2],
                                        .dout = input[3],
                                        .tables = 1,
                                        .weight = allowed,
                                        .of = p};
  naive_attention(&defined, in_long_double, &right);
  naive_attention(&defined, dtype == LONGSTRIDE_F64 ? in_f64 : in_f32, &naive);
  run(p, dtype, layout, input, &tested);
  const double terms =
      4.0 * (double)(p->key_size + p->value_size) * (dtype == LONGSTRIDE_F64 ? DBL_EPSILON : FLT_EPSILON);
  const struct {
    const char* name;
    const double *right, *naive, *tested;
    size_t count;
  } checks[] = {{"o", right.o, naive.o, tested.o, values_of(p)},
                {"lse", right.lse, naive.lse, tested.lse, rows_of(p)},
                {"dq", right.dq, naive.dq, tested.dq, keys_of(p)},
                {"dk", right.dk, naive.dk, tested.dk, keys_of(p)},
                {"dv", right.dv, naive.dv, tested.dv, values_of(p)}};
  for (size_t c = 0; c < sizeof checks / sizeof *checks; ++c) {
    const double allowed_error = 2 * largest_error(checks[c].naive, checks[c].right, checks[c].count) + terms;
    const double error = largest_error(checks[c].tested, checks[c].right, checks[c].count);
    EXPECT(error <= allowed_error && allowed_error < 1e-3, "%s of %s, n %lld: error %g, allowed %g", checks[c].name,
           name, (long long)p->n, error, allowed_error);
  }
  for (int x = 0; x < 4; ++x) free(input[x]);
  free_result(&right);
  free_result(&naive);
  free_result(&tested);
}

/* Every pattern, over lengths that no tile divides, sizes of heads, types and layouts in turn. */
static int test_pattern(const char* name, const struct longstride_pattern* pattern, int turn) {
  static const int64_t lengths[] = {1, 5, 37, 130, 64}, sizes[][2] = {{8, 8}, {16, 24}, {33, 7}};
  for (size_t i = 0; i < sizeof lengths / sizeof *lengths; ++i, ++turn) {
    const int64_t* size = sizes[turn % 3];
    const struct problem p = {pattern, 2, lengths[i], 4, size[0], size[1]};
    compare(name, &p, turn % 2 == 0 ? LONGSTRIDE_F64 : LONGSTRIDE_F32, (enum layout)(turn % layouts));
    compare(name, &p, turn % 2 == 0 ? LONGSTRIDE_F32 : LONGSTRIDE_F64, apart);
  }
  return turn;
}

int main(void) {
  static const char *const strided[] = {"local", "column"}, *const fixed[] = {"fixed_block", "fixed_summary"},
                           *const cycle[] = {"column", "local", "dense"}, *const mixed[] = {"fixed_block", "column"},
                           *const summaries[] = {"local", "fixed_summary"}, *const streaming[] = {"local", "first"};
  static const int64_t one[] = {3}, each[] = {2, 1, 7, 4};
  const size_t bytes = sizeof(struct longstride_pattern);
  const struct longstride_pattern patterns[] = {
      {bytes, "interleaved", cycle + 2, 1, 0, 0, NULL, 0, 0, 0, 0, 0, 0},
      {bytes, "merged", cycle + 1, 1, 0, 11, NULL, 0, 0, 0, 0, 0, 0},
      {bytes, "interleaved", cycle, 3, 7, 0, NULL, 0, 0, 0, 0, 0, 0},
      {bytes, "interleaved", cycle, 3, 7, 0, NULL, 0, 0, 0, 1, 0, 0},
      {bytes, "interleaved", cycle, 3, 7, 0, NULL, 0, 0, 0, 5, 0, 0},
      {bytes, "interleaved", fixed, 2, 7, 0, one, 1, 0, 0, 1, 0, 0},
      {bytes, "interleaved", fixed, 2, 16, 0, one, 1, 1, 1, 1, 0, 0},
      {bytes, "merged", strided, 2, 16, 0, NULL, 0, 0, 0, 0, 0, 0},
      {bytes, "merged", strided, 2, 7, 20, NULL, 0, 0, 0, 0, 0, 0},
      {bytes, "merged", mixed, 2, 7, 0, NULL, 0, 0, 0, 0, 0, 0},
      {bytes, "merged", fixed, 2, 16, 0, one, 1, 0, 0, 0, 0, 0},
      {bytes, "merged", fixed, 2, 16, 0, one, 1, 1, 0, 0, 0, 0},
      {bytes, "merged", fixed, 2, 7, 0, each, 4, 1, 1, 0, 0, 0},
      {bytes, "merged", summaries, 2, 7, 0, each, 4, 0, 0, 0, 0, 0},
      {bytes, "multihead", strided, 2, 7, 0, NULL, 0, 0, 0, 0, 0, 0},
      {bytes, "multihead", fixed, 2, 16, 0, one, 1, 0, 1, 0, 0, 0},
      {bytes, "merged", strided, 2, 1000, 0, NULL, 0, 0, 0, 0, 0, 0},
      {bytes, "merged", streaming, 2, 0, 9, NULL, 0, 0, 0, 0, 4, 0},
      {bytes, "merged", streaming, 2, 0, 9, NULL, 0, 0, 0, 0, 4, LONGSTRIDE_BOTH},
      {bytes, "merged", strided, 2, 16, 0, NULL, 0, 0, 0, 0, 0, LONGSTRIDE_BOTH},
      {bytes, "merged", fixed, 2, 7, 0, each, 4, 1, 1, 0, 0, LONGSTRIDE_BOTH},
  };
  int turn = 0;
  for (size_t i = 0; i < sizeof patterns / sizeof *patterns; ++i) {
    char name[64];
    snprintf(name, sizeof name, "pattern %zu (%s)", i, patterns[i].integration);
    turn = test_pattern(name, &patterns[i], turn);
  }
  printf("%d comparisons, %d failures\n", 2 * turn, failures);
  return failures == 0 && turn > 80 ? EXIT_SUCCESS : EXIT_FAILURE;
}
