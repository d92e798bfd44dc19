// The interface of an architecture that the trainer and the evaluator use, and the capabilities that only some
// architectures have. A new one derives from Model and from the capabilities that it supports, and builds its own tree
// of layers (docs/develop/adding_a_model.md).
#pragma once
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "framework/core/batch.h"
#include "framework/core/context.h"
#include "framework/core/errors.h"
#include "framework/core/parameters.h"
#include "kernels/draw/draw.h"

namespace longstride {

// The cost of one sequence.
struct SequenceCost {
  double training_flops = 0;  // forward and backward: 6 x parameters per position plus the attention products of the
                              // allowed pairs; recompute is not counted
  double allowed_pairs = 0;   // (query, key) pairs of all heads of all layers; 0 without attention
  double dense_pairs = 0;     // allowed_pairs if every query attended to all keys that its direction allows
};

class Model {
 public:
  virtual ~Model() = default;

  virtual ParameterSet& parameters() = 0;
  virtual std::int64_t context() const = 0;  // longest sequence
  virtual std::int64_t vocabulary() const = 0;
  // The states that its layers keep from step to step, an instance of which is in the context; empty for most models.
  virtual const StateSet& states() const;
  // After how many steps from a stream's start its rows remember as much as they can: then a step takes longest.
  virtual std::int64_t warm_up_steps() const { return 0; }
  // Through what rows remember, a step's first prediction depends on at most this many tokens; by default on all.
  virtual std::int64_t reach_of_memory() const { return std::numeric_limits<std::int64_t>::max(); }
  // Names of the losses that it adds to the mean loss of its predictions, each with a coefficient of its own. They are
  // reported by name, apart from that loss, and have no part in evaluation.
  virtual std::vector<std::string> auxiliary_losses() const { return {}; }
  // The fields that it reads: by default tokens, and if it has states, targets and starts.
  virtual BatchFields fields() const;

  // Losses of what the rows ask, in nats, each multiplied by its weight: batch (batch, seq), seq <= context(), losses
  // (batch, fields().losses(seq)) of the exact type; of the next byte -log p(x_i | x_<i). No dropout.
  virtual void losses(Context& ctx, const Batch& batch, const Tensor& losses) const = 0;
  // The same with dropout; also adds scale * d(sum of losses) to every parameter's gradient, and the auxiliary losses
  // and their gradients as Context::auxiliary tells.
  virtual void loss_and_gradients(Context& ctx, const Batch& batch, double scale, const Tensor& losses) const = 0;

  virtual SequenceCost cost(std::int64_t positions) const = 0;
};

// The model as one of the interfaces below; null if it lacks that capability.
template <class Ability>
const Ability* capability(const Model& model) {
  return dynamic_cast<const Ability*>(&model);
}
// The same, but a UserError if it is lacking: "this model cannot <what>".
template <class Ability>
const Ability& required(const Model& model, std::string_view what) {
  if (const auto* ability = capability<Ability>(model)) return *ability;
  throw user_error("this model cannot {}", what);
}

// The state of a model between the positions of sequences being generated. Made by Decodes::begin_decoding.
class DecodingState {
 public:
  virtual ~DecodingState() = default;
  virtual std::int64_t bytes() const = 0;  // size of the cache
};

// Generation, one position of `batch` sequences at a time, at most `positions` of them.
class Decodes {
 public:
  virtual ~Decodes() = default;
  // The cache is scratch in ctx.arena and lives as long as the state. Scratch taken later must be released before the
  // state is destroyed.
  virtual std::unique_ptr<DecodingState> begin_decoding(Context& ctx, std::int64_t batch,
                                                        std::int64_t positions) const = 0;
  // The work before decode() at some positions alone, which is no part of a graph that serves every position. decode()
  // does it itself unless ctx.position is given. A later segment takes at least as much memory.
  virtual void begin_position(Context& /*ctx*/, DecodingState& /*state*/, std::int64_t /*position*/) const {}
  // Positions from this one on, at least 1, that decode() takes at once, so that prompts are read in fewer calls; 1
  // where ctx.position is given.
  virtual std::int64_t positions_together(std::int64_t /*position*/) const { return 1; }
  // The logits (batch n, vocabulary) of the n positions from `position` on, given `previous` (batch, n) u8 or u16, the
  // tokens before them (not read at position 0). Positions come in order, from 0.
  virtual void decode(Context& ctx, DecodingState& state, std::int64_t position, const Tensor& previous,
                      const Tensor& logits) const = 0;
};

// Generation on a GPU in which a single kernel does the work of a whole position, from the previous byte to the next.
class GeneratesInOneKernel {
 public:
  virtual ~GeneratesInOneKernel() = default;
  virtual bool generates(const DecodingState& state) const = 0;  // true if the kernel supports this model and batch
  // Positions [first, first + count), in order, in one call.
  virtual void generate(Context& ctx, DecodingState& state, const kernels::Drawing& drawing, std::int64_t first,
                        std::int64_t count) const = 0;
};

// Hidden rows: what a head reads of every position.
class Encodes {
 public:
  virtual ~Encodes() = default;
  virtual std::int64_t width() const = 0;
  // hidden (batch, seq, width) of any type, without dropout.
  virtual void encode(Context& ctx, const Batch& batch, const Tensor& hidden) const = 0;
};

// Answers to what rows ask, besides their losses.
class Predicts {
 public:
  virtual ~Predicts() = default;
  // The scores of the answers to what a row of `positions` asks, (asked, answers).
  virtual Shape scores_shape(std::int64_t positions) const = 0;
  // scores (batch, asked, answers) of the exact type: logarithms of odds, or of probabilities but for a sum.
  virtual void predict(Context& ctx, const Batch& batch, const Tensor& scores) const = 0;
};

// Knows how right its answers are.
class Judges {
 public:
  virtual ~Judges() = default;
  // Model::losses; `right` (batch, asked) of the type judged(), u8 or f32, becomes how right the answer is: 1 where the
  // target has the best score, and 0 elsewhere; or what the head says of it, from 0 to 1.
  virtual Dtype judged() const { return Dtype::u8; }
  virtual void judge(Context& ctx, const Batch& batch, const Tensor& losses, const Tensor& right) const = 0;
};

// Training and evaluation by a group of ranks (Context::group) that divide the positions of every sequence. `losses`
// and `loss_and_gradients` then take one whole sequence, and losses (1, seq / ranks) are those of this rank's
// positions.
class DividesSequences {
 public:
  virtual ~DividesSequences() = default;
  virtual void check_group(int ranks) const = 0;  // UserError if this model cannot be divided between `ranks`
};

// Mixers whose windows stages of training may set (TrainConfig::stages).
class SetsWindows {
 public:
  virtual ~SetsWindows() = default;
  // One for all layers, or one per layer; empty: those of its settings. UserError if windows are given and it has none
  // to set. Anything that is on a queue or in a graph keeps the windows that it was made with.
  virtual void set_windows(const std::vector<std::int64_t>& of_layers) = 0;
};

}  // namespace longstride
