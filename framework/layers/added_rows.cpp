#include "framework/layers/added_rows.h"

#include "framework/ops/basic.h"
#include "kernels/copy_rows/copy_rows.h"

namespace longstride {
namespace {

void copy_rows(Context& ctx, const Tensor& from, const Tensor& to) { ops::run(ctx, kernels::CopyRowsArgs{from, to}); }

std::vector<PositionIndex> tables(bool numbered, std::int64_t rows) {
  if (numbered) return {{1, rows}};
  return {};
}

}  // namespace

AddedRows::AddedRows(ParameterSet& parameters, const std::string& name, std::int64_t rows, bool numbered,
                     std::int64_t width, double deviation)
    : count_(rows),
      embedding_(parameters, name, TableForm{1, width, deviation}, tables(numbered, rows), deviation, 1,
                 ReadsToken::own) {
  embedding_.may_be_new();
}

// All rows have the one token that there is.
Batch AddedRows::tokens(Context& ctx, std::int64_t batch, Scratch& scratch) const {
  Batch rows;
  rows.tokens = scratch.tensor({batch, count_}, Dtype::u8);
  ops::fill_zero(ctx, rows.tokens);
  return rows;
}

void AddedRows::forward(Context& outer, const Tensor& all) const {
  Context ctx = outer;
  ctx.documents = {};
  Scratch scratch(ctx);
  const Tensor y = scratch.tensor({all.size(0), count_, all.size(2)}, all.dtype());
  embedding_.forward(ctx, tokens(ctx, all.size(0), scratch), y);
  copy_rows(ctx, y, of_rows(all));
}

void AddedRows::backward(Context& outer, const Tensor& dall) const {
  Context ctx = outer;
  ctx.documents = {};
  Scratch scratch(ctx);
  const Tensor dy = scratch.tensor({dall.size(0), count_, dall.size(2)}, dall.dtype());
  copy_rows(ctx, of_rows(dall), dy);
  embedding_.backward(ctx, dy, tokens(ctx, dall.size(0), scratch));
}

void AddedRows::take(Context& ctx, const Tensor& all, const Tensor& positions) const {
  copy_rows(ctx, of_positions(all), positions);
}

void AddedRows::place(Context& ctx, const Tensor& positions, const Tensor& all) const {
  copy_rows(ctx, positions, of_positions(all));
}

}  // namespace longstride
