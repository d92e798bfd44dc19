// A model of one stack: input, blocks along a residual stream, a head. Kinds choose the token that a position reads,
// the direction and the head; everything else is here.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "framework/layers/heads/head.h"
#include "framework/layers/input.h"
#include "framework/layers/stack.h"
#include "framework/models/mixes_positions.h"
#include "framework/models/model.h"
#include "framework/models/stack_config.h"

namespace longstride {

struct InputForm {
  ReadsToken reads = ReadsToken::previous;
  bool norm = false;   // behind the embeddings: embedding.norm
  bool types = false;  // embeddings of types: embedding.types
};

class StackModel : public Model, public SetsWindows, public MixesPositions, public Encodes {
 public:
  ParameterSet& parameters() override { return parameters_; }
  std::int64_t context() const override { return config_->context; }
  std::int64_t vocabulary() const override { return config_->vocabulary; }
  const StateSet& states() const override { return states_; }
  BatchFields fields() const override;
  std::int64_t warm_up_steps() const override;
  std::int64_t reach_of_memory() const override;
  std::vector<std::string> auxiliary_losses() const override { return family_->auxiliary_losses(); }

  void losses(Context& ctx, const Batch& batch, const Tensor& losses) const override;
  void loss_and_gradients(Context& ctx, const Batch& batch, double scale, const Tensor& losses) const override;
  SequenceCost cost(std::int64_t positions) const override;
  void set_windows(const std::vector<std::int64_t>& of_layers) override;
  void encode(Context& ctx, const Batch& batch, const Tensor& hidden) const override;
  std::int64_t width() const override { return config_->width; }

  std::int64_t layers() const override { return config_->layers; }
  const Mixer& mixer(std::int64_t layer) const override { return *mixers_[static_cast<std::size_t>(layer)]; }
  void visit_attention(Context& ctx, const Batch& batch, const std::vector<std::int64_t>& queries,
                       const AttentionVisitor& visit) const override;

 protected:
  // Declares everything but the head, which the kind declares behind it, and then lays the parameters out.
  StackModel(std::shared_ptr<const StackConfig> config, const InputForm& input);
  void finish(std::unique_ptr<Head> head);

  const Input& input() const { return *input_; }
  const Stack& stack() const { return *stack_; }
  // Calls use(context, hidden) with the normalised output of the stack, without dropout.
  template <class Use>
  void with_hidden(Context& ctx, const Batch& batch, const Use& use) const;
  void losses_with(Context& ctx, const Batch& batch, const Tensor& losses, const Tensor& right) const;
  const Head& head() const { return *head_; }
  // Adds losses of all rows of the stack's output, those that are added first, to Context::auxiliary, and their
  // gradients to d, which is 0 in added rows.
  virtual void add_losses(Context& /*ctx*/, const Batch& /*batch*/, const Tensor& /*rows*/, const Tensor& /*d*/) const {
  }
  ParameterSet& declared() { return parameters_; }

 private:
  // The positions of each sequence that this rank holds in a step or an evaluation, and what they are asked.
  struct RankSpan {
    std::int64_t first = 0, positions = 0;
    Head::Asked asked;
  };
  // Sets the bounds of a batch's documents and global rows, if it has them, in `memory`: a Tape, or Scratch.
  template <class Memory>
  void set_bounds(Context& ctx, const Batch& batch, Memory& memory) const;
  template <class Memory>
  kernels::GlobalSight global_sight(Context& ctx, const Batch& batch, Memory& memory) const;
  std::int64_t added_rows() const { return config_->global.added; }
  // The rows of positions among the stack's, in `scratch` if others are in front of them.
  Tensor of_positions(Context& ctx, const Tensor& rows, Scratch& scratch) const;
  RankSpan span_of(const Context& ctx, const Batch& batch) const;

  std::shared_ptr<const StackConfig> config_;
  ParameterSet parameters_;
  StateSet states_;
  std::unique_ptr<MixerFamily> family_;
  std::vector<std::shared_ptr<const Mixer>> mixers_;  // the blocks' own
  std::unique_ptr<Input> input_;
  std::unique_ptr<Stack> stack_;
  std::unique_ptr<Head> head_;
};

template <class Use>
void StackModel::with_hidden(Context& ctx, const Batch& batch, const Use& use) const {
  const RankSpan here = span_of(ctx, batch);
  Context quiet = ctx;
  quiet.step = nullptr;  // no dropout
  Scratch scratch(quiet);
  set_bounds(quiet, batch, scratch);
  const Tensor h = scratch.tensor({batch.rows(), added_rows() + here.positions, config_->width}, ctx.residual_dtype());
  input_->forward(quiet, batch, h, nullptr, here.first);
  const Tensor normed = scratch.tensor(h.shape(), ctx.compute);
  stack_->forward(quiet, h, normed, nullptr);
  use(quiet, of_positions(quiet, normed, scratch));
  family_->end_step(quiet, batch.tokens.size(1));
}

}  // namespace longstride
