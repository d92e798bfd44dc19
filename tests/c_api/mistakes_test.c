/* What a caller in C may get wrong: every mistake has a status and a sentence, and nothing is written. */
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/c_api/attention.h"
#include "tests/c_api/expect.h"

static const char* const fixed[] = {"fixed_block", "fixed_summary"};
static const int64_t width[] = {2, 200};
static struct longstride_pattern pattern;
static struct longstride_plan_config config;
static float q[256], k[256], v[256], o[256], lse[64];
static unsigned char scratch_memory[1 << 22];
static char text[512];
#define TEXT(...) (snprintf(text, sizeof text, __VA_ARGS__), text)
static struct longstride_forward_call call;
static struct longstride_backward_call back;

/* A plan and calls without a mistake: 2 sequences of 8 positions, 2 heads of 4. */
static void reset(void) {
  const struct longstride_pattern p = {.struct_bytes = sizeof p,
                                       .integration = "merged",
                                       .parts = fixed,
                                       .part_count = 2,
                                       .stride = 4,
                                       .summary = width,
                                       .summary_count = 1};
  const struct longstride_plan_config c = {
      .struct_bytes = sizeof c, .pattern = &pattern, .batch = 2, .n = 8, .heads = 2, .key_size = 4, .value_size = 4};
  const struct longstride_input in_q = {q, 64, 8, 4}, in_k = {k, 64, 8, 4}, in_v = {v, 64, 8, 4};
  const struct longstride_output out = {o, 64, 8, 4};
  unsigned char* scratch = scratch_memory + (64 - (uintptr_t)scratch_memory % 64);
  pattern = p;
  config = c;
  const struct longstride_forward_call f = {.struct_bytes = sizeof f,
                                            .q = in_q,
                                            .k = in_k,
                                            .v = in_v,
                                            .o = out,
                                            .lse = lse,
                                            .scratch = scratch,
                                            .scratch_bytes = 1 << 21};
  const struct longstride_output dq = {q, 64, 8, 4}, dk = {k, 64, 8, 4}, dv = {v, 64, 8, 4};
  const struct longstride_backward_call b = {.struct_bytes = sizeof b,
                                             .q = in_q,
                                             .k = in_k,
                                             .v = in_v,
                                             .o = {o, 64, 8, 4},
                                             .lse = lse,
                                             .dout = {o, 64, 8, 4},
                                             .dq = dq,
                                             .dk = dk,
                                             .dv = dv,
                                             .scratch = scratch,
                                             .scratch_bytes = 1 << 21};
  call = f;
  back = b;
}

static void expect(enum longstride_status status, enum longstride_status expected, const char* sentence, int line) {
  EXPECT(status == expected, "line %d: %d, %s", line, (int)status, longstride_last_error());
  EXPECT(strcmp(longstride_last_error(), sentence) == 0, "line %d: '%s' instead of '%s'", line, longstride_last_error(),
         sentence);
}

/* A change to the pattern or config, and what creating the plan then says. */
static void refuses_plan(enum longstride_status expected, const char* sentence, int line) {
  struct longstride_plan* plan = (struct longstride_plan*)&config;
  expect(longstride_attention_create(&config, &plan), expected, sentence, line);
  EXPECT(plan == NULL, "line %d", line);
  reset();
}
#define REFUSES(change, sentence)                         \
  do {                                                    \
    change;                                               \
    refuses_plan(LONGSTRIDE_INVALID, sentence, __LINE__); \
  } while (0)

