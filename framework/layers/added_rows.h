// Global rows that a model adds in front of the positions of its sequences (BlockForm::global): their embeddings, and
// the positions among all rows.
#pragma once
#include <string>

#include "framework/layers/embedding.h"

namespace longstride {

class AddedRows {
 public:
  // Declares `name`.token.weight (1, width), which all rows share, and, unless rows are told apart by their groups,
  // `name`.position.0.weight (rows, width); both may be new to weights of another model.
  AddedRows(ParameterSet& parameters, const std::string& name, std::int64_t rows, bool numbered, std::int64_t width,
            double deviation);

  std::int64_t count() const { return count_; }
  // The first rows of all (batch, count + seq, width).
  void forward(Context& ctx, const Tensor& all) const;
  void backward(Context& ctx, const Tensor& dall) const;
  // positions (batch, seq, width) = the last rows of all, or the other way round.
  void take(Context& ctx, const Tensor& all, const Tensor& positions) const;
  void place(Context& ctx, const Tensor& positions, const Tensor& all) const;

 private:
  Tensor of_rows(const Tensor& all) const { return all.slice(1, 0, count_); }
  Tensor of_positions(const Tensor& all) const { return all.slice(1, count_, all.size(1)); }
  Batch tokens(Context& ctx, std::int64_t batch, Scratch& scratch) const;

  std::int64_t count_;
  EmbeddingLayer embedding_;
};

}  // namespace longstride
