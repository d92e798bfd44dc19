// out = W_p attention(normed) + b_p, the inside of the dropout in a(H) = dropout(attention(norm(H))) (Eq. 12).
// attention: several heads over one pattern (Eq. 2 to 8), scaled by 1 / sqrt(key size). Queries and keys may be
// normalised and rotated first.
#pragma once
#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "framework/layers/block_form.h"
#include "framework/layers/linear.h"
#include "framework/mixers/attention/plans.h"
#include "framework/mixers/mixer.h"
#include "kernels/attention/decode/decode.h"
#include "kernels/attention/pattern/block_lists.h"
#include "kernels/attention/pattern/row_bounds.h"
#include "kernels/attention/term/labels.h"
#include "kernels/query_key/query_key.h"

namespace longstride {

struct AttentionMixerConfig {
  std::int64_t width = 0, heads = 0, key_size = 0, value_size = 0;
  std::int64_t key_heads = 0;   // heads of keys and values, which divide the heads: each serves as many of theirs
  double weight_deviation = 0;  // deviation of W_qkv's initial values
  double output_deviation = 0;  // deviation of W_p's initial values
  bool biased = true;           // W_qkv has a bias
  bool output_biased = true;    // W_p has a bias
  kernels::QueryKeyTransform transform;
  std::int64_t segment = 0;    // positions of a whole one
  bool sink = false;           // every head has a learned sink
  GlobalRows global = {};      // rows: keys of the pattern's plan, or added ones, which it does not have
  std::int64_t labels = 0;     // vectors of distances, clipped there, are added to keys (Shaw et al. 2018); 0: none
  double label_deviation = 0;  // deviation of their initial values
};

// The keys and values of earlier positions.
struct AttentionCache : BranchCache {
  std::shared_ptr<const kernels::DecodePlan> plan;
  kernels::DecodeCache rows;
};

class AttentionMixer final : public Mixer {
 public:
  // Parameters: `name`.query_key_value.*, `name`.output.*; with a sink `name`.sink (heads), initially 0; with labels
  // `name`.labels (labels, heads, key size) of the queries of positions, and `name`.global_labels of those of added
  // rows: distances from -labels on, then, where rows are added, the other side's own rows and, if they are of groups,
  // its others; where global rows have their own, `name`.global_query.* and `name`.global_key_value.*, initially as
  // query_key_value
  AttentionMixer(ParameterSet& parameters, const std::string& name, const AttentionMixerConfig& config,
                 std::shared_ptr<const AttentionPlans> plans, std::int64_t layer);

  void forward(Context& ctx, const Tensor& normed, const BranchOutput& out, Tape* tape) const override;
  bool adds_residual() const override { return true; }
  Tensor output_bias_gradient() const override { return output_.bias_gradient(); }
  const Parameter& gradients_final_from() const override { return query_key_value_.weight(); }
  void backward(Context& ctx, const Tensor& dout, const Tensor& dnormed, Tape& tape) const override;
  // The kernel's own outputs, o and lse, are kept. q, k, v, the exchange between sequence ranks and W_p are repeated.
  int kept_results() const override { return config_.global.given() ? 3 : 2; }
  void forward_keeping(Context& ctx, const Tensor& normed, const BranchOutput& out, Tape& tape) const override;
  void forward_again(Context& ctx, const Tensor& normed, const BranchOutput& out, const KeptResults& kept,
                     Tape& tape) const override;
  struct QkvHeads {
    Tensor q, k, v;  // (batch, seq, heads, size)
  };
  // The inputs of attention for positions `first` and later, in `scratch`.
  QkvHeads project(Context& ctx, const Tensor& normed, std::int64_t first, Scratch& scratch) const;
  std::unique_ptr<BranchCache> make_cache(Context& ctx, Scratch& memory, std::int64_t batch,
                                          std::int64_t positions) const override;
  void decode(Context& ctx, const Tensor& normed, const Tensor& out, BranchCache* cache,
              std::int64_t position) const override;