static void test_patterns(void) {
  static const char* const wrong[] = {"dense", "diagonal"};
  static const char* const none[] = {NULL};
  REFUSES(config.pattern = NULL, "the pattern is null, but must be given");
  REFUSES(pattern.struct_bytes = 8,
          TEXT("struct_bytes of the pattern is 8, but must be %zu: set it to sizeof, and use the header of version %s",
               sizeof pattern, longstride_version()));
  REFUSES(pattern.integration = "both", "integration is 'both', but must be one of interleaved, merged, multihead");
  static const char name[] = "0123456789012345678901234567890123456789012345678901234567890123456789";
  static const char* const names[] = {name};
  REFUSES(pattern.integration = name + 6,
          TEXT("integration is '%s', but must be one of interleaved, merged, multihead", name + 6));
  REFUSES(pattern.integration = name + 5,
          TEXT("integration is '%.64s...', but must be one of interleaved, merged, multihead", name + 5));
  REFUSES(
      (pattern.parts = names, pattern.part_count = 1),
      TEXT("parts has '%.64s...', but must name dense, local, column, fixed_block, fixed_summary, first, block_window, "
           "dilated or shifted_block",
           name));
  /* Bytes that a terminal would obey, and a character of two bytes, 64 of which would end in the middle of one. */
  static const char strange[] = "\x1b[31m0123456789012345678901234567890123456789012345678901234567\xc3\xa4\xc3\xa4";
  REFUSES(pattern.integration = strange,
          "integration is '?[31m0123456789012345678901234567890123456789012345678901234567...', but must be one of "
          "interleaved, merged, multihead");
  REFUSES(pattern.parts = wrong,
          "parts has 'diagonal', but must name dense, local, column, fixed_block, fixed_summary, first, block_window, "
          "dilated or shifted_block");
  REFUSES((pattern.parts = none, pattern.part_count = 1),
          "parts has '', but must name dense, local, column, fixed_block, fixed_summary, first, block_window, "
          "dilated or shifted_block");
  REFUSES(pattern.parts = NULL, "parts is null, but part_count is 2");
  REFUSES(pattern.part_count = (size_t)-1, "parts has 18446744073709551615 names, but must have at most 4096");
  REFUSES(pattern.part_count = 0,
          "parts is empty, but must name at least one of dense, local, column, fixed_block, fixed_summary, first, "
          "block_window, dilated, random_blocks, shifted_block");
  REFUSES(pattern.stride = 0, "stride is 0, but fixed_block needs a positive number of positions");
  REFUSES(pattern.stride = -1, "stride is -1, but must be from 0 to 16777216");
  REFUSES(pattern.window = INT64_MAX, "window is 9223372036854775807, but must be from 0 to 16777216");
  REFUSES(pattern.layer = -1, "layer is -1, but must be from 0 to 2147483647");
  REFUSES(pattern.layer = INT64_MAX, "layer is 9223372036854775807, but must be from 0 to 2147483647");
  REFUSES(pattern.summary = width + 1, "summary is 200, but must be at most the stride 4");
  REFUSES(pattern.summary_count = 0,
          "summary is not set, but fixed_summary needs the number of summary positions in each block");
  REFUSES(pattern.summary = NULL, "summary is null, but summary_count is 1");
  REFUSES(pattern.summary_count = 3, "summary has 3 widths, but must have none, one, or one for each of 2 heads");
  static const int64_t many[] = {1, 1, 1};
  static const char* const dilated[] = {"dilated"};
  REFUSES((pattern.dilation = many, pattern.dilation_count = 3), "dilation has 3 numbers, but must have at most 2");
  REFUSES(pattern.shift_count = 1, "shifts is null, but shift_count is 1");
  REFUSES(pattern.block = -1, "block is -1, but must be from 0 to 16777216");
  REFUSES((pattern.parts = dilated, pattern.part_count = 1, pattern.window = 3),
          "dilation lists 0 distances, but must be one distance or one for each of 2 heads");
  REFUSES(pattern.distinct_heads = 2, "distinct_heads is 2, but must be 0 or 1");
  REFUSES(pattern.summary_inclusive = -1, "summary_inclusive is -1, but must be 0 or 1");
  REFUSES(pattern.direction = "ahead", "direction is 'ahead', but must be past or both");
  static const char* const streaming[] = {"local", "first"};
  REFUSES((pattern.parts = streaming, pattern.direction = "both", pattern.first = 1, pattern.window = 4),
          "window is 4, but direction both needs an odd number of keys, as many behind a position as ahead");
  REFUSES(pattern.parts = streaming, "first is 0, but the part first needs a positive number of keys");
  REFUSES(pattern.first = -1, "first is -1, but must be from 0 to 16777216");
}

