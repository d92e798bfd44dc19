// What models with attention show of it: which keys a query sees and how far back that reaches, for `show pattern` and
// `plan`, and the probabilities over a text, for `attention`. Capabilities, like those of model.h.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "framework/core/batch.h"
#include "framework/core/context.h"
#include "kernels/distance_attention/distance_attention.h"

namespace longstride {

// Rows of keys that the queries of a segment see: what a layer remembers, oldest first, then the segment itself. Query
// i is at row before() + i.
struct KeyRows {
  std::int64_t compressed = 0, memory = 0;
  std::int64_t segment = 0;
  std::int64_t rate = 0;  // positions that a compressed row was made of; 0: there are none

  std::int64_t before() const { return compressed + memory; }
  std::int64_t all() const { return before() + segment; }
};

struct AttentionShape {
  std::int64_t layers = 0, heads = 0;
  KeyRows keys;             // of a whole segment
  std::int64_t stride = 0;  // positions after which the pattern repeats; 0: it does not
};

class ShowsAttention {
 public:
  virtual ~ShowsAttention() = default;
  virtual AttentionShape attention_shape() const = 0;
  // What one head of a layer does, in a few words.
  virtual std::string attention_kind(std::int64_t layer, std::int64_t head) const = 0;

  // What a pair's probability is multiplied by: 0 if the query does not see the key row, and otherwise 1 but on the
  // ramp of a learned span. `span`, in positions, is read for heads that learn one (LearnsSpans).
  using PairWeight = std::function<double(std::int64_t query, std::int64_t key)>;
  virtual PairWeight pair_weight(std::int64_t layer, std::int64_t head, double span) const = 0;

  // probabilities[q][head][key row]: those of queries[q] for its key rows 0 to before() + queries[q].
  using Probabilities = std::vector<std::vector<std::vector<double>>>;
  using AttentionVisitor = std::function<void(std::int64_t layer, const Probabilities& probabilities)>;
  // Runs the layers on one row, which continues what the context's states remember, without dropout and on the CPU.
  virtual void visit_attention(Context& ctx, const Batch& batch, const std::vector<std::int64_t>& queries,
                               const AttentionVisitor& visit) const = 0;
};

// How many positions back the layers' input is read, at most, once all that can be remembered is.
struct LookBack {
  std::int64_t farthest = 0;        // from any position of a segment
  std::int64_t before_segment = 0;  // from the first position of the segment
};

// Attention that may read what earlier segments have left.
class LooksBack {
 public:
  virtual ~LooksBack() = default;
  virtual LookBack look_back() const = 0;                             // of all layers together
  virtual LookBack look_back_of_layer(std::int64_t layer) const = 0;  // of one by itself
  // Keys that a query sees, the mean of all layers, heads and positions of a segment; `span` as for pair_weight.
  virtual double mean_keys(double span) const = 0;
};

// Attention with a distance term (kernels/distance_attention).
class AttendsByDistance {
 public:
  virtual ~AttendsByDistance() = default;
  struct Layer {
    kernels::DistanceScores scores;  // of a whole segment: tensors without data
    std::int64_t value_size = 0;
  };
  virtual std::vector<Layer> distance_attention() const = 0;
};

}  // namespace longstride
