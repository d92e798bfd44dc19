#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <vector>

#include "framework/core/errors.h"
#include "framework/ops/run.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/decode/decode.h"
#include "kernels/attention/naive.h"
#include "kernels/base/philox.h"
#include "tests/ops/op_test.h"
#include "tests/support/finite_differences.h"

namespace longstride {
namespace {

using kernels::AppendArgs;
using kernels::AttentionArgs;
using kernels::AttentionBackwardArgs;
using kernels::DecodeArgs;
using kernels::DecodeCache;

kernels::PatternConfig strided() {
  kernels::PatternConfig p;
  p.integration = kernels::Integration::merged;
  p.parts = {kernels::PartKind::local, kernels::PartKind::column};
  p.stride = 8;
  return p;
}

// Uses the ops as a layer does: q, k and v are slices of one tensor. Runs once to plan and once for real.
struct Call {
  static constexpr std::int64_t batch = 2, n = 40, heads = 2, key_size = 6, value_size = 10;
  static constexpr std::int64_t width = heads * (2 * key_size + value_size);
  std::shared_ptr<const kernels::AttentionPlan> plan = kernels::make_plan(strided(), 0, heads, n);
  std::shared_ptr<const kernels::DecodePlan> decode_plan = kernels::make_decode_plan(*plan);

  static Tensor part(const Tensor& qkv, std::int64_t begin, std::int64_t size) {
    return qkv.slice(-1, begin, begin + heads * size).split_last(heads, size);
  }
  static Tensor q(const Tensor& x) { return part(x, 0, key_size); }
  static Tensor k(const Tensor& x) { return part(x, heads * key_size, key_size); }
  static Tensor v(const Tensor& x) { return part(x, 2 * heads * key_size, value_size); }

  std::function<void(const Tensor& qkv)> fill = [](const Tensor&) {};
  std::function<void(const Tensor& qkv, const Tensor& o, const Tensor& decoded, const Tensor& dqkv)> look =
      [](const Tensor&, const Tensor&, const Tensor&, const Tensor&) {};