static void test_configs(void) {
  REFUSES(
      config.struct_bytes = 0,
      TEXT(
          "struct_bytes of the plan's config is 0, but must be %zu: set it to sizeof, and use the header of version %s",
          sizeof config, longstride_version()));
  REFUSES(config.batch = -1, "batch is -1, but must be from 0 to 281474976710656");
  REFUSES(config.batch = (int64_t)1 << 47,
          "batch * n * heads is 140737488355328 * 8 * 2, but must be at most 70368744177664");
  REFUSES(config.n = 0, "n is 0, but must be from 1 to 16777216");
  REFUSES(config.n = ((int64_t)1 << 24) + 1, "n is 16777217, but must be from 1 to 16777216");
  REFUSES(config.heads = 0, "heads is 0, but must be from 1 to 32767");
  REFUSES(config.key_size = 0, "key_size is 0, but must be from 1 to 65536");
  REFUSES(config.value_size = 65537, "value_size is 65537, but must be from 1 to 65536");
  REFUSES(config.scale = -0.5, "scale is -0.5, but must be a positive number, or 0 for 1 / sqrt(key_size)");
  REFUSES(config.scale = NAN, "scale is nan, but must be a positive number, or 0 for 1 / sqrt(key_size)");
  REFUSES(config.dtype = 4, "dtype is 4, but must be one of enum longstride_dtype, from 0 to 3");
  REFUSES(config.dtype = LONGSTRIDE_BF16, "dtype is bf16, but the CPU computes in f32 and f64");
  REFUSES(config.device = 2, "device is 2, but must be LONGSTRIDE_CPU (0) or LONGSTRIDE_CUDA_DEVICE (1)");
  config.device = LONGSTRIDE_CUDA_DEVICE;
  if (longstride_has_cuda()) {
    REFUSES(config.key_size = 129, "key_size is 129, but must be from 1 to 128");
    config.device = LONGSTRIDE_CUDA_DEVICE;
    REFUSES(config.dtype = LONGSTRIDE_F64, "dtype is f64, but a GPU computes in f32, bf16 and f16");
  } else {
    refuses_plan(LONGSTRIDE_UNSUPPORTED,
                 "this build of longstride_attention has no CUDA kernels: use LONGSTRIDE_CPU, or build where the CUDA "
                 "toolkit is installed",
                 __LINE__);
  }
  REFUSES(config.queries = 5,
          "queries is 5, but a pattern of the past has as many queries as keys, 8, or 1, the last: set direction to both");
  REFUSES(config.queries = -1, "queries is -1, but must be from 1 to 16777216");
  REFUSES((config.queries = 5, pattern.direction = "both", config.bounds = LONGSTRIDE_DOCUMENTS),
          "queries is 5, but documents have as many queries as keys, 8");
  REFUSES(config.key_heads = 3, "key_heads is 3, but must be from 1 to 2");
  REFUSES((config.heads = 4, config.key_heads = 3), "key_heads is 3, but must divide heads, 4");
  REFUSES(config.bounds = 3, "bounds is 3, but must be from 0 to 2");
  REFUSES(config.bounds_heads = 3, "bounds_heads is 3, but must be 1 or heads, 2");
  REFUSES(config.block = 96, "block is 96, but must be a multiple of 64, or 0 for no lists");
  REFUSES((config.block = 64, config.list_heads = 3), "list_heads is 3, but must be 1 or heads, 2");
  REFUSES((config.block = 64, config.list_batch = 3), "list_batch is 3, but must be 1 or batch, 2");
  REFUSES(config.sink = 2, "sink is 2, but must be 0 or 1");
  REFUSES(config.labels = -1, "labels is -1, but must be from 0 to 65536");
  REFUSES((config.labels = 7, config.clip = 4), "labels is 7, but must be 9 with clip 4 and no groups");
  REFUSES((config.labels = 9, config.clip = 4, config.label_groups = 1),
          "labels is 9, but must be 18 with clip 4 and groups");
  REFUSES(config.clip = -1, "clip is -1, but must be from 0 to 65536");
  REFUSES((config.labels = 3, config.clip = 1, config.labels_from_end = 1), "clip is 1, but must be from 0 to 0");
  REFUSES((config.labels = 3, config.label_groups = 1, config.labels_from_end = 1),
          "labels is 3, but must be a positive multiple of 2");
  REFUSES(config.shared_labels = 1, "labels is 0, but must be 1 with clip 0 and no groups");
  REFUSES(config.label_groups = 2, "label_groups is 2, but must be 0 or 1");
  expect(longstride_attention_create(NULL, NULL), LONGSTRIDE_INVALID,
         "plan is null, but must be where the plan is to be kept", __LINE__);
}

