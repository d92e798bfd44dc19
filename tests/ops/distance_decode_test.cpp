#include "kernels/distance_attention/decode/distance_decode.h"

#include <omp.h>

#include <algorithm>

#include "framework/ops/run.h"
#include "tests/ops/dense_distance_attention.h"
#include "tests/ops/op_test.h"

namespace longstride::testing {
namespace {

// A stream of `positions`, in segments with a memory. The `pairs` say what else a query sees, and what scores are made
// of; their numbers of queries and keys are not read.
struct StreamCase {
  DistanceCase pairs;
  std::int64_t positions, segment, memory = 0;
  bool zeros = false;        // the memories count at the stream's start
  std::int64_t at_once = 1;  // positions appended before the first query
  std::int64_t compressed = 0, rate = 1;

  std::int64_t before() const { return zeros ? compressed + memory : 0; }
};

// Rows of Operands::k that a segment sees before its own.
struct Memories {
  std::vector<std::int64_t> compressed, memory;
};

// Memories of every segment. The rows of k: those before the stream, its positions, and what `rate` positions become.
std::vector<Memories> memories_of(const StreamCase& c) {
  Memories now;
  for (std::int64_t row = 0; row < c.before(); ++row) (row < c.compressed ? now.compressed : now.memory).push_back(row);
  std::vector<Memories> all;
  std::int64_t made = c.before() + c.positions, evicted = 0;
  for (std::int64_t first = 0; first < c.positions; first += c.segment) {
    all.push_back(now);
    for (std::int64_t i = first; i < first + c.segment; ++i) now.memory.push_back(c.before() + i);
    while (std::ssize(now.memory) > c.memory) {
      const bool of_stream = now.memory.front() >= c.before();  // rows before the stream stay before it
      now.memory.erase(now.memory.begin());
      if (c.compressed > 0 && of_stream && ++evicted % c.rate == 0) now.compressed.push_back(made++);
    }
    if (std::ssize(now.compressed) > c.compressed)
      now.compressed.erase(now.compressed.begin(), now.compressed.end() - c.compressed);
  }
  return all;
}

const std::vector<StreamCase> cases = {
    {{.name = "transformer_xl", .size = 64, .value_size = 64, .distances = 55, .tables = 2, .biases = true},
     131,
     24,
     31},
    {{.name = "one segment", .batch = 3, .size = 20, .value_size = 90, .distances = 40, .biases = true},
     40,
     64,
     0,
     false,
     9},
    {{.name = "clamped, memory shorter than a segment", .size = 32, .value_size = 40, .distances = 7, .biases = true},
     77,
     30,
     8},
    {{.name = "dilated windows",
      .heads = 3,
      .size = 16,
      .value_size = 24,
      .distances = 80,
      .tables = 3,
      .window = 9,
      .dilation = {1, 3, 7}},
     150,
     32,
     64},
    {{.name = "spans over zeros",
      .heads = 4,
      .size = 24,
      .value_size = 24,
      .distances = 129,
      .span = {0.302, 0.013, 1.0, 0.0},
      .longest_span = 40,
      .ramp = 12,
      .self = false},
     140,
     25,
     52,
     true},
    {{.name = "compressed", .size = 64, .value_size = 64, .distances = 70, .tables = 2, .biases = true},
     131,
     12,
     24,
     false,
     1,
     16,
     3},
    {{.name = "compressed zeros", .size = 24, .value_size = 40, .distances = 30, .biases = true},
     90,
     12,
     12,
     true,
     1,
     9,
     4},
    {{.name = "compressed, dilated windows",
      .heads = 3,
      .size = 16,
      .value_size = 16,
      .distances = 80,
      .tables = 3,
      .window = 9,
      .dilation = {1, 3, 5}},
     100,
     10,
     20,
     false,
     1,
     30,
     2},
    {{.name = "no table", .heads = 9, .size = 128, .value_size = 128}, 90, 20, 40},
    {{.name = "no key", .distances = 3, .window = 1, .self = false}, 5, 2, 2},
    {{.name = "many keys", .batch = 1, .size = 16, .value_size = 16, .distances = 900, .biases = true}, 901, 300, 600}};

class DistanceDecodeTest : public OpTest {
 protected:
  // k and v have the rows -before to positions - 1 and then those that are compressed, q and o the positions from 0.
  struct Operands {
    Operand q, k, v, table, content_bias, position_bias, span, keys, values, o, position;
  };
  Operands operands(const StreamCase& c, const kernels::DistanceDecodePlan& plan) {
    const DistanceCase& p = c.pairs;
    const std::int64_t rows = c.before() + c.positions + c.positions / c.rate;
    const Shape bias{p.heads, p.size};
    std::vector<double> spans = p.span;
    spans.resize(static_cast<std::size_t>(p.heads));
    return {normals({p.batch, c.positions, p.heads, p.size}, 1),
            normals({p.batch, rows, p.heads, p.size}, 2),
            normals({p.batch, rows, p.heads, p.value_size}, 3),
            normals({std::max<std::int64_t>(p.distances, 1), p.tables, p.size}, 4),
            normals(bias, exact(), 5, 0.5),
            normals(bias, exact(), 6, 0.5),
            with_values({p.heads}, exact(), spans),
            result({p.batch, plan.rows, p.size}),
            result({p.batch, plan.rows, p.value_size}),
            result({p.batch, c.positions, p.heads, p.value_size}),
            with_values({1}, Dtype::i64, {0})};
  }

