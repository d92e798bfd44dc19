/* Every pattern from C, forward and backward on the CPU, against a naive computation in long double. An error may be
   twice the largest of a naive computation in the type under test, and the rounding of a few terms. */
#include <stddef.h>

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

static struct array array_of(int64_t batch, int64_t rows, int64_t heads, int64_t size, int32_t dtype,
                             enum layout layout) {
  const int64_t row = layout == packed ? 2 * size + 3 : size, width = layout == apart ? size : row;
  struct array a = {dtype, NULL, 0, {0, 0, 0}, {batch, rows, heads, size}};
  a.stride[2] = layout == heads_first ? rows * width : width;
  a.stride[1] = layout == heads_first ? width : heads * width;
  a.stride[0] = rows * heads * width;
  a.bytes = (size_t)(batch * a.stride[0] + 2) * sizeof(double);
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

enum tensor { q, k, v, dout, o, dq, dk, dv, tensors };
static int has_query_rows(int x) { return x == q || x == dout || x == o || x == dq; }
static int has_key_size(int x) { return x == q || x == k || x == dq || x == dk; }
static size_t elements_of(const struct problem* p, int x) {
  return has_query_rows(x) ? (has_key_size(x) ? q_of(p) : o_of(p)) : (has_key_size(x) ? k_of(p) : v_of(p));
}

/* A caller whose header ends before a member: what follows it must not be read. */
#define AS_BEFORE(given, member)                                                                         \
  do {                                                                                                   \
    const size_t first = offsetof(__typeof__(given), member);                                            \
    memset((unsigned char*)&(given) + first, mark, sizeof(given) - first), (given).struct_bytes = first; \
  } while (0)

static struct longstride_plan* plan_of(const struct problem* p, int32_t dtype, int old) {
  struct longstride_pattern pattern = *p->pattern;
  struct longstride_plan_config config = {.struct_bytes = sizeof config,
                                          .pattern = &pattern,
                                          .batch = p->batch,
                                          .n = p->n,
                                          .heads = p->heads,
                                          .key_size = p->key_size,
                                          .value_size = p->value_size,
                                          .dtype = dtype,
                                          .queries = p->queries,
                                          .bounds = p->bounds,
                                          .sink = p->sink != NULL,
                                          .bounds_heads = p->bounds_heads,
                                          .block = p->block,
                                          .list_heads = p->heads,
                                          .list_entries = p->list_entries,
                                          .labels = p->labels,
                                          .clip = p->clip,
                                          .labels_from_end = p->labels_from_end,
                                          .label_groups = p->query_groups != NULL,
                                          .shared_labels = p->labels > 0 && p->tables == 1};
  if (old) {
    AS_BEFORE(pattern, direction);
    AS_BEFORE(config, queries);
  }
  struct longstride_plan* plan = NULL;
  EXPECT(longstride_attention_create(&config, &plan) == LONGSTRIDE_OK, "%s", longstride_last_error());
  return plan;
}

/* By the library: from numbers to numbers, through arrays of the layout. */
static void run(const struct problem* p, int32_t dtype, enum layout layout, int old, double* input[4],
                struct naive_result* r) {
  struct longstride_plan* plan = plan_of(p, dtype, old);
  if (plan == NULL) return;
  struct longstride_memory memory = {sizeof memory, 0, 0, 0};
  EXPECT(longstride_attention_memory(plan, &memory) == LONGSTRIDE_OK, "%s", longstride_last_error());
  EXPECT(memory.lse == rows_of(p) * width_of(dtype), "%zu", memory.lse);

  struct array arrays[tensors];
  double* numbers_of[tensors] = {input[0], input[1], input[2], input[3], r->o, r->dq, r->dk, r->dv};
  for (int x = 0; x < tensors; ++x) {
    const int64_t rows = has_query_rows(x) ? queries_of(p) : p->n, size = has_key_size(x) ? p->key_size : p->value_size;
    arrays[x] = array_of(p->batch, rows, p->heads, size, dtype, layout);
    if (x <= dout) copy(&arrays[x], numbers_of[x], in);
  }
  struct array lse = array_of(p->batch, p->heads * queries_of(p), 1, 1, dtype, apart); /* (batch, heads, queries) */
  struct array sink = array_of(1, 1, 1, p->heads, dtype, apart), dsink = array_of(1, 1, 1, p->heads, dtype, apart);
  const int has_sink = p->sink != NULL;
  if (has_sink) copy(&sink, (double*)(uintptr_t)p->sink, in);
  copy(&dsink, r->dsink, in); /* zeros, to which the call adds */
  const int64_t row = (int64_t)table_of(p);
  struct array table = array_of(1, 1, 1, row, dtype, apart), dtable = array_of(1, 1, 1, row, dtype, apart);
  if (p->labels > 0) copy(&table, (double*)(uintptr_t)p->table, in);
  copy(&dtable, r->dtable, in);
  unsigned char *forward_memory, *backward_memory;
  void* forward_scratch = scratch_of(memory.forward_scratch, &forward_memory);
  void* backward_scratch = scratch_of(memory.backward_scratch, &backward_memory);
  struct longstride_forward_call forward = {.struct_bytes = sizeof forward,
                                            .q = input_of(&arrays[q]),
                                            .k = input_of(&arrays[k]),
                                            .v = input_of(&arrays[v]),
                                            .o = output_of(&arrays[o]),
                                            .lse = first_of(&lse),
                                            .scratch = forward_scratch,
                                            .scratch_bytes = memory.forward_scratch,
                                            .begin = p->begin,
                                            .end = p->end,
                                            .sink = has_sink ? first_of(&sink) : NULL,
                                            .key_begin = p->key_begin,
                                            .keys = p->keys,
                                            .table = p->labels > 0 ? first_of(&table) : NULL,
                                            .query_groups = p->query_groups,
                                            .key_groups = p->key_groups};
  if (old) AS_BEFORE(forward, begin);
  EXPECT(longstride_attention_forward(plan, &forward) == LONGSTRIDE_OK, "%s", longstride_last_error());
  struct longstride_backward_call backward = {.struct_bytes = sizeof backward,
                                              .q = input_of(&arrays[q]),
                                              .k = input_of(&arrays[k]),
                                              .v = input_of(&arrays[v]),
                                              .o = input_of(&arrays[o]),
                                              .lse = first_of(&lse),
                                              .dout = input_of(&arrays[dout]),
                                              .dq = output_of(&arrays[dq]),
                                              .dk = output_of(&arrays[dk]),
                                              .dv = output_of(&arrays[dv]),
                                              .scratch = backward_scratch,
                                              .scratch_bytes = memory.backward_scratch,
                                              .begin = p->begin,
                                              .end = p->end,
                                              .sink = has_sink ? first_of(&sink) : NULL,
                                              .dsink = has_sink ? first_of(&dsink) : NULL,
                                              .key_begin = p->key_begin,
                                              .keys = p->keys,
                                              .table = p->labels > 0 ? first_of(&table) : NULL,
                                              .query_groups = p->query_groups,
                                              .key_groups = p->key_groups,
                                              .dtable = p->labels > 0 ? first_of(&dtable) : NULL};
  if (old) AS_BEFORE(backward, begin);
  EXPECT(longstride_attention_backward(plan, &backward) == LONGSTRIDE_OK, "%s", longstride_last_error());
  longstride_attention_destroy(plan);

  free_scratch(forward_memory, forward_scratch, memory.forward_scratch);
  free_scratch(backward_memory, backward_scratch, memory.backward_scratch);
  copy(&lse, r->lse, out);
  copy(&dsink, r->dsink, out);
  copy(&dtable, r->dtable, out);
  expect_marks_and_free(lse.memory, lse.bytes, "lse");
  expect_marks_and_free(dsink.memory, dsink.bytes, "dsink");
  expect_marks_and_free(dtable.memory, dtable.bytes, "dtable");
  free(sink.memory);
  free(table.memory);
  for (int x = 0; x < tensors; ++x) {
    const size_t bytes = elements_of(p, x) * sizeof(double);
    double* after = malloc(bytes);
    copy(&arrays[x], x <= dout ? after : numbers_of[x], out);
    EXPECT(x > dout || memcmp(after, numbers_of[x], bytes) == 0, "input %d has changed", x);
    free(after);
    expect_marks_and_free(arrays[x].memory, arrays[x].bytes, "a tensor");
    free(arrays[x].memory);
  }
}

static void compare(const char* name, const struct problem* p, int32_t dtype, enum layout layout, int old) {
  uint64_t state = 1;
  double* input[4];
  for (int x = 0; x <= dout; ++x) input[x] = numbers(elements_of(p, x), &state);
  struct naive_result right = result_of(p), naive = result_of(p), tested = result_of(p);
  const struct naive_problem defined = {.batch = p->batch,
                                        .queries = queries_of(p),
                                        .keys = p->n,
                                        .heads = p->heads,
                                        .key_size = p->key_size,
                                        .value_size = p->value_size,
                                        .q = input[0],
                                        .k = input[1],
                                        .v = input[2],
                                        .dout = input[3],
                                        .distances = p->labels,
                                        .tables = p->tables,
                                        .table = p->table,
                                        .sink = p->sink,
                                        .ahead = 1,
                                        .weight = allowed,
                                        .label = label_of,
                                        .of = p};
  naive_attention(&defined, in_long_double, &right);
  naive_attention(&defined, dtype == LONGSTRIDE_F64 ? in_f64 : in_f32, &naive);
  run(p, dtype, layout, old, input, &tested);
  const double terms =
      4.0 * (double)(p->key_size + p->value_size) * (dtype == LONGSTRIDE_F64 ? DBL_EPSILON : FLT_EPSILON);
  const struct {
    const char* name;
    const double *right, *naive, *tested;
    size_t count;
  } checks[] = {{"o", right.o, naive.o, tested.o, o_of(p)},
                {"lse", right.lse, naive.lse, tested.lse, rows_of(p)},
                {"dq", right.dq, naive.dq, tested.dq, q_of(p)},
                {"dk", right.dk, naive.dk, tested.dk, k_of(p)},
                {"dv", right.dv, naive.dv, tested.dv, v_of(p)},
                {"dtable", right.dtable, naive.dtable, tested.dtable, table_of(p)},
                {"dsink", right.dsink, naive.dsink, tested.dsink, (size_t)p->heads}};
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

static int ascending(const void* a, const void* b) { return *(const int32_t*)a - *(const int32_t*)b; }

/* Documents of a length, shorter at the end, or drawn intervals, whose ends never fall, some of them empty. */
static void fill_bounds(struct problem* p, int32_t* begin, int32_t* end, uint64_t* state) {
  const int64_t rows = queries_of(p), length = 1 + p->n / 3;
  for (int64_t unit = 0; unit < p->batch * p->bounds_heads; ++unit, begin += rows, end += rows) {
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t beyond = (i / length + 1) * length;
      const int documents = p->bounds == LONGSTRIDE_DOCUMENTS;
      begin[i] = (int32_t)(documents ? i / length * length : (int64_t)((1 + next_number(state)) * (double)p->n / 2));
      end[i] = (int32_t)(documents ? (beyond < p->n ? beyond : p->n)
                                   : (int64_t)((1 + next_number(state)) * (double)p->n / 2));
    }
    qsort(begin, (size_t)rows, sizeof *begin, ascending);
    qsort(end, (size_t)rows, sizeof *end, ascending);
  }
}

/* Lists of every head, with about every second key block, some of them empty; returns their memory. */
static int32_t* list_blocks(struct problem* p, uint64_t* state) {
  const int64_t query_blocks = (queries_of(p) + 63) / 64, key_blocks = (p->n + 63) / 64;
  const int64_t begins = p->heads * (query_blocks + 1);
  p->block = 64, p->list_entries = query_blocks * key_blocks;
  int32_t *memory = malloc((size_t)(begins + p->heads * p->list_entries) * sizeof *memory), *begin = memory;
  p->key_begin = memory, p->keys = memory + begins;
  for (int64_t h = 0; h < p->heads; ++h, begin += query_blocks + 1) {
    int32_t* keys = memory + begins + h * p->list_entries;
    begin[0] = 0;
    for (int64_t b = 0; b < query_blocks; ++b) {
      begin[b + 1] = begin[b];
      for (int32_t c = 0; c < key_blocks; ++c)
        if (next_number(state) > -0.2) keys[begin[b + 1]++] = c;
    }
  }
  return memory;
}

/* The same with bounds, a sink, labels, and where the pattern allows it lists and other queries than keys, in turns. */
static void clamp(const char* name, const struct problem* plain, int32_t dtype, enum layout layout, int turn) {
  static const double sink[] = {0.5, -1.25, 2, 0};
  struct problem p = *plain;
  if (looks_ahead(p.pattern) && turn % 3 != 0) p.queries = turn % 3 == 1 ? (p.n + 1) / 2 : 2 * p.n + 3;
  p.bounds = turn % 4 == 3 ? LONGSTRIDE_NO_BOUNDS
                           : (p.queries == 0 && turn % 2 == 0 ? LONGSTRIDE_DOCUMENTS : LONGSTRIDE_INTERVALS);
  p.bounds_heads = turn % 5 < 2 ? p.heads : 1;
  const size_t count = (size_t)(p.batch * p.bounds_heads * queries_of(&p));
  int32_t *begin = malloc(count * sizeof *begin), *end = malloc(count * sizeof *end);
  uint64_t state = (uint64_t)turn;
  fill_bounds(&p, begin, end, &state);
  if (p.bounds != LONGSTRIDE_NO_BOUNDS) p.begin = begin, p.end = end;
  if (turn % 4 != 1) p.sink = sink;
  int32_t* lists = NULL;
  if (p.pattern->part_count == 1 && strcmp(p.pattern->parts[0], "dense") == 0) lists = list_blocks(&p, &state);
  p.labels_from_end = p.pattern->part_count == 1 && turn % 3 == 2;
  p.clip = p.labels_from_end ? 0 : turn % 5;
  const int sets = turn % 7 < 3 ? 2 : 1;
  p.labels = turn % 6 == 5 ? 0 : sets * (p.labels_from_end ? 1 + turn % 9 : 2 * p.clip + 1);
  p.tables = turn % 2 == 0 ? p.heads : 1;
  if (p.labels == 0) p.clip = p.labels_from_end = 0;
  int32_t* groups = malloc((size_t)(p.batch * (queries_of(&p) + p.n)) * sizeof *groups);
  for (int64_t x = 0; x < p.batch * (queries_of(&p) + p.n); ++x) groups[x] = (int32_t)(x * x % 3);
  if (p.labels > 0 && sets == 2) p.query_groups = groups, p.key_groups = groups + p.batch * queries_of(&p);
  double* table = numbers(table_of(&p) + 1, &state);
  p.table = table;
  compare(name, &p, dtype, layout, 0);
  free(lists);
  free(table);
  free(groups);
  free(begin);
  free(end);
}

/* Every pattern, over lengths that no tile divides, sizes of heads, types and layouts in turn. */
static int test_pattern(const char* name, const struct longstride_pattern* pattern, int turn) {
  static const int64_t lengths[] = {1, 5, 37, 130, 64}, sizes[][2] = {{8, 8}, {16, 24}, {33, 7}};
  for (size_t i = 0; i < sizeof lengths / sizeof *lengths; ++i, ++turn) {
    const int64_t* size = sizes[turn % 3];
    const int32_t one = turn % 2 == 0 ? LONGSTRIDE_F64 : LONGSTRIDE_F32, other = LONGSTRIDE_F64 - one;
    const int is_old = !looks_ahead(pattern) && pattern->first == 0;
    struct problem p = {.pattern = pattern,
                        .batch = 2,
                        .n = lengths[i],
                        .heads = 4,
                        .key_size = size[0],
                        .value_size = size[1],
                        .tables = 1};
    compare(name, &p, one, (enum layout)(turn % layouts), 0);
    compare(name, &p, other, apart, is_old);
    clamp(name, &p, one, (enum layout)(turn % layouts), turn);
  }
  return turn;
}

int main(void) {
  static const char *const strided[] = {"local", "column"}, *const fixed[] = {"fixed_block", "fixed_summary"},
                           *const cycle[] = {"column", "local", "dense"}, *const mixed[] = {"fixed_block", "column"},
                           *const summaries[] = {"local", "fixed_summary"}, *const streaming[] = {"local", "first"},
                           *const neighbours[] = {"block_window"};
  static const int64_t one[] = {3}, each[] = {2, 1, 7, 4};
  const size_t bytes = sizeof(struct longstride_pattern);
  const struct longstride_pattern patterns[] = {
      {bytes, "interleaved", cycle + 2, 1, 0, 0, NULL, 0, 0, 0, 0, NULL, 0, 0, 0, NULL, 0, NULL, 0},
      {bytes, "merged", cycle + 1, 1, 0, 11, NULL, 0, 0, 0, 0, NULL, 0, 0, 0, NULL, 0, NULL, 0},
      {bytes, "interleaved", cycle, 3, 7, 0, NULL, 0, 0, 0, 0, NULL, 0, 0, 0, NULL, 0, NULL, 0},
      {bytes, "interleaved", cycle, 3, 7, 0, NULL, 0, 0, 0, 1, NULL, 0, 0, 0, NULL, 0, NULL, 0},
      {bytes, "interleaved", cycle, 3, 7, 0, NULL, 0, 0, 0, 5, NULL, 0, 0, 0, NULL, 0, NULL, 0},
      {bytes, "interleaved", fixed, 2, 7, 0, one, 1, 0, 0, 1, NULL, 0, 0, 0, NULL, 0, NULL, 0},
      {bytes, "interleaved", fixed, 2, 16, 0, one, 1, 1, 1, 1, NULL, 0, 0, 0, NULL, 0, NULL, 0},
      {bytes, "merged", strided, 2, 16, 0, NULL, 0, 0, 0, 0, NULL, 0, 0, 0, NULL, 0, NULL, 0},
      {bytes, "merged", strided, 2, 7, 20, NULL, 0, 0, 0, 0, NULL, 0, 0, 0, NULL, 0, NULL, 0},
      {bytes, "merged", mixed, 2, 7, 0, NULL, 0, 0, 0, 0, NULL, 0, 0, 0, NULL, 0, NULL, 0},
      {bytes, "merged", fixed, 2, 16, 0, one, 1, 0, 0, 0, NULL, 0, 0, 0, NULL, 0, NULL, 0},
      {bytes, "merged", fixed, 2, 16, 0, one, 1, 1, 0, 0, NULL, 0, 0, 0, NULL, 0, NULL, 0},
      {bytes, "merged", fixed, 2, 7, 0, each, 4, 1, 1, 0, NULL, 0, 0, 0, NULL, 0, NULL, 0},
      {bytes, "merged", summaries, 2, 7, 0, each, 4, 0, 0, 0, NULL, 0, 0, 0, NULL, 0, NULL, 0},
      {bytes, "multihead", strided, 2, 7, 0, NULL, 0, 0, 0, 0, NULL, 0, 0, 0, NULL, 0, NULL, 0},
      {bytes, "multihead", fixed, 2, 16, 0, one, 1, 0, 1, 0, NULL, 0, 0, 0, NULL, 0, NULL, 0},
      {bytes, "merged", strided, 2, 1000, 0, NULL, 0, 0, 0, 0, NULL, 0, 0, 0, NULL, 0, NULL, 0},
      {bytes, "interleaved", cycle + 2, 1, 0, 0, NULL, 0, 0, 0, 0, "both", 0, 0, 0, NULL, 0, NULL, 0},
      {bytes, "interleaved", cycle + 1, 1, 0, 11, NULL, 0, 0, 0, 0, "both", 0, 0, 0, NULL, 0, NULL, 0},
      {bytes, "merged", strided, 2, 16, 0, NULL, 0, 0, 0, 0, "both", 0, 0, 0, NULL, 0, NULL, 0},
      {bytes, "multihead", strided, 2, 16, 0, NULL, 0, 0, 0, 0, "both", 0, 0, 0, NULL, 0, NULL, 0},
      {bytes, "merged", fixed, 2, 7, 0, each, 4, 1, 1, 0, "both", 0, 0, 0, NULL, 0, NULL, 0},
      {bytes, "merged", streaming, 2, 0, 11, NULL, 0, 0, 0, 0, "past", 4, 0, 0, NULL, 0, NULL, 0},
      {bytes, "merged", neighbours, 1, 0, 0, NULL, 0, 0, 0, 0, "both", 0, 20, 0, NULL, 0, NULL, 0},
      {bytes, "merged", streaming, 2, 0, 11, NULL, 0, 0, 0, 0, "both", 4, 0, 0, NULL, 0, NULL, 0},
  };
  int turn = 0;
  for (size_t i = 0; i < sizeof patterns / sizeof *patterns; ++i) {
    char name[64];
    snprintf(name, sizeof name, "pattern %zu (%s)", i, patterns[i].integration);
    turn = test_pattern(name, &patterns[i], turn);
  }
  printf("%d comparisons, %d failures\n", 3 * turn, failures);
  return failures == 0 && turn > 80 ? EXIT_SUCCESS : EXIT_FAILURE;
}
