// A mixer: the branch of a block in which positions exchange information (attention, attention with a distance term).
// It answers for itself what it costs, sees, remembers, shows, cannot do and would do faster, so that models, training
// and commands name none.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "framework/layers/branch.h"
#include "framework/mixers/reach.h"

namespace longstride {

// Rows of keys that the queries of a segment see: what a layer remembers, oldest first, or global rows that the model
// adds, then the segment itself. Query i is at row before() + i.
struct KeyRows {
  std::int64_t compressed = 0, memory = 0;
  std::int64_t segment = 0;
  std::int64_t rate = 0;  // positions that a compressed row was made of; 0: there are none
  bool ahead = false;     // queries see rows of later positions as well
  std::int64_t added = 0;

  std::int64_t before() const { return compressed + memory + added; }
  std::int64_t all() const { return before() + segment; }
  // Behind the last row that a query may see.
  std::int64_t end_of(std::int64_t query) const { return ahead ? all() : before() + query + 1; }
};

// The cost of one sequence in one layer.
struct PairCost {
  double pairs = 0;           // (query, key) pairs of all heads
  double dense_pairs = 0;     // pairs if every query saw all key rows, up to its own unless it looks ahead
  double training_flops = 0;  // beyond 6 per parameter and position; recompute is not counted
  // Operations of its kernels that depend on the pairs, so that the kernels cannot count them themselves.
  double forward_flops = 0, backward_flops = 0;
};

// Heads that learn how far they look back, each a share of the longest span.
struct HeadSpans {
  double longest = 0, ramp = 0;  // positions
  double initial = 0;            // positions: every head's before training
  std::string parameter;         // name of the heads' shares; empty: the heads learn no spans
  std::int64_t first_head = 0;   // the layer's head that has the first share

  bool learned() const { return !parameter.empty(); }
};

// A mixer's kernels by themselves, without projections, over memory that the caller's scratch holds.
struct MixerBench {
  struct Work {
    double bytes = 0, flops = 0;  // at least: every tensor once, the products of all pairs
  };
  std::string name;            // with its sizes
  std::vector<Tensor> inputs;  // to be filled with normal numbers
  std::vector<Tensor> zeros;   // to be cleared: gradients that accumulate
  std::function<void(Context&)> forward, backward;
  Work forward_work, backward_work;
};

class Mixer : public Branch {
 public:
  virtual std::int64_t heads() const = 0;
  // The work of one head, in a few words.
  virtual std::string kind(std::int64_t head) const = 0;
  virtual KeyRows key_rows() const = 0;              // key rows that a whole segment sees
  virtual std::int64_t stride() const { return 0; }  // positions after which what it sees repeats; 0: it does not
  virtual PairCost cost(std::int64_t positions) const = 0;

  // The factor of a pair's probability: 0 if the query does not see the key row, and otherwise 1 but on the ramp of a
  // learned span. `span`, in positions, is read by heads that learn one.
  using PairWeight = std::function<double(std::int64_t query, std::int64_t key)>;
  virtual PairWeight pair_weight(std::int64_t head, double span) const = 0;
  // Why its pairs have no probabilities to show; empty: they have.
  virtual std::string problem_of_probabilities() const { return {}; }
  // Calls see(n, probabilities) for each of queries[n] of one row: probabilities[head][key row], for its key rows 0 to
  // before() + queries[n], or all rows in both directions; without dropout, on the CPU. `normed` (1, seq, width) is the
  // mixer's input.
  using SeeProbabilities = std::function<void(std::size_t n, const std::vector<std::vector<double>>& probabilities)>;
  virtual void show_probabilities(Context& ctx, const Tensor& normed, const std::vector<std::int64_t>& queries,
                                  const SeeProbabilities& see) const = 0;
  // Keys that a query sees, the mean of all heads and positions of a segment; absent where the share of the causal
  // pairs says it. `span` as for pair_weight.
  virtual std::optional<double> mean_keys(double /*span*/) const { return std::nullopt; }
  // Adds what this layer reads to `reach`, which holds the layers below.
  virtual void extend(Reach& reach) const = 0;
  // Positions before the segment that the layer remembers; a compressed row is all positions it was made of.
  virtual std::int64_t remembered_positions() const { return 0; }
  // The state that heads keep in place of keys, in a few words; empty: they keep keys.
  virtual std::string state() const { return {}; }
  // True if its memory depends on everything before, however long ago.
  virtual bool remembers_without_end() const { return false; }
  virtual HeadSpans spans() const { return {}; }

  // True if decode() takes (batch, n, width), n positions of one segment.
  virtual bool decodes_several() const { return false; }
  // Precedes decode() at some positions alone, and so is not part of a graph that serves every position.
  virtual void begin_position(Context& /*ctx*/, BranchCache* /*cache*/, std::int64_t /*position*/) const {}
  // Adds the losses of its parameters, and their gradients, to Context::auxiliary.
  virtual void add_parameter_losses(Context& /*ctx*/) const {}

  // A sentence that says which shape makes the kernels for Hopper slow, with the nearest that is fast; empty: none.
  virtual std::string slow(std::int64_t /*positions*/) const { return {}; }
  // Why a GPU cannot compute it; empty: it can.
  virtual std::string problem_on_gpu() const { return {}; }
  // Why `ranks` cannot divide a sequence; empty: they can.
  virtual std::string problem_of_ranks(int /*ranks*/) const { return {}; }
  // Its name and settings in a few words, for a report.
  virtual std::string summary() const = 0;
  virtual std::vector<MixerBench> bench(Context& ctx, Scratch& scratch, std::int64_t batch,
                                        std::int64_t positions) const = 0;
};

// Where a mixer stands in its model.
struct LayerPlace {
  std::int64_t layer = 0;    // counted in the model
  std::string name;          // prefix of the mixer's parameters and states
  std::int64_t ordinal = 0;  // among the layers of its family
  std::int64_t slot = 0;     // among the mixers side by side in its layer
};

// State that layers of one kind share: plans, tables, counts of remembered positions. Made before the embedding, so
// that the gradients of shared parameters count as final after those of all layers.
class MixerFamily {
 public:
  virtual ~MixerFamily() = default;
  // Declares a layer's parameters and states.
  virtual std::shared_ptr<const Mixer> layer(ParameterSet& parameters, StateSet& states,
                                             const LayerPlace& place) const = 0;
  // Follows a step, or a window of an evaluation, of `positions`: what is counted once for all layers.
  virtual void end_step(Context& /*ctx*/, std::int64_t /*positions*/) const {}
  // Names of its losses beside that of the predictions (Model::auxiliary_losses).
  virtual std::vector<std::string> auxiliary_losses() const { return {}; }
  // Receives the names of the whole model's losses, to find its own; before layers are made.
  virtual void place_losses(const std::vector<std::string>& /*all*/) {}
  // Windows of all layers, one for all or one per layer; empty: those of the settings. False: it has none to set.
  virtual bool set_windows(const std::vector<std::int64_t>& /*of_layers*/) { return false; }
};

}  // namespace longstride