  void run(Arena& arena) const {
    Context ctx;
    ctx.arena = &arena;
    ctx.compute = ctx.exact = Dtype::f64;
    Scratch scratch(ctx);
    const Tensor qkv = scratch.tensor({batch, n, width}, Dtype::f64), dqkv = scratch.like(qkv);
    const Tensor o = scratch.tensor({batch, n, heads, value_size}, Dtype::f64), decoded = scratch.like(o);
    const Tensor lse = scratch.tensor({batch, heads, n}, Dtype::f64);
    if (!arena.planning()) fill(qkv);
    ops::run(ctx, AttentionArgs{plan.get(), q(qkv), k(qkv), v(qkv), o, lse, 0.4});
    ops::run(ctx, AttentionBackwardArgs{plan.get(), q(qkv), k(qkv), v(qkv), o, lse, o, q(dqkv), k(dqkv), v(dqkv), 0.4});
    const DecodeCache cache{decode_plan.get(), scratch.tensor({batch, decode_plan->rows, key_size}, Dtype::f64),
                            scratch.tensor({batch, decode_plan->rows, value_size}, Dtype::f64)};
    for (std::int64_t i = 0; i < n; ++i) {
      const Tensor row = qkv.slice(1, i, i + 1);
      ops::run(ctx, AppendArgs{cache, k(row), v(row), i});
      ops::run(ctx, DecodeArgs{cache, q(row), decoded.slice(1, i, i + 1), i, 0.4});
    }
    if (!arena.planning()) look(qkv, o, decoded, dqkv);
  }
};

TEST(AttentionOp, PlannedBytesAreThoseUsedAndNothingIsComputedWhilePlanning) {
  Call call;
  Arena planned;
  call.run(planned);
  std::vector<std::byte> memory(planned.high_water() + 256);
  void* base = reinterpret_cast<void*>((reinterpret_cast<std::uintptr_t>(memory.data()) + 255) / 256 * 256);
  Arena real(base, planned.high_water());
  bool looked = false;
  call.fill = [](const Tensor& qkv) {
    for (std::int64_t i = 0; i < qkv.count(); ++i)
      qkv.as<double>()[i] = kernels::normal_of(kernels::philox(1, static_cast<std::uint64_t>(i), 0, 0));
  };
  call.look = [&](const Tensor& qkv, const Tensor& o, const Tensor& decoded, const Tensor& dqkv) {
    looked = true;
    for (std::int64_t i = 0; i < o.count(); ++i) EXPECT_NEAR(o.as<double>()[i], decoded.as<double>()[i], 1e-12);
    // The gradient of |o|^2 / 2 along v is |o|^2: o is linear in v.
    double along = 0, squares = 0;
    const std::int64_t first = 2 * Call::heads * Call::key_size;
    for (std::int64_t i = 0; i < qkv.count(); ++i)
      if (i % Call::width >= first) along += qkv.as<double>()[i] * dqkv.as<double>()[i];
    for (std::int64_t i = 0; i < o.count(); ++i) squares += o.as<double>()[i] * o.as<double>()[i];
    EXPECT_NEAR(along, squares, 1e-9 * squares);
  };
  call.run(real);
  EXPECT_TRUE(looked);
  EXPECT_EQ(real.high_water(), planned.high_water());
}

TEST(AttentionOp, RefusesTensorsThatDoNotMatchThePlanOrEachOther) {
  Arena arena;
  Context ctx;
  ctx.arena = &arena;
  const auto plan = kernels::make_plan(strided(), 0, 2, 40);
  const auto decode_plan = kernels::make_decode_plan(*plan);
  Scratch scratch(ctx);
  const auto tensor = [&](std::int64_t n, std::int64_t heads, std::int64_t size, Dtype dtype = Dtype::f32) {
    return scratch.tensor({1, n, heads, size}, dtype);
  };
  const Tensor q = tensor(40, 2, 8), v = tensor(40, 2, 16), lse = scratch.tensor({1, 2, 40}, Dtype::f32);
  ops::run(ctx, AttentionArgs{plan.get(), q, q, v, v, lse, 1});
  const auto refuses = [&](const Tensor& a, const Tensor& b, const Tensor& c, const Tensor& o, const Tensor& l) {
    EXPECT_THROW(ops::run(ctx, AttentionArgs{plan.get(), a, b, c, o, l, 1}), InternalError);
  };
  refuses(tensor(39, 2, 8), tensor(39, 2, 8), tensor(39, 2, 16), tensor(39, 2, 16), lse);
  refuses(tensor(40, 3, 8), tensor(40, 3, 8), tensor(40, 3, 16), tensor(40, 3, 16), lse);
  refuses(q, tensor(40, 2, 9), v, v, lse);
  refuses(q, q, tensor(40, 2, 16, Dtype::f64), v, lse);
  refuses(q, q, v, q, lse);
  refuses(q, q, v, v, scratch.tensor({2, 40}, Dtype::f32));
  refuses(q, q, Tensor(), v, lse);
  EXPECT_THROW(ops::run(ctx, AttentionBackwardArgs{plan.get(), q, q, v, v, lse, v, q, q, q, 1}), InternalError);
  AttentionArgs with_sink{plan.get(), q, q, v, v, lse, 1};
  with_sink.sink = scratch.tensor({2}, Dtype::f32);
  ops::run(ctx, with_sink);
  with_sink.sink = scratch.tensor({3}, Dtype::f32);
  EXPECT_THROW(ops::run(ctx, with_sink), InternalError);

  const DecodeCache cache{decode_plan.get(), scratch.tensor({1, decode_plan->rows, 8}, Dtype::f32),
                          scratch.tensor({1, decode_plan->rows, 16}, Dtype::f32)};
  const Tensor row = tensor(1, 2, 8), value_row = tensor(1, 2, 16);
  ops::run(ctx, AppendArgs{cache, row, value_row, 39});
  ops::run(ctx, DecodeArgs{cache, row, value_row, 39, 1});
  EXPECT_THROW(ops::run(ctx, AppendArgs{cache, row, value_row, 40}), InternalError);
  EXPECT_THROW(ops::run(ctx, AppendArgs{cache, row, row, 0}), InternalError);
  EXPECT_THROW(ops::run(ctx, DecodeArgs{cache, row, value_row, -1, 1}), InternalError);
  EXPECT_THROW(ops::run(ctx, DecodeArgs{cache, row, row, 0, 1}), InternalError);
}

}  // namespace

namespace testing {
namespace {

using kernels::Direction;
using kernels::NaiveResult;
using kernels::PartKind;

kernels::PatternConfig both_ways(PartKind part, std::int64_t window = 0) {
  kernels::PatternConfig p;
  p.parts = {part};
  p.window = window;
  p.direction = Direction::both;
  return p;
}

struct LabelCase {
  std::string name;
  kernels::PatternConfig pattern;
  std::int64_t n, queries, labels, tables;
  std::int32_t clip = 0;
  bool grouped = false, from_end = false;
  std::int64_t document = 0;  // positions of one; 0: no documents
  std::int64_t size = 16, batch = 2, heads = 2;
  double scale() const { return 0.3; }
};
const LabelCase label_cases[] = {
    {"distances in two passes", strided(), 90, 90, 7, 2, 3},
    {"distances and groups, few queries", both_ways(PartKind::dense), 150, 37, 26, 1, 6, true},
    {"distances wider than a window", both_ways(PartKind::local, 17), 70, 70, 41, 2, 20},
    {"places in a window", both_ways(PartKind::local, 33), 150, 150, 20, 1, 0, false, true},
    {"places in documents, and groups", both_ways(PartKind::dense), 100, 100, 12, 2, 0, true, true, 30},
    {"one label", both_ways(PartKind::dense), 20, 20, 1, 1},
    // Heads that Hopper's kernels take with labels: tiles that are near, far and cut off, more queries than keys and
    // fewer.
    {"distances in a wide window", both_ways(PartKind::local, 169), 333, 333, 25, 2, 12, false, false, 0, 64},
    {"far distances in documents", both_ways(PartKind::dense), 260, 260, 49, 1, 24, false, false, 90, 48},
    {"groups of few queries", both_ways(PartKind::dense), 450, 37, 2, 2, 0, true, false, 0, 64},
    {"groups of few keys", both_ways(PartKind::dense), 70, 450, 2, 1, 0, true, false, 0, 64},
    {"one label of other queries than keys", both_ways(PartKind::dense), 321, 130, 1, 1, 0, false, false, 0, 64}};

class AttentionLabelsTest : public OpTest {
 protected:
  struct Operands {
    LabelCase c;
    std::shared_ptr<const kernels::AttentionPlan> plan;
    Operand q, k, v, dout, table, query_groups, key_groups, begin, end, o, lse, dq, dk, dv, dtable;