  // One thread, because thousands of small calls on several cost more than their work.
  void SetUp() override {
    omp_set_num_threads(1);
    OpTest::SetUp();
  }
  void TearDown() override { omp_set_num_threads(threads_); }

  static std::shared_ptr<const kernels::DistanceDecodePlan> plan_of(const StreamCase& c) {
    kernels::DecodedStream s{c.positions, c.segment, c.memory, c.compressed, c.rate, c.before(), c.pairs.window};
    if (!c.pairs.span.empty()) s.longest = static_cast<std::int64_t>(c.pairs.longest_span + c.pairs.ramp);
    s.self = c.pairs.self;
    s.dilation = c.pairs.dilation;
    s.dilation.resize(static_cast<std::size_t>(c.pairs.heads), 1);
    return kernels::make_distance_decode_plan(s);
  }

  // Where the kernel finds a position: on a GPU in device memory, and then not in the call.
  template <class Args>
  Args at(Args args, std::int64_t Args::*host, const std::int64_t* Args::*in_memory, std::int64_t position,
          const Operand& memory) {
    args.*host = position;
    if (device() == Device::cpu) return args;
    ctx.queue().copy_to_device(memory->data(), &position, sizeof position);
    ctx.queue().synchronize();
    args.*host = 0;
    args.*in_memory = memory->as<const std::int64_t>();
    return args;
  }

  void append(const Operands& x, const kernels::DistanceCache& cache, std::int64_t first, std::int64_t count) {
    using Args = kernels::DistanceAppendArgs;
    const std::int64_t row = first + cache.plan->stream.before;
    const Args args{cache, x.k->slice(1, row, row + count), x.v->slice(1, row, row + count)};
    if (first < 0 || count > 1) return ops::run(ctx, Args{cache, args.k, args.v, first});
    ops::run(ctx, at(args, &Args::first, &Args::first_at, first, x.position));
  }

  // Before a segment: the compressed rows that it sees.
  void append_compressed(const StreamCase& c, const Operands& x, const kernels::DistanceCache& cache,
                         std::int64_t position) {
    const std::vector<std::int64_t> rows = memories_of(c)[static_cast<std::size_t>(position / c.segment)].compressed;
    std::int64_t first = position - c.memory - std::ssize(rows);
    for (const std::int64_t row : rows)
      ops::run(ctx,
               kernels::DistanceAppendArgs{cache, x.k->slice(1, row, row + 1), x.v->slice(1, row, row + 1), first++});
  }

  void decode(const StreamCase& c, const Operands& x, const kernels::DistanceCache& cache, std::int64_t position) {
    using Args = kernels::DistanceDecodeArgs;
    Args args{cache, x.q->slice(1, position, position + 1), x.o->slice(1, position, position + 1)};
    if (c.pairs.distances > 0) args.table = x.table;
    if (c.pairs.biases) args.content_bias = x.content_bias;
    if (c.pairs.biases && c.pairs.distances > 0) args.position_bias = x.position_bias;
    if (!c.pairs.span.empty()) args.span = x.span;
    args.longest_span = c.pairs.longest_span;
    args.ramp = c.pairs.ramp;
    args.scale = c.pairs.scale();
    ops::run(ctx, at(args, &Args::position, &Args::position_at, position, x.position));
  }

  void decode_all(const StreamCase& c, const Operands& x, const kernels::DistanceDecodePlan& plan) {
    const kernels::DistanceCache cache{&plan, x.keys, x.values};
    if (c.before() > 0) append(x, cache, -c.before(), c.before());
    for (std::int64_t i = 0; i < c.positions;) {
      const std::int64_t count = i == 0 ? c.at_once : 1;
      if (i % c.segment == 0) append_compressed(c, x, cache, i);
      append(x, cache, i, count);
      i += count;
      decode(c, x, cache, i - 1);
    }
  }

