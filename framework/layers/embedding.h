// H_0 = embed(x, W_e): token plus position embeddings behind a learned start vector (section 5.3), or of every
// position's own token. The tokens' may be scaled.
#pragma once
#include <string>
#include <vector>

#include "framework/core/batch.h"
#include "framework/core/context.h"
#include "framework/core/parameters.h"
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
  // Declares `name`.start (width), unless positions read their own tokens, `name`.token.weight (vocabulary, width), or
  // with another ending than .token, and `name`.position.<j>.weight (size, width), normal with these standard
  // deviations.
  EmbeddingLayer(ParameterSet& parameters, const std::string& name, std::int64_t vocabulary, std::int64_t width,
                 const std::vector<PositionIndex>& positions, double token_deviation, double position_deviation,
                 double scale = 1, ReadsToken reads = ReadsToken::previous, const std::string& ending = ".token");

  // y (batch, run, width): positions [first, first + run) of the sequences batch.tokens (batch, seq), seq >= first +
  // run. The embedding of a position reads the token that Batch says, or its own. first > 0 requires a single sequence,
  // without targets unless positions read their own tokens. Documents are the context's.
  void forward(Context& ctx, const Batch& batch, const Tensor& y, std::int64_t first = 0) const;
  void backward(Context& ctx, const Tensor& dy, const Batch& batch, std::int64_t first = 0) const;
  // Generation: y (batch, 1, width) of one position, previous (batch, 1) u8 the tokens before it.
  void decode(Context& ctx, const Tensor& previous, const Tensor& y, std::int64_t position) const;
  Parameter& token() const { return token_; }
  // Weights of another model may lack the tables (Parameter::may_be_new).
  void may_be_new();
  // The tables alone: the parameters' masters or gradients.
  kernels::EmbeddingArgs tables(Tensor Parameter::*which = &Parameter::master) const;

 private:
  void read(const Context& ctx, kernels::EmbeddingArgs& args, const Batch& batch, std::int64_t first,
            std::int64_t run) const;

  Parameter* start_;  // null where positions read their own tokens
  Parameter& token_;
  std::vector<PositionIndex> index_;
  std::vector<Parameter*> position_;
  double scale_;
};

}  // namespace longstride