    kernels::Labels labels() const {
      const auto given = [&](const Operand& x) { return c.grouped ? static_cast<const Tensor&>(x) : Tensor(); };
      return {table, c.clip, given(query_groups), given(key_groups), c.from_end};
    }
    kernels::RowBounds bounds() const {
      return c.document > 0 ? kernels::RowBounds::of_documents(begin, end) : kernels::RowBounds();
    }
    AttentionArgs forward() const {
      return {.plan = plan.get(),
              .q = q,
              .k = k,
              .v = v,
              .o = o,
              .lse = lse,
              .scale = c.scale(),
              .bounds = bounds(),
              .labels = labels()};
    }
    AttentionBackwardArgs backward() const {
      return {.plan = plan.get(),
              .q = q,
              .k = k,
              .v = v,
              .o = o,
              .lse = lse,
              .dout = dout,
              .dq = dq,
              .dk = dk,
              .dv = dv,
              .scale = c.scale(),
              .bounds = bounds(),
              .labels = labels(),
              .dtable = dtable};
    }
  };

  Operands operands(const LabelCase& c) {
    const Shape queries{c.batch, c.queries, c.heads, c.size}, keys{c.batch, c.n, c.heads, c.size};
    const Shape table{c.labels, c.tables, c.size};
    const auto numbers = [&](const Shape& shape, auto&& number) {
      std::vector<double> x;
      for (std::int64_t i = 0; i < shape.count(); ++i) x.push_back(static_cast<double>(number(i)));
      return with_values(shape, Dtype::i32, std::move(x));
    };
    const std::int64_t document = std::max<std::int64_t>(c.document, 1);
    const auto begin = [&](std::int64_t i) { return i % c.n / document * document; };
    return {c,
            kernels::make_plan(c.pattern, 0, c.heads, c.n, {}, c.queries),
            normals(queries, 1),
            normals(keys, 2),
            normals(keys, 3),
            normals(queries, 4),
            normals(table, 5),
            numbers({c.batch, c.queries}, [](std::int64_t i) { return i * i % 3; }),
            numbers({c.batch, c.n}, [](std::int64_t i) { return i * i * i % 4; }),
            numbers({c.batch, 1, c.n}, begin),
            numbers({c.batch, 1, c.n}, [&](std::int64_t i) { return std::min(c.n, begin(i) + document); }),
            result(queries),
            result({c.batch, c.heads, c.queries}, exact()),
            result(queries),
            result(keys),
            result(keys),
            filled(table, exact(), 0.25)};
  }

