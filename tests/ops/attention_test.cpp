#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <vector>

#include "framework/core/errors.h"
#include "framework/ops/run.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/decode/decode.h"
#include "kernels/base/philox.h"

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
}  // namespace longstride