 private:
  const int threads_ = omp_get_max_threads();
};
LONGSTRIDE_OP_TESTS(DistanceDecodeTest);

// Rows [begin, end) of (batch, n, row).
std::vector<double> rows_of(const std::vector<double>& all, std::int64_t batch, std::int64_t begin, std::int64_t end) {
  const std::int64_t each = std::ssize(all) / batch, n = each;
  std::vector<double> out;
  for (std::int64_t b = 0; b < batch; ++b)
    out.insert(out.end(), all.begin() + b * n + begin, all.begin() + b * n + end);
  return out;
}

// The given rows of (batch, n, row).
std::vector<double> rows_of(const std::vector<double>& all, std::int64_t batch, const std::vector<std::int64_t>& rows,
                            std::int64_t row) {
  const std::int64_t n = std::ssize(all) / batch;
  std::vector<double> out;
  for (std::int64_t b = 0; b < batch; ++b)
    for (const std::int64_t r : rows)
      out.insert(out.end(), all.begin() + b * n + r * row, all.begin() + b * n + (r + 1) * row);
  return out;
}

// Every segment with its memories by the definition of attention with a distance term; (batch, positions, heads, size).
template <class T>
std::vector<T> segment_by_segment(const StreamCase& c, DistanceValues in, Dtype operands) {
  const DistanceCase& p = c.pairs;
  const std::int64_t row = p.heads * p.size, value_row = p.heads * p.value_size;
  std::vector<T> out(static_cast<std::size_t>(p.batch * c.positions * value_row));
  std::int64_t first = 0;
  for (const Memories& seen : memories_of(c)) {
    const std::int64_t end = std::min(first + c.segment, c.positions);
    std::vector<std::int64_t> keys = seen.compressed;
    keys.insert(keys.end(), seen.memory.begin(), seen.memory.end());
    for (std::int64_t i = first; i < end; ++i) keys.push_back(c.before() + i);
    DistanceCase whole = p;
    whole.n_q = end - first;
    whole.n_k = std::ssize(keys);
    DistanceValues one = in;
    one.q = rows_of(in.q, p.batch, first * row, end * row);
    one.k = rows_of(in.k, p.batch, keys, row);
    one.v = rows_of(in.v, p.batch, keys, value_row);
    one.dout.assign(static_cast<std::size_t>(p.batch * whole.n_q * value_row), 0.0);
    const std::vector<T> o = dense_distance_attention<T>(whole, one, operands).o;
    for (std::int64_t b = 0; b < p.batch; ++b)
      std::copy_n(o.begin() + b * whole.n_q * value_row, whole.n_q * value_row,
                  out.begin() + (b * c.positions + first) * value_row);
    first = end;
  }
  return out;
}

TEST_P(DistanceDecodeTest, EveryPositionIsThatOfItsSegmentWithItsMemory) {
  for (const StreamCase& c : cases) {
    SCOPED_TRACE(c.pairs.name);
    const auto plan = plan_of(c);
    Operands x = operands(c, *plan);
    decode_all(c, x, *plan);
    std::vector<double> found = x.o.found();
    const std::int64_t value_row = c.pairs.heads * c.pairs.value_size;
    const auto skip = [&](auto& rows) {  // positions that were only appended
      for (std::int64_t i = 0; i < std::ssize(rows); ++i)
        if (i / value_row % c.positions < c.at_once - 1) rows[static_cast<std::size_t>(i)] = 0;
    };
    skip(found);
    const DistanceValues in{x.q.values(),
                            x.k.values(),
                            x.v.values(),
                            {},
                            x.table.values(),
                            x.content_bias.values(),
                            x.position_bias.values()};
    expect_as_exact_as_plain("o", compute(), found, [&](auto zero) {
      auto right = segment_by_segment<decltype(zero)>(c, in, compute());
      skip(right);
      return right;
    });
  }
}

TEST(DistanceDecodePlan, KeepsOnlyRowsThatCanStillBeSeen) {
  kernels::DecodedStream s{.positions = 1000, .segment = 100, .memory = 150, .dilation = {1, 3}};
  const auto rows = [&] { return kernels::make_distance_decode_plan(s)->rows; };
  EXPECT_EQ(rows(), 2 * 250);
  s.window = 20;
  EXPECT_EQ(rows(), 20 + 58);
  s.longest = 40;
  EXPECT_EQ(rows(), 20 + 40);
  s.positions = 15;
  EXPECT_EQ(rows(), 2 * 15);
  s.before = 150;
  EXPECT_EQ(rows(), 20 + 40);
  s.window = s.longest = 0;
  EXPECT_EQ(rows(), 2 * 165);
}

// Window or not: compressed rows are appended behind more recent ones.
TEST(DistanceDecodePlan, KeepsAllRowsWithACompressedMemory) {
  kernels::DecodedStream s{
      .positions = 1000, .segment = 100, .memory = 200, .compressed = 150, .rate = 4, .dilation = {1, 3}};
  const auto rows = [&] { return kernels::make_distance_decode_plan(s)->rows; };
  EXPECT_EQ(rows(), 2 * 450);
  s.window = 20;
  EXPECT_EQ(rows(), 2 * 450);
  s.positions = 320;
  EXPECT_EQ(rows(), 2 * 320);
  s.rate = 3;
  EXPECT_THROW(rows(), InternalError);
}

}  // namespace
}  // namespace longstride::testing
