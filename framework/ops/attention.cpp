#include "framework/ops/attention.h"

#include "framework/ops/dispatch.h"
#include "kernels/attention/attention.h"

namespace longstride::ops {

namespace {

void check_rows(const char* name, const Tensor& t, std::int64_t batch, std::int64_t n, std::int64_t heads,
                std::int64_t size, Dtype dtype) {
  const Shape expected{batch, n, heads, size};
  LONGSTRIDE_CHECK(t.shape() == expected && t.dtype() == dtype && t.stride(-1) == 1,
                   "attention's {} is {} of {} with last stride {}, but must be {} of {} with last stride 1", name,
                   t.shape().text(), name_of(t.dtype()), t.given() ? t.stride(-1) : 0, expected.text(), name_of(dtype));
}

void check_first(const Context& ctx, const Tensor& q) {
  LONGSTRIDE_CHECK(q.rank() == 4, "attention's q or k is {}, but must be (batch, seq, heads, key size)",
                   q.shape().text());
  LONGSTRIDE_CHECK(ctx.device != Device::cpu || computes(q.dtype()), "attention in {} on the CPU", name_of(q.dtype()));
}

// q, k, v, o and lse of one call, against the plan and each other.
void check_forward(const Context& ctx, const kernels::AttentionPlan& plan, const Tensor& q, const Tensor& k,
                   const Tensor& v, const Tensor& o, const Tensor& lse) {
  check_first(ctx, q);
  const std::int64_t batch = q.size(0), n = q.size(1), heads = q.size(2);
  LONGSTRIDE_CHECK(n == plan.n && heads == static_cast<std::int64_t>(plan.heads.size()),
                   "attention over {} positions and {} heads with a plan for {} and {}", n, heads, plan.n,
                   plan.heads.size());
  LONGSTRIDE_CHECK(v.rank() == 4, "attention's v is {}, but must be (batch, seq, heads, value size)", v.shape().text());
  check_rows("q", q, batch, n, heads, q.size(3), q.dtype());
  check_rows("k", k, batch, n, heads, q.size(3), q.dtype());
  check_rows("v", v, batch, n, heads, v.size(3), q.dtype());
  check_rows("o", o, batch, n, heads, v.size(3), q.dtype());
  const Shape expected{batch, heads, n};
  const Dtype exact = q.dtype() == Dtype::f64 ? Dtype::f64 : Dtype::f32;  // never narrow
  LONGSTRIDE_CHECK(lse.shape() == expected && lse.contiguous() && lse.dtype() == exact,
                   "attention's lse is {} of {}, but must be contiguous {} of {}", lse.shape().text(),
                   name_of(lse.dtype()), expected.text(), name_of(exact));
}

template <class Args>
void* workspace_for(const Context& ctx, Scratch& scratch, const Args& args) {
  const std::size_t bytes = ctx.device == Device::cpu ? kernels::cpu::attention_workspace_bytes(args)
                                                      : kernels::cuda::attention_workspace_bytes(args);
  return scratch.tensor({static_cast<std::int64_t>(bytes)}, Dtype::u8).data();
}

// A cache against its plan.
void check_cache(const DecodeCache& cache, std::int64_t batch, std::int64_t heads, std::int64_t key_size,
                 std::int64_t value_size, Dtype dtype) {
  LONGSTRIDE_CHECK(cache.plan != nullptr && heads == static_cast<std::int64_t>(cache.plan->heads.size()),
                   "decoding {} heads without a plan for them", heads);
  for (const auto& [t, size] : {std::pair{&cache.keys, key_size}, std::pair{&cache.values, value_size}})
    LONGSTRIDE_CHECK((t->shape() == Shape{batch, cache.plan->rows, size}) && t->contiguous() && t->dtype() == dtype,
                     "a cache is {} of {}, but must be {} of {}", t->shape().text(), name_of(t->dtype()),
                     Shape({batch, cache.plan->rows, size}).text(), name_of(dtype));
}

}  // namespace

void attention(Context& ctx, const kernels::AttentionPlan& plan, const Tensor& q, const Tensor& k, const Tensor& v,
               double scale, const Tensor& o, const Tensor& lse) {
  check_forward(ctx, plan, q, k, v, o, lse);
  kernels::AttentionArgs args{&plan, q.view(), k.view(), v.view(), o.view(), lse.view(), scale, nullptr};
  Scratch scratch(ctx);
  args.workspace = workspace_for(ctx, scratch, args);
  if (!ctx.planning()) launch(ctx, kernels::cpu::attention, kernels::cuda::attention, args);
}

void attention_backward(Context& ctx, const kernels::AttentionPlan& plan, const Tensor& q, const Tensor& k,
                        const Tensor& v, const Tensor& o, const Tensor& lse, const Tensor& dout, double scale,
                        const Tensor& dq, const Tensor& dk, const Tensor& dv) {
  check_forward(ctx, plan, q, k, v, o, lse);
  const auto check_like = [](const char* name, const Tensor& t, const Tensor& like) {
    check_rows(name, t, like.size(0), like.size(1), like.size(2), like.size(3), like.dtype());
  };
  check_like("dout", dout, o);
  check_like("dq", dq, q);
  check_like("dk", dk, k);
  check_like("dv", dv, v);
  kernels::AttentionBackwardArgs args{&plan,       q.view(),  k.view(),  v.view(),  o.view(), lse.view(),
                                      dout.view(), dq.view(), dk.view(), dv.view(), scale,    nullptr};
  Scratch scratch(ctx);
  args.workspace = workspace_for(ctx, scratch, args);
  if (!ctx.planning()) launch(ctx, kernels::cpu::attention_backward, kernels::cuda::attention_backward, args);
}

DecodeCache decode_cache(Scratch& scratch, const kernels::DecodePlan& plan, std::int64_t batch, std::int64_t key_size,
                         std::int64_t value_size, Dtype dtype) {
  return {&plan, scratch.tensor({batch, plan.rows, key_size}, dtype),
          scratch.tensor({batch, plan.rows, value_size}, dtype)};
}

void append(Context& ctx, const DecodeCache& cache, const Tensor& k, const Tensor& v, std::int64_t first) {
  check_first(ctx, k);
  LONGSTRIDE_CHECK(v.rank() == 4, "attention's v is {}, but must be (batch, rows, heads, value size)",
                   v.shape().text());
  check_rows("k", k, k.size(0), k.size(1), k.size(2), k.size(3), k.dtype());
  check_rows("v", v, k.size(0), k.size(1), k.size(2), v.size(3), k.dtype());
  check_cache(cache, k.size(0), k.size(2), k.size(3), v.size(3), k.dtype());
  LONGSTRIDE_CHECK(first >= 0 && first + k.size(1) <= cache.plan->n, "positions {} to {} in a cache of {}", first,
                   first + k.size(1) - 1, cache.plan->n);
  if (ctx.planning()) return;
  const kernels::AppendArgs args{cache.plan,          k.view(), v.view(),    cache.keys.view(),
                                 cache.values.view(), first,    ctx.position};
  launch(ctx, kernels::cpu::append, kernels::cuda::append, args);
}

void attend(Context& ctx, const DecodeCache& cache, const Tensor& q, std::int64_t position, double scale,
            const Tensor& o) {
  check_first(ctx, q);
  check_cache(cache, q.size(0), q.size(2), q.size(3), cache.values.size(-1), q.dtype());
  check_rows("q", q, q.size(0), 1, q.size(2), q.size(3), q.dtype());
  check_rows("o", o, q.size(0), 1, q.size(2), cache.values.size(-1), q.dtype());
  LONGSTRIDE_CHECK(position >= 0 && position < cache.plan->n, "position {} in a cache of {}", position, cache.plan->n);
  if (ctx.planning()) return;
  const kernels::DecodeArgs args{cache.plan, q.view(), cache.keys.view(), cache.values.view(), o.view(),
                                 position,   scale,    ctx.position};
  launch(ctx, kernels::cpu::decode, kernels::cuda::decode, args);
}

}  // namespace longstride::ops
