// Layers one after another, and recompute as a policy around any of them. All map (batch, seq, width) of the
// residual type to the same shape; backward: dx may be dy.
#pragma once
#include <memory>
#include <vector>

#include "framework/layers/layer.h"

namespace longstride {

// y = f_N(... f_1(x)). With a tape the values between the layers stay on it, one frame a layer, and each frame's
// memory goes back as soon as that layer's backward is done.
class Sequence : public Layer {
 public:
  explicit Sequence(std::vector<std::shared_ptr<const Layer>> layers) : layers_(std::move(layers)) {}
  void forward(Context& ctx, const Tensor& x, const Tensor& y, Tape* tape) const override;
  void backward(Context& ctx, const Tensor& dy, const Tensor& dx, Tape& tape) const override;

 private:
  std::vector<std::shared_ptr<const Layer>> layers_;
};

// Keeps only the layer's input; backward runs the forward pass again first. Gradients are bit-identical to the
// stored run's: the same kernels see the same values, and dropout masks are functions of the step.
class Recomputed : public Layer {
 public:
  explicit Recomputed(std::shared_ptr<const Layer> layer) : layer_(std::move(layer)) {}
  void forward(Context& ctx, const Tensor& x, const Tensor& y, Tape* tape) const override;
  void backward(Context& ctx, const Tensor& dy, const Tensor& dx, Tape& tape) const override;

 private:
  std::shared_ptr<const Layer> layer_;
};

}  // namespace longstride