#define REFUSES_CALL(change, sentence)                                                         \
  do {                                                                                         \
    change;                                                                                    \
    expect(longstride_attention_forward(plan, &call), LONGSTRIDE_INVALID, sentence, __LINE__); \
    reset();                                                                                   \
  } while (0)

static void test_calls(const struct longstride_plan* plan) {
  struct longstride_memory memory = {sizeof memory, 0, 0, 0};
  EXPECT(longstride_attention_memory(plan, &memory) == LONGSTRIDE_OK, "%s", longstride_last_error());
  REFUSES_CALL(
      call.struct_bytes = 8,
      TEXT("struct_bytes of the forward call is 8, but must be %zu: set it to sizeof, and use the header of version %s",
           sizeof call, longstride_version()));
  REFUSES_CALL(call.q.data = NULL, "q is null, but must point to memory");
  REFUSES_CALL(call.v.head_stride = -4,
               "v has strides 64, 8 and -4, but each must be at least 0 and the tensor below 2^58 elements");
  REFUSES_CALL(call.k.batch_stride = INT64_MAX,
               "k has strides 9223372036854775807, 8 and 4, but each must be at least 0 and the tensor below 2^58 "
               "elements");
  REFUSES_CALL(call.o.head_stride = 3,
               "o has strides 64, 8 and 3, with which elements share memory, but an output's must not");
  REFUSES_CALL(call.o.position_stride = 0,
               "o has strides 64, 0 and 4, with which elements share memory, but an output's must not");
  REFUSES_CALL(call.lse = NULL, "lse is null, but must point to memory");
  REFUSES_CALL(call.scratch = NULL, TEXT("scratch is null, but this call needs %zu bytes (longstride_attention_memory)",
                                         memory.forward_scratch));
  REFUSES_CALL(call.scratch_bytes = memory.forward_scratch - 1,
               TEXT("scratch has %zu bytes, but this call needs %zu: ask longstride_attention_memory with the "
                    "number of threads that is set now",
                    memory.forward_scratch - 1, memory.forward_scratch));
  call.scratch = (unsigned char*)call.scratch + 4;
  EXPECT(longstride_attention_forward(plan, &call) == LONGSTRIDE_INVALID &&
             strstr(longstride_last_error(), ", but must be aligned to 64 bytes") != NULL,
         "%s", longstride_last_error());
  reset();
  call.q.data = (char*)q + 2;
  EXPECT(longstride_attention_forward(plan, &call) == LONGSTRIDE_INVALID &&
             strstr(longstride_last_error(), ", but must be aligned to its elements of 4 bytes") != NULL,
         "%s", longstride_last_error());
  reset();
  expect(longstride_attention_forward(NULL, &call), LONGSTRIDE_INVALID,
         "plan is null, but must come from longstride_attention_create", __LINE__);
  expect(longstride_attention_forward(plan, NULL), LONGSTRIDE_INVALID, "the forward call is null, but must be given",
         __LINE__);
  expect(longstride_attention_backward(plan, NULL), LONGSTRIDE_INVALID, "the backward call is null, but must be given",
         __LINE__);
  expect(longstride_attention_memory(plan, NULL), LONGSTRIDE_INVALID, "memory is null, but must be given", __LINE__);
  back.dv.batch_stride = 63;
  expect(longstride_attention_backward(plan, &back), LONGSTRIDE_INVALID,
         "dv has strides 63, 8 and 4, with which elements share memory, but an output's must not", __LINE__);
  reset();
  static const int32_t unwanted[16];
  static const float none[2];
  REFUSES_CALL(call.begin = unwanted, "begin is given, but the plan has none, so it must be null");
  REFUSES_CALL(call.sink = none, "sink is given, but the plan has none, so it must be null");
  REFUSES_CALL(call.table = none, "table is given, but the plan has none, so it must be null");
  REFUSES_CALL(call.key_groups = unwanted, "key_groups is given, but the plan has none, so it must be null");
  back.dsink = lse;
  expect(longstride_attention_backward(plan, &back), LONGSTRIDE_INVALID,
         "dsink is given, but the plan has none, so it must be null", __LINE__);
  back.dsink = NULL, back.dtable = lse;
  expect(longstride_attention_backward(plan, &back), LONGSTRIDE_INVALID,
         "dtable is given, but the plan has none, so it must be null", __LINE__);
  reset();
  for (size_t i = 0; i < sizeof o / sizeof *o; ++i) EXPECT(o[i] == 7 && q[i] == 7, "element %zu is written", i);
}