  // In facts.cpp.
  std::int64_t heads() const override { return config_.heads; }
  bool shares_keys() const { return config_.key_heads < config_.heads; }
  std::string kind(std::int64_t head) const override;
  KeyRows key_rows() const override {
    return {.segment = config_.segment,
            .ahead = plans_->pattern().direction == kernels::Direction::both,
            .added = config_.global.added};
  }
  std::int64_t stride() const override { return plans_->pattern().stride; }
  PairCost cost(std::int64_t positions) const override;
  PairWeight pair_weight(std::int64_t head, double span) const override;
  void show_probabilities(Context& ctx, const Tensor& normed, const std::vector<std::int64_t>& queries,
                          const SeeProbabilities& see) const override;
  void extend(Reach& reach) const override;
  std::string slow(std::int64_t positions) const override;
  std::string problem_on_gpu() const override;
  std::string problem_of_ranks(int ranks) const override;
  std::string summary() const override;
  std::vector<MixerBench> bench(Context& ctx, Scratch& scratch, std::int64_t batch,
                                std::int64_t positions) const override;

  const Linear& query_key_value() const { return query_key_value_; }
  const Linear& output() const { return output_; }
  bool has_sink() const { return sink_ != nullptr; }

 private:
  // The outputs of the kernel for this rank's heads: o (batch, seq, heads value size) and lse (batch, heads, seq); and
  // lse of global rows, which lse leaves out if they are added.
  struct Attended {
    Tensor o, lse, global_lse;
  };
  // The parameters of scores, and their gradients; absent ones are not there.
  struct Table {
    Tensor value = {}, gradient = {};
  };
  struct Terms {
    Table sink, labels, global_labels;
  };
  Terms terms_of(const Context& ctx) const;
  // The input of global rows: the mixer's own heads, or with projections of their own their input (batch, rows, width)
  // and its queries, and keys and values of all rows.
  struct GlobalInput {
    QkvHeads heads;
    Tensor rows, query, key_value;
  };
  // Saves everything on `tape`, and only what attention gives on `kept_on`; either may be null. What is `known` is not
  // computed.
  void forward_with(Context& ctx, const Tensor& normed, const BranchOutput& out, Tape* tape, Tape* kept_on,
                    Attended known) const;
  Attended attend(Context& ctx, const QkvHeads& in, Scratch& scratch, Tape* tape) const;
  // Writes o, but not rows that are added, and lse.
  void attend_to(Context& ctx, const QkvHeads& in, const Attended& out, const Terms& terms) const;
  // The lists of key blocks of this rank's heads; from_keys: with their transpose.
  kernels::BlockLists lists_of(Context& ctx, std::int64_t positions, Scratch& scratch, bool from_keys = false) const;

  // In global_rows.cpp.
  std::int64_t global_rows(std::int64_t positions) const {
    return config_.global.added > 0 ? config_.global.added : std::min(config_.global.first, positions);
  }
  GlobalInput project_global(Context& ctx, const Tensor& normed, const QkvHeads& own, Scratch& scratch,
                             Tape* tape) const;
  GlobalInput global_input(const QkvHeads& own, const Tensor& rows, const Tensor& query, const Tensor& key_value) const;
  // Overwrites global rows of attended.o, and sets attended.global_lse.
  void attend_globally(Context& ctx, const GlobalInput& in, Attended& attended, Scratch& scratch, Tape* tape) const;
  // The gradients of what global rows read: like qkv where it is shared, then to be added; or of `query` and
  // `key_value`.
  struct GlobalGradients {
    Tensor qkv, query, key_value;
  };
  GlobalGradients global_gradients(Context& ctx, const GlobalInput& in, Scratch& scratch) const;
  // Overwrites them, and clears global rows of d_heads, which only they read, unless they are added.
  void backward_globally(Context& ctx, const GlobalInput& in, const Attended& attended, const Tensor& d_heads,
                         const GlobalGradients& gradients) const;
  // Adds the gradients of projections of their own, and dnormed +=.
  void add_global_gradients(Context& ctx, const GlobalInput& in, const GlobalGradients& gradients, const Tensor& normed,
                            const Tensor& dnormed) const;
  kernels::RowBounds of_global_rows(Context& ctx, std::int64_t rows, Scratch& scratch) const;

