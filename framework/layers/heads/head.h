// A model's head: the losses of what rows ask (Batch), and the scores of possible answers, from the stack's output.
#pragma once
#include <cstdint>

#include "framework/core/batch.h"
#include "framework/core/context.h"
#include "framework/core/parameters.h"

namespace longstride {

class Head {
 public:
  virtual ~Head() = default;

  // Targets and weights of what is asked: (batch, asked); without weights each has 1.
  struct Asked {
    Tensor targets, weights;
  };
  // hidden (batch, positions, width), losses (batch, asked) of the exact type. `right`, if given, becomes how right the
  // answer is: (batch, asked) of the type judged(). It is 1 where the target has the best score and 0 elsewhere, unless
  // the head says something else.
  virtual void losses(Context& ctx, const Tensor& hidden, const Asked& asked, const Tensor& losses,
                      const Tensor& right = {}) const = 0;
  virtual Dtype judged() const { return Dtype::u8; }
  // The same with dropout, which may overwrite hidden; dhidden becomes the gradient of scale * sum of losses.
  virtual void loss_and_gradients(Context& ctx, const Tensor& hidden, const Asked& asked, double scale,
                                  const Tensor& losses, const Tensor& dhidden) const = 0;
  // The scores of the answers to what a row of `positions` asks, (asked, answers).
  virtual Shape scores_shape(std::int64_t positions) const = 0;
  // scores (batch, asked, answers) of the exact type.
  virtual void scores(Context& ctx, const Tensor& hidden, const Tensor& scores) const = 0;
};

// Where the first document of every row ends, (batch, 1) i32; absent: with the row.
inline Tensor ends_of_first(const Context& ctx) {
  const Tensor& end = ctx.documents.end;
  return end.given() ? end.reshape({end.size(0), end.size(2)}).slice(1, 0, 1) : Tensor{};
}

}  // namespace longstride
