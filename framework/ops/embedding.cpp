#include "framework/ops/embedding.h"

#include "framework/ops/dispatch.h"
#include "kernels/embedding/embedding.h"

namespace longstride::ops {
namespace {

using kernels::EmbeddingArgs;

void set(const Context& ctx, const Embedding& embedding, const Tensor& tokens, const Tensor& y, EmbeddingArgs& args) {
  LONGSTRIDE_CHECK(tokens.rank() == 2 && tokens.contiguous() && tokens.dtype() == Dtype::u8, "tokens are {} {}",
                   tokens.shape().text(), kernels::name_of(tokens.dtype()));
  const std::int64_t width = embedding.start.count();
  const Dtype dtype = y.dtype();
  LONGSTRIDE_CHECK(computes(ctx, dtype), "y is {}", kernels::name_of(dtype));
  check_vector(y, tokens.count() * width, dtype, "y");
  const Dtype of_tables = wide(ctx, dtype);
  check_vector(embedding.start, width, of_tables, "start");
  const auto check_table = [&](const Tensor& table, const char* name) {
    LONGSTRIDE_CHECK(table.rank() == 2 && table.size(1) == width && table.size(0) > 0, "{} is {} for width {}", name,
                     table.shape().text(), width);
    check_vector(table, table.count(), of_tables, name);
  };
  check_table(embedding.token_table, "token_table");
  LONGSTRIDE_CHECK(embedding.positions.size() <= EmbeddingArgs::max_tables, "{} position tables, at most {}",
                   embedding.positions.size(), +EmbeddingArgs::max_tables);
  for (const PositionTable& p : embedding.positions) {
    check_table(p.table, "position table");
    LONGSTRIDE_CHECK(p.divisor > 0, "a position table divides by {}", p.divisor);
    args.positions[args.tables++] = {p.divisor, p.table.view()};
  }
  args.tokens = tokens.view();
  args.start = embedding.start.view();
  args.token_table = embedding.token_table.view();
  args.first = embedding.first;
  args.first_at = ctx.position;
  args.y = y.view();
}

}  // namespace

void embed(Context& ctx, const Embedding& embedding, const Tensor& tokens, const Tensor& y) {
  EmbeddingArgs args;
  set(ctx, embedding, tokens, y, args);
  if (ctx.planning()) return;
  launch(ctx, kernels::cpu::embedding, kernels::cuda::embedding, args);
}

void embed_backward(Context& ctx, const Tensor& dy, const Tensor& tokens, const Embedding& gradients) {
  kernels::EmbeddingBackwardArgs args;
  set(ctx, gradients, tokens, dy, args);
  Scratch scratch(ctx);
  if (ctx.device == Device::cuda)
    args.partials = scratch.tensor({kernels::cuda::embedding_partials(args)}, Dtype::f32).view();
  if (ctx.planning()) return;
  launch(ctx, kernels::cpu::embedding_backward, kernels::cuda::embedding_backward, args);
}

}  // namespace longstride::ops