  // In pieces.cpp: attention of positions, or of added global rows, to both, under one softmax.
  enum class Side : std::uint8_t { positions, rows };
  struct Piece;
  std::vector<Piece> pieces_of(Context& ctx, Side side, std::int64_t positions, const Terms& terms, Scratch& scratch,
                               bool backward) const;
  // in: queries of the side, keys and values of all rows. o (batch, queries, heads value size), a view, and lse (batch,
  // heads, queries) are written.
  void attend_in_pieces(Context& ctx, Side side, const QkvHeads& in, const Terms& terms, const Tensor& o,
                        const Tensor& lse) const;
  struct PiecesGradients {
    Tensor dout;    // like o
    Tensor dq;      // (batch, queries, heads key size), a view, overwritten
    Tensor dk, dv;  // like in.k and in.v, overwritten
  };
  void backward_in_pieces(Context& ctx, Side side, const QkvHeads& in, const Terms& terms, const Tensor& o,
                          const Tensor& lse, const PiecesGradients& gradients) const;
  // Vectors of clipped distances; of the other side's own rows, and of its others. Of values or of gradients.
  Tensor distances_in(const Tensor& table) const;
  Tensor relations_in(const Tensor& table, bool groups) const;
  kernels::Labels distance_labels(const Table& table) const;

  std::function<const float*(std::int64_t key)> label_vectors(const Context& ctx, std::int64_t query,
                                                              std::int64_t head) const;
  // The gradients of positions in dqkv, which is overwritten.
  void backward_positions(Context& ctx, const QkvHeads& in, const Attended& attended, const Tensor& d_heads,
                          const Terms& terms, const Tensor& dqkv) const;

  // Slices of qkv. If `transformed`, the result of transform(), is given, q and k are slices of it.
  QkvHeads heads_of(const Tensor& qkv, std::int64_t heads, const Tensor& transformed = {}) const;
  // The transformed queries and keys of positions `first` and later, (batch, seq, all heads of both), on the tape or
  // in scratch; absent without a transformation.
  Tensor transform(Context& ctx, const Tensor& qkv, std::int64_t heads, std::int64_t first, Scratch& scratch,
                   Tape* tape = nullptr) const;
  // Converts the gradients in dqkv, in place, from those of the transformed queries and keys to those of qkv.
  void transform_back(Context& ctx, const Tensor& qkv, std::int64_t heads, const Tensor& dqkv) const;
  Tensor queries_and_keys_in(const Tensor& qkv, std::int64_t heads) const;  // (batch, seq, heads of both, key size)
  // How many key heads `heads` query heads read.
  std::int64_t keys_of(std::int64_t heads) const { return heads / (config_.heads / config_.key_heads); }
  std::vector<std::int64_t> column_groups() const;  // the widths of q, k and v in qkv
  // Adds the gradient of the bias in qkv, for sequences of this many positions: over dqkv only where it has to.
  void add_bias_gradient(Context& ctx, const Tensor& dqkv, std::int64_t positions) const;
  // The logits of this rank's heads, or their gradient; without a sink nothing.
  Tensor sink_of(const Context& ctx, bool gradient = false) const;
  static kernels::RowBounds of_documents(const Context& ctx);
  double scale() const;
  std::string bench_name() const;

  AttentionMixerConfig config_;
  Linear query_key_value_;
  Linear output_;
  const Parameter* sink_ = nullptr;
  const Parameter *labels_ = nullptr, *global_labels_ = nullptr;   // null: none
  std::unique_ptr<const Linear> global_query_, global_key_value_;  // null: shared, or there are no global rows
  std::shared_ptr<const AttentionPlans> plans_;
  std::int64_t layer_;
};

}  // namespace longstride
