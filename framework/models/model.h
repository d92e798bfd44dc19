// What the trainer, the evaluator and the sampler ask of an architecture. A new one derives from this and builds its
// own tree of layers (docs/adding_a_model.md).
#pragma once
#include <cstdint>
#include <memory>

#include "framework/core/context.h"
#include "framework/core/parameters.h"
#include "framework/ops/draw.h"

namespace longstride {

// What a model keeps between the positions of sequences being generated. Made by Model::begin_decoding.
class DecodingState {
 public:
  virtual ~DecodingState() = default;
  virtual std::int64_t bytes() const = 0;  // of the cache
};

class Model {
 public:
  virtual ~Model() = default;

  virtual ParameterSet& parameters() = 0;
  virtual std::int64_t context() const = 0;  // longest sequence
  virtual std::int64_t vocabulary() const = 0;

  // Losses -log p(x_i | x_<i) in nats of every position: tokens (batch, seq) u8, losses (batch, seq) of the
  // residual type, seq <= context(). No dropout.
  virtual void losses(Context& ctx, const Tensor& tokens, const Tensor& losses) const = 0;
  // The same with dropout, and in the same pass adds scale * d(sum of losses) to every parameter's gradient.
  virtual void loss_and_gradients(Context& ctx, const Tensor& tokens, double scale, const Tensor& losses) const = 0;

  // In a group (ctx.group) both take one whole sequence, whose positions its ranks divide, and losses (1, seq / ranks)
  // are those of this rank's positions. UserError when this model cannot be divided so.
  virtual void check_group(int ranks) const = 0;

  // Generation, one position of `batch` sequences at a time, at most `positions` of them. The cache is scratch of
  // ctx.arena for as long as the state lives: destroy it after any scratch taken later.
  virtual std::unique_ptr<DecodingState> begin_decoding(Context& ctx, std::int64_t batch,
                                                        std::int64_t positions) const = 0;
  // The logits (batch, vocabulary) of position `position`, given `previous` (batch, 1) u8, the token before it
  // (not read at position 0). Positions come in order, from 0.
  virtual void decode(Context& ctx, DecodingState& state, std::int64_t position, const Tensor& previous,
                      const Tensor& logits) const = 0;

  // Whether a whole position, from the last byte to the next one, is a single kernel's work: then generate() does
  // positions [first, first + count), in order, in one call.
  virtual bool generates(const DecodingState&) const { return false; }
  virtual void generate(Context& ctx, DecodingState& state, const ops::Drawing& drawing, std::int64_t first,
                        std::int64_t count) const;

  // Floating-point operations of forward and backward for one sequence of `positions`: 6 x parameters a position
  // plus the pattern's attention products; recompute is not counted.
  virtual double training_flops(std::int64_t positions) const = 0;
};

}  // namespace longstride
