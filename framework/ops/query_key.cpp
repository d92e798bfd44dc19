#include "framework/ops/query_key.h"

#include "framework/ops/dispatch.h"

namespace longstride::ops {
namespace {

void check_rows(const Context& ctx, const char* name, const Tensor& t, const Tensor& like) {
  LONGSTRIDE_CHECK(
      t.rank() == 4 && t.shape() == like.shape() && t.dtype() == like.dtype() && t.stride(-1) == 1,
      "queries or keys: {} is {} of {}, but must be (batch, seq, heads, size), as {} of {}, last dimension "
      "dense",
      name, t.shape().text(), kernels::name_of(t.dtype()), like.shape().text(), kernels::name_of(like.dtype()));
  LONGSTRIDE_CHECK(computes(ctx, t.dtype()), "queries or keys: {} is {}", name, kernels::name_of(t.dtype()));
}

void check_transform(const kernels::QueryKeyTransform& transform, const Tensor& x, std::int64_t first) {
  LONGSTRIDE_CHECK(transform.any(), "nothing to do with queries and keys");
  LONGSTRIDE_CHECK(!transform.rotates() || x.size(3) % 2 == 0, "a rotation of {} elements, an odd number", x.size(3));
  LONGSTRIDE_CHECK(first >= 0, "position {}", first);
}

}  // namespace

void query_key(Context& ctx, const kernels::QueryKeyTransform& transform, const Tensor& x, std::int64_t first,
               const Tensor& y) {
  check_rows(ctx, "x", x, x);
  check_rows(ctx, "y", y, x);
  check_transform(transform, x, first);
  if (ctx.planning()) return;
  const kernels::QueryKeyArgs args{transform, x.view(), y.view(), first, ctx.position};
  launch(ctx, kernels::cpu::query_key, kernels::cuda::query_key, args);
}

void query_key_backward(Context& ctx, const kernels::QueryKeyTransform& transform, const Tensor& dy, const Tensor& x,
                        std::int64_t first, const Tensor& dx) {
  check_rows(ctx, "x", x, x);
  check_rows(ctx, "dy", dy, x);
  check_rows(ctx, "dx", dx, x);
  check_transform(transform, x, first);
  if (ctx.planning()) return;
  const kernels::QueryKeyBackwardArgs args{transform, dy.view(), x.view(), dx.view(), first};
  launch(ctx, kernels::cpu::query_key_backward, kernels::cuda::query_key_backward, args);
}

}  // namespace longstride::ops
