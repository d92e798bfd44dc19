// Models whose layers have mixers (framework/mixers/mixer.h): what commands ask of a model's attention.
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "framework/core/batch.h"
#include "framework/mixers/mixer.h"
#include "framework/models/model.h"

namespace longstride {

class MixesPositions {
 public:
  virtual ~MixesPositions() = default;
  virtual std::int64_t layers() const = 0;
  virtual const Mixer& mixer(std::int64_t layer) const = 0;

  // probabilities[q][head][key row]: those of queries[q] for its key rows 0 to before() + queries[q], or all
  // rows in both directions.
  using Probabilities = std::vector<std::vector<std::vector<double>>>;
  using AttentionVisitor = std::function<void(std::int64_t layer, const Probabilities& probabilities)>;
  // Runs the layers on one row, which continues what the context's states remember, without dropout and on the CPU.
  virtual void visit_attention(Context& ctx, const Batch& batch, const std::vector<std::int64_t>& queries,
                               const AttentionVisitor& visit) const = 0;
};

// How many positions back the layers' input is read, at most, once all that can be remembered is: by all layers
// together, and by one by itself.
LookBack look_back(const MixesPositions& model);
LookBack look_back_of_layer(const MixesPositions& model, std::int64_t layer);

}  // namespace longstride