#define REFUSES_BOUNDS(i, first, beyond, sentence)                                             \
  do {                                                                                         \
    begin[i] = first, end[i] = beyond;                                                         \
    expect(longstride_attention_forward(plan, &call), LONGSTRIDE_INVALID, sentence, __LINE__); \
    memcpy(begin, first_of, sizeof begin), memcpy(end, end_of, sizeof end);                    \
  } while (0)

/* Bounds of 2 rows of 8 positions in documents of 4, and sinks of 2 heads. */
static void test_bounds(enum longstride_bounds bounds) {
  static const int32_t first_of[16] = {0, 0, 0, 0, 4, 4, 4, 4, 0, 0, 0, 0, 4, 4, 4, 4},
                       end_of[16] = {4, 4, 4, 4, 8, 8, 8, 8, 4, 4, 4, 4, 8, 8, 8, 8};
  static int32_t begin[16], end[16];
  static float sink[2];
  struct longstride_plan* plan = NULL;
  memcpy(begin, first_of, sizeof begin), memcpy(end, end_of, sizeof end);
  config.bounds = bounds;
  config.sink = 1;
  EXPECT(longstride_attention_create(&config, &plan) == LONGSTRIDE_OK, "%s", longstride_last_error());
  call.begin = begin, call.end = end, call.sink = sink;
  REFUSES_BOUNDS(10, -1, 4,
                 "begin and end of row 10 (query 2) are -1 and 4, but must be from 0 to 8 and at least those of the "
                 "query before it");
  REFUSES_BOUNDS(15, 4, 9,
                 "begin and end of row 15 (query 7) are 4 and 9, but must be from 0 to 8 and at least those of the "
                 "query before it");
  REFUSES_BOUNDS(5, 3, 8,
                 "begin and end of row 5 (query 5) are 3 and 8, but must be from 0 to 8 and at least those of the "
                 "query before it");
  if (bounds == LONGSTRIDE_DOCUMENTS) {
    REFUSES_BOUNDS(3, 0, 5,
                   "begin and end of row 3 (position 3) are 0 and 5, but documents must hold their positions and "
                   "follow each other from 0 to 8");
    REFUSES_BOUNDS(8, 1, 4,
                   "begin and end of row 8 (position 0) are 1 and 4, but documents must hold their positions and "
                   "follow each other from 0 to 8");
  }
  sink[1] = INFINITY;
  expect(longstride_attention_forward(plan, &call), LONGSTRIDE_INVALID, "sink of head 1 is inf, but must be finite",
         __LINE__);
  sink[1] = 0;
  call.end = NULL;
  expect(longstride_attention_forward(plan, &call), LONGSTRIDE_INVALID,
         "end is null, but must point to memory, because the plan has one", __LINE__);
  call.end = end, call.sink = NULL;
  expect(longstride_attention_forward(plan, &call), LONGSTRIDE_INVALID,
         "sink is null, but must point to memory, because the plan has one", __LINE__);
  longstride_attention_destroy(plan);
  reset();
}

