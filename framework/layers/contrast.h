// The contrast of hidden groups as an auxiliary loss (Ainslie et al. 2020, with the negatives of one sequence): the
// hidden vector of a group's global row is to find the group's tokens (kernels/group_contrast).
#pragma once
#include <string>

#include "framework/core/batch.h"
#include "framework/core/context.h"
#include "framework/layers/linear.h"

namespace longstride {

class Contrast {
 public:
  // Declares `name`.weight and `name`.bias (width, width), z = W h + b, which may be new to weights of another model;
  // `rows` global rows are in front of positions.
  Contrast(ParameterSet& parameters, const std::string& name, std::int64_t rows, std::int64_t width, double deviation,
           double coefficient, const Parameter& tokens);

  // Adds the loss to `total` (1) f64, and its gradients: to the map's, and to d, in the rows of hidden (batch, rows +
  // seq, width), whose first ones are 0 so far. The batch has sentences, targets and weights.
  void add(Context& ctx, const Batch& batch, const Tensor& hidden, const Tensor& total, const Tensor& d) const;

 private:
  Linear map_;
  std::int64_t rows_;
  double coefficient_;
  const Parameter& tokens_;
};

}  // namespace longstride
