// Blocks along a residual stream, each a mixer and a feed-forward branch, without the two ends of a model: embedding
// and head belong to the model, which may have several stacks.
//   a(H) = dropout(mixer(norm(H))),  b(H) = dropout(ff(norm(H + a(H)))),  H_{k+1} = H_k + a + b      (Eq. 10 to 13)
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "framework/layers/block_form.h"
#include "framework/layers/feed_forward_branch.h"
#include "framework/layers/residual_stream.h"

namespace longstride {

// Names and ids by which a model's stacks differ.
struct StackPlace {
  std::string prefix;               // prefix of parameter names: <prefix>layers.0.*, <prefix>final_norm.*
  std::uint32_t first_dropout = 0;  // id of the first branch; a stack takes two per layer
};

class Stack {
 public:
  // Declares a layer's mixer under `name`, between the layer's two norms.
  using MakeMixer = std::function<std::shared_ptr<const Branch>(std::int64_t layer, const std::string& name)>;
  // Declares the parameters; the model lays them out.
  Stack(const BlockForm& form, const StackPlace& place, ParameterSet& parameters, const MakeMixer& make_mixer);

  // h (batch, seq, width) of the residual stream's type is H_0; normed, of the compute type, becomes the normalised
  // H_N. As ResidualStream's.
  void forward(Context& ctx, const Tensor& h, const Tensor& normed, Tape* tape) const {
    stream_->forward(ctx, h, normed, tape);
  }
  // d, the gradient of normed, is overwritten; dh becomes that of H_0.
  void backward(Context& ctx, const Tensor& d, const Tensor& dh, Tape& tape) const {
    stream_->backward(ctx, d, dh, tape);
  }
  // Forward without a tape that shows the input of every mixer before it runs.
  void observe_mixers(Context& ctx, const Tensor& h, const Tensor& normed,
                      const std::function<void(std::int64_t layer, const Tensor& normed)>& see) const;

  // Generation, one position at a time: h and normed are (batch, 1, width).
  class Caches {
   public:
    BranchCache* mixer(std::int64_t layer) const { return all_[static_cast<std::size_t>(2 * layer)].get(); }
    std::int64_t layers() const { return std::ssize(all_) / 2; }

   private:
    friend class Stack;
    ResidualStream::Caches all_;  // one per branch
  };
  Caches make_caches(Context& ctx, Scratch& memory, std::int64_t batch, std::int64_t positions) const;
  void decode(Context& ctx, const Tensor& h, const Tensor& normed, const Caches& caches, std::int64_t position) const {
    stream_->decode(ctx, h, normed, caches.all_, position);
  }

  struct Block {
    std::shared_ptr<const LayerNorm> attention_norm, feed_forward_norm;
    std::shared_ptr<const Branch> mixer;
    std::shared_ptr<const FeedForwardBranch> feed_forward;
  };
  const std::vector<Block>& blocks() const { return blocks_; }
  const LayerNorm* final_norm() const { return final_norm_.get(); }  // null with post-norm

 private:
  void add_block(const BlockForm& form, const StackPlace& place, std::int64_t layer, ParameterSet& parameters,
                 const MakeMixer& make_mixer);

  std::vector<Block> blocks_;
  std::shared_ptr<const LayerNorm> final_norm_;
  std::unique_ptr<ResidualStream> stream_;
};

}  // namespace longstride