  // By the definition; keys are of one part where labels count from the end.
  template <class A>
  NaiveResult<A> defined(const Operands& x) {
    const LabelCase& c = x.c;
    const bool rounds = sizeof(A) < sizeof(double) && compute() != exact();
    const auto to_compute = [this](double e) { return rounded(e, compute()); };
    kernels::NaiveAttention<A> naive({.batch = c.batch,
                                      .n_q = c.queries,
                                      .n_k = c.n,
                                      .heads = c.heads,
                                      .key_size = c.size,
                                      .value_size = c.size,
                                      .scale = c.scale(),
                                      .q = x.q.values().data(),
                                      .k = x.k.values().data(),
                                      .v = x.v.values().data(),
                                      .dout = x.dout.values().data(),
                                      .distances = c.labels,
                                      .tables = c.tables,
                                      .table = x.table.values().data(),
                                      .with_parameters = true},
                                     rounds ? std::function<double(double)>(to_compute) : nullptr);
    return naive.run([&](std::int64_t s, std::int64_t h, std::int64_t i) {
      std::vector<kernels::NaivePair<A>> pairs;
      const std::int64_t of_set = c.grouped ? c.labels / 2 : c.labels;
      for (std::int64_t j = c.n, after = 0; j-- > 0;) {
        if (!kernels::allowed(c.pattern, 0, c.heads, h, std::max(c.n, c.queries), i, j)) continue;
        if (c.document > 0 && i / c.document != j / c.document) continue;
        std::int64_t label = std::clamp<std::int64_t>(j - i, -c.clip, c.clip) + c.clip;
        if (c.from_end) label = std::min(after++, of_set - 1);
        const bool other = x.query_groups.at(s * c.queries + i) != x.key_groups.at(s * c.n + j);
        pairs.push_back({.key = j, .distance = label + (c.grouped && other ? of_set : 0)});
      }
      return pairs;
    });
  }
};
LONGSTRIDE_OP_TESTS(AttentionLabelsTest);

TEST_P(AttentionLabelsTest, AreThoseOfTheDefinitionForwardAndBackward) {
  for (const LabelCase& c : label_cases) {
    SCOPED_TRACE(c.name);
    Operands x = operands(c);
    run(x.forward(), {&x.o, &x.lse});
    run(x.backward(), {&x.dq, &x.dk, &x.dv, &x.dtable});
    const auto right = defined<double>(x);
    const auto naive = defined<float>(x);
    const auto expect = [&](const char* name, const Operand& found, auto&& of, double added = 0) {
      const auto plain = [&](auto zero) {
        using T = decltype(zero);
        std::vector<T> all;
        if constexpr (std::is_same_v<T, double>)
          all = of(right);
        else
          all = of(naive);
        for (T& e : all) e += static_cast<T>(added);
        return all;
      };
      expect_as_exact_as_plain(name, found, plain, 32 * half_step_of(exact()));
    };
    expect("o", x.o, [](const auto& r) { return r.o; });
    expect("lse", x.lse, [](const auto& r) { return r.lse; });
    expect("dq", x.dq, [](const auto& r) { return r.dq; });
    expect("dk", x.dk, [](const auto& r) { return r.dk; });
    expect("dv", x.dv, [](const auto& r) { return r.dv; });
    expect(
        "dtable", x.dtable, [](const auto& r) { return r.dtable; }, 0.25);
  }
}

TEST_P(AttentionLabelsTest, GradientsAgreeWithFiniteDifferences) {
  if (compute() != Dtype::f64) return;
  for (const LabelCase& c : label_cases) {
    if (c.size > 16) continue;  // whose losses bend too much
    SCOPED_TRACE(c.name);
    Operands x = operands(c);
    x.dtable = filled(static_cast<const Tensor&>(x.dtable).shape(), exact(), 0);
    const auto loss = [&] {
      ops::run(ctx, x.forward());
      const std::vector<double> o = x.o.found();
      double total = 0;
      for (std::size_t i = 0; i < o.size(); ++i) total += o[i] * x.dout.values()[i];
      return total;
    };
    loss();
    ops::run(ctx, x.backward());
    expect_gradient("q", x.q, x.dq, loss, 20);
    expect_gradient("k", x.k, x.dk, loss, 20);
    expect_gradient("table", x.table, x.dtable, loss, 40);
  }
}

TEST_P(AttentionLabelsTest, RefuseWhatDoesNotFit) {
  const Operands x = operands(label_cases[1]);
  const auto refuses = [&](auto&& change, const std::string& sentence) {
    AttentionBackwardArgs args = x.backward();
    change(args);
    try {
      args.check(device());
      ADD_FAILURE() << "accepted, not: " << sentence;
    } catch (const InternalError& e) {
      EXPECT_NE(std::string(e.what()).find(sentence), std::string::npos) << e.what();
    }
  };
  EXPECT_NO_THROW(x.backward().check(device()));
  const auto table = [&](const Shape& shape, Dtype dtype) { return Tensor(nullptr, dtype, shape); };
  refuses([&](auto& a) { a.labels.clip = 7; }, "the labels' table has 26 rows, but must have 30");
  refuses([&](auto& a) { a.labels.clip = -1; }, "labels are clipped at -1, but the clip must be 0 or more");
  refuses([&](auto& a) { a.labels.from_end = true; }, "labels are clipped at 6, but the clip must be");
  refuses(
      [&](auto& a) {
        a.labels.table = table({25, 1, 16}, compute()), a.labels.clip = 0, a.labels.from_end = true;
      },
      "the labels' table has 25 rows, but must have two equal sets");
  refuses(
      [&](auto& a) {
        a.labels.table = table({26, 3, 16}, compute());
      },
      "the labels' table is (26, 3, 16), but must be (labels, 2 or 1, 16)");
  refuses([&](auto& a) { a.labels.table = table({26, 2, 8}, compute()); }, "the labels' table");
  refuses([&](auto& a) { a.labels.table = table({26, 1, 16}, Dtype::i32); }, "the labels' table");
  refuses([&](auto& a) { a.labels.key_groups = {}; }, "must be contiguous (2, 37) and (2, 150) of i32");
  refuses([&](auto& a) { a.labels.query_groups = a.labels.key_groups; }, "must be contiguous (2, 37) and (2, 150)");
  refuses([&](auto& a) { a.dtable = a.q; }, "attention's dtable");
  refuses([&](auto& a) { a.labels = {}; }, "attention's dtable is given without labels, but must be absent");
}

}  // namespace
}  // namespace testing
}  // namespace longstride
