// Dropout of activations (kernels/dropout): what is dropped is a function of the seed, the step, the id and the
// element.
#pragma once
#include <cstdint>

#include "framework/core/context.h"
#include "kernels/dropout/dropout.h"

namespace longstride {

struct Dropout {
  float p = 0;
  std::uint32_t id = 0;  // unique in the model

  float p_in(const Context& ctx) const { return ctx.step == nullptr ? 0 : p; }  // none without a step
  // From x (batch, ...) to y. The mask counts elements from the beginning of the global batch.
  kernels::DropoutArgs args(const Context& ctx, const Tensor& x, const Tensor& y) const;
  // In place: of an activation, and in the backward pass the same elements of its gradient. Costs nothing if p is 0.
  void apply(Context& ctx, const Tensor& x) const;
  // For a tensor that all sequences share: they also share the mask.
  void apply_to_shared(Context& ctx, const Tensor& x) const;
};

// Branches along a residual stream have the ids from 0 on.
namespace dropout_ids {
inline constexpr std::uint32_t within_branches = 1u << 20;  // and the branch's own
inline constexpr std::uint32_t embedding = 1u << 21, output = embedding + 1, distances = embedding + 2;
}  // namespace dropout_ids

}  // namespace longstride
