// H_0 = embed(x, W_e): token plus position embeddings behind a learned start vector (section 5.3), or of every
// position's own token. The tokens' may be scaled, and have tables by bands of the vocabulary, with projections to the
// width (token_table.h); the start vector is then one of the first band's.
#pragma once
#include <string>
#include <vector>

#include "framework/core/batch.h"
#include "framework/core/context.h"
#include "framework/layers/token_table.h"
#include "kernels/embedding/embedding.h"

namespace longstride {

// Position p reads row (p / divisor) mod size of a table of `size` rows.
struct PositionIndex {
  std::int64_t divisor = 1;
  std::int64_t size = 1;
};

// The token that a position reads: the one before it, which it then predicts, or its own.
enum class ReadsToken : std::uint8_t { previous, own };

class EmbeddingLayer {
 public:
  // Declares `name`.start (width), unless positions read their own tokens, the table `name`.token, or with another
  // ending, and `name`.position.<j>.weight (size, width), normal with this standard deviation.
  EmbeddingLayer(ParameterSet& parameters, const std::string& name, const TableForm& tokens,
                 const std::vector<PositionIndex>& positions, double position_deviation, double scale = 1,
                 ReadsToken reads = ReadsToken::previous, const std::string& ending = ".token");

  // y (batch, run, width): positions [first, first + run) of the sequences batch.tokens (batch, seq), seq >= first +
  // run. The embedding of a position reads the token that Batch says, or its own. first > 0 requires a single sequence,
  // without targets unless positions read their own tokens. Documents are the context's.
  void forward(Context& ctx, const Batch& batch, const Tensor& y, std::int64_t first = 0) const;
  void backward(Context& ctx, const Tensor& dy, const Batch& batch, std::int64_t first = 0) const;
  // Generation: y (batch, 1, width) of one position, previous (batch, 1) u8 the tokens before it.
  void decode(Context& ctx, const Tensor& previous, const Tensor& y, std::int64_t position) const;
  const TokenTable& tokens() const { return tokens_; }
  // Weights of another model may lack the tables (Parameter::may_be_new).
  void may_be_new();
  // The tables alone: the parameters' masters or gradients. Without projections.
  kernels::EmbeddingArgs tables(Tensor Parameter::*which = &Parameter::master) const;

 private:
  // y, and the gradients of dy, of what `args` reads, by bands if they project.
  void look_up(Context& ctx, kernels::EmbeddingArgs args, const Tensor& y) const;
  void look_up_back(Context& ctx, kernels::EmbeddingArgs args, const Tensor& dy) const;
  // `args` for the table of a band, without those of positions; or for those alone.
  kernels::EmbeddingArgs of_band(kernels::EmbeddingArgs args, std::int64_t band, Tensor Parameter::*which) const;
  kernels::EmbeddingArgs of_positions(kernels::EmbeddingArgs args) const;
  void read(const Context& ctx, kernels::EmbeddingArgs& args, const Batch& batch, std::int64_t first,
            std::int64_t run) const;

  Parameter* start_;  // null where positions read their own tokens
  TokenTable tokens_;
  std::vector<PositionIndex> index_;
  std::vector<Parameter*> position_;
  double scale_;
};

}  // namespace longstride