/* Lists of 3 query blocks over 2 key blocks, which 2 heads share. */
static void test_lists(void) {
  static const char* const dense[] = {"dense"};
  static const struct {
    int32_t begin[4], keys[4];
    const char* message;
  } wrong[] = {{{0, 1, 3, 4},
                {0, 1, 0, 1},
                "query block 1 of head 0 of sequence 0 has key block 0 after 1, but must be "
                "increasing numbers from 0 to 1"},
               {{0, 1, 3, 4},
                {0, 0, 1, 2},
                "query block 2 of head 0 of sequence 0 has key block 2, but must be increasing "
                "numbers from 0 to 1"},
               {{0, 2, 1, 4},
                {0, 1, 0, 1},
                "query block 1 of head 0 of sequence 0 goes from entry 2 to 1, but must have entries "
                "of 0 to 4"},
               {{0, 1, 3, 5},
                {0, 0, 1, 1},
                "query block 2 of head 0 of sequence 0 goes from entry 3 to 5, but must have entries "
                "of 0 to 4"}};
  static float rows[3 * 130 * 2 * 4];
  struct longstride_plan* plan = NULL;
  config.block = 64;
  expect(longstride_attention_create(&config, &plan), LONGSTRIDE_INVALID,
         "block is 64, but lists restrict a pattern of one part, dense", __LINE__);
  pattern.parts = dense, pattern.part_count = 1, pattern.direction = "both";
  config.batch = 1, config.n = 100, config.queries = 130, config.list_entries = 4;
  EXPECT(longstride_attention_create(&config, &plan) == LONGSTRIDE_OK, "%s", longstride_last_error());
  call.q.data = call.k.data = call.v.data = rows, call.o.data = rows + 130 * 2 * 4, call.lse = rows + 2 * 130 * 2 * 4;
  call.o.position_stride = 8, call.o.head_stride = 4;
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; ++i) {
    call.key_begin = wrong[i].begin, call.keys = wrong[i].keys;
    expect(longstride_attention_forward(plan, &call), LONGSTRIDE_INVALID, TEXT("the list of %s", wrong[i].message),
           __LINE__);
  }
  call.keys = NULL;
  expect(longstride_attention_forward(plan, &call), LONGSTRIDE_INVALID,
         "keys is null, but must point to memory, because the plan has one", __LINE__);
  longstride_attention_destroy(plan);
  reset();
}

/* Labels of 2 groups: a table, and groups of 2 rows of 8 positions. */
static void test_labels(void) {
  static const int32_t groups[16];
  static const float table[2 * 2 * 4];
  struct longstride_plan* plan = NULL;
  config.labels = 2, config.label_groups = 1;
  EXPECT(longstride_attention_create(&config, &plan) == LONGSTRIDE_OK, "%s", longstride_last_error());
  call.table = table, call.query_groups = groups;
  expect(longstride_attention_forward(plan, &call), LONGSTRIDE_INVALID,
         "key_groups is null, but must point to memory, because the plan has one", __LINE__);
  call.table = NULL, call.key_groups = groups;
  expect(longstride_attention_forward(plan, &call), LONGSTRIDE_INVALID,
         "table is null, but must point to memory, because the plan has one", __LINE__);
  longstride_attention_destroy(plan);
  reset();
}

/* A call without sequences succeeds and needs no memory but scratch, nor strides. */
static void test_empty(void) {
  struct longstride_plan* plan = NULL;
  config.batch = 0;
  EXPECT(longstride_attention_create(&config, &plan) == LONGSTRIDE_OK, "%s", longstride_last_error());
  call.q.data = call.k.data = call.v.data = call.o.data = call.lse = NULL;
  call.o.batch_stride = call.o.position_stride = call.o.head_stride = 0;
  EXPECT(longstride_attention_forward(plan, &call) == LONGSTRIDE_OK, "%s", longstride_last_error());
  longstride_attention_destroy(plan);
  longstride_attention_destroy(NULL);
  reset();
}

static void* sentence_of_another_thread(void* found) {
  *(int*)found = strlen(longstride_last_error()) == 0;
  longstride_attention_create(NULL, NULL);
  return NULL;
}

int main(void) {
  reset();
  for (size_t i = 0; i < sizeof o / sizeof *o; ++i) q[i] = k[i] = v[i] = o[i] = 7;
  EXPECT(strlen(longstride_last_error()) == 0, "%s", longstride_last_error());
  test_patterns();
  test_configs();
  struct longstride_plan* plan = NULL;
  EXPECT(longstride_attention_create(&config, &plan) == LONGSTRIDE_OK, "%s", longstride_last_error());
  test_calls(plan);
  test_bounds(LONGSTRIDE_INTERVALS);
  test_bounds(LONGSTRIDE_DOCUMENTS);
  test_lists();
  test_labels();
  test_empty();

  expect(longstride_attention_forward(NULL, &call), LONGSTRIDE_INVALID,
         "plan is null, but must come from longstride_attention_create", __LINE__);
  pthread_t thread;
  int empty_there = 0;
  EXPECT(pthread_create(&thread, NULL, sentence_of_another_thread, &empty_there) == 0, "no thread");
  pthread_join(thread, NULL);
  EXPECT(empty_there, "a thread has the sentence of another");
  EXPECT(strcmp(longstride_last_error(), "plan is null, but must come from longstride_attention_create") == 0, "%s",
         longstride_last_error());
  longstride_attention_destroy(plan);
  printf("%d failures\n", failures);
  return failures == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
