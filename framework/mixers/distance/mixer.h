// out = W_p o + b_p for attention whose scores have a term of the distance, over [compressed memory | memory | segment]
// (kernels/distance_attention). Queries are projections of the segment's positions, keys and values of all of them.
// In training the backward pass also adds the attention-reconstruction loss of a compression that learns.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "framework/layers/linear.h"
#include "framework/mixers/distance/compression/compressor.h"
#include "framework/mixers/distance/memory.h"
#include "framework/mixers/distance/term.h"
#include "framework/mixers/mixer.h"
#include "kernels/distance_attention/decode/distance_decode.h"
#include "kernels/distance_attention/distance_attention.h"
#include "kernels/query_key/query_key.h"

namespace longstride {

struct DistanceMixerConfig {
  DistanceShape shape;
  std::int64_t value_size = 0;
  double output_deviation = 0;    // deviation of W_p's initial values
  double compress_deviation = 0;  // likewise, the compression's weight
  bool biased = true;             // W_qkv has a bias
  bool output_biased = true;      // W_p has a bias
  kernels::QueryKeyTransform transform;
  DistanceConfig distance;
  MemoryConfig memory;
  std::int64_t layer = 0;
  std::uint32_t dropout_layer = 0;  // a number of its own in the model, for the dropout of probabilities
  std::int64_t span_loss = 0, reconstruction_loss = 0;  // indices among the auxiliary losses
  std::int64_t segment = 0;                             // positions of a whole one, which generation follows
  bool documents = false;                               // rows have documents that do not see one another
};

// Tensors that generation keeps for a compressed memory; absent where the stream is too short to need it.
struct CompressedCache {
  Tensor inputs;     // (batch, memory + segment, width): that of position p is in row p mod (memory + segment)
  Tensor queries;    // (batch, segment, heads key size), if usage is read: that of position p is in row p mod segment
  Tensor projected;  // (batch, compressed, heads (key size + value size)), keys without a transform: of compressed row
                     // r of the stream, in row r mod compressed
};

// The keys and values of earlier positions; and T, because weights do not change while sequences are generated.
struct DistanceMixerCache : BranchCache {
  std::shared_ptr<const kernels::DistanceDecodePlan> plan;
  kernels::DistanceCache rows;
  Tensor table;
  CompressedCache compressed;
};

class DistanceMixer final : public Mixer {
 public:
  // Parameters: `name`.query_key_value.*, those of DistanceTerm, `name`.span (heads) with learned spans,
  // `name`.output.*, `name`.compress.weight of a compression that learns. States: `name`.memory,
  // `name`.compressed_memory.
  DistanceMixer(ParameterSet& parameters, StateSet& states, const std::string& name, const DistanceMixerConfig& config,
                const SharedDistance& shared, std::shared_ptr<const RememberedPositions> remembered,
                std::shared_ptr<const Windows> windows);

  void forward(Context& ctx, const Tensor& normed, const BranchOutput& out, Tape* tape) const override;
  bool adds_residual() const override { return true; }
  Tensor output_bias_gradient() const override { return output_.bias_gradient(); }
  const Parameter& gradients_final_from() const override { return query_key_value_.weight(); }
  void backward(Context& ctx, const Tensor& dout, const Tensor& dnormed, Tape& tape) const override;
  // o and lse, as those of AttentionMixer.
  int kept_results() const override { return 2; }
  void forward_keeping(Context& ctx, const Tensor& normed, const BranchOutput& out, Tape& tape) const override;
  void forward_again(Context& ctx, const Tensor& normed, const BranchOutput& out, const KeptResults& kept,
                     Tape& tape) const override;

  // Generation continues a stream in segments, as training reads it (kernels/distance_attention/decode), so that a
  // position's result is the one that it has in training after the same memory. The projected keys and values of the
  // memory are kept. In distance_decoding.cpp, and for a compressed memory in compression/decoding.cpp.
  std::unique_ptr<BranchCache> make_cache(Context& ctx, Scratch& memory, std::int64_t batch,
                                          std::int64_t positions) const override;
  void decode(Context& ctx, const Tensor& normed, const Tensor& out, BranchCache* cache,
              std::int64_t position) const override;
  // With a compressed memory, where a segment begins: compresses what the one before has evicted.
  void begin_position(Context& ctx, BranchCache* cache, std::int64_t position) const override;

  // In facts.cpp.
  std::int64_t heads() const override { return config_.shape.heads; }
  std::string kind(std::int64_t head) const override;
  KeyRows key_rows() const override;
  PairCost cost(std::int64_t positions) const override;
  PairWeight pair_weight(std::int64_t head, double span) const override;
  std::optional<double> mean_keys(double span) const override;
  std::int64_t remembered_positions() const override;
  bool remembers_without_end() const override;
  HeadSpans spans() const override;
  std::string slow(std::int64_t positions) const override;
  std::string problem_of_ranks(int ranks) const override;
  std::string summary() const override;
  // In reach.cpp and bench.cpp.
  void extend(Reach& reach) const override;
  std::vector<MixerBench> bench(Context& ctx, Scratch& scratch, std::int64_t batch,
                                std::int64_t positions) const override;

  // The pairs that a segment of `positions` sees, with their weights: scores without values. `spans` (heads) are shares
  // of the longest, in host memory; absent: as if spans hid nothing.
  kernels::DistanceScores mask(std::int64_t positions, const Tensor& spans = {}) const;
  // Tensors without data that give the shapes of the scores of a segment of `positions`.
  kernels::DistanceScores shapes(std::int64_t positions) const;
  void show_probabilities(Context& ctx, const Tensor& normed, const std::vector<std::int64_t>& queries,
                          const SeeProbabilities& see) const override;
  // The layer's part of the spans' loss: factor * longest * mean of the heads' spans.
  void add_parameter_losses(Context& ctx) const override;

 private:
  std::vector<float> shares_of(double span) const;  // each head's share, from positions; empty: they learn no spans
  // The mask of a whole segment, with these spans.
  kernels::DistanceScores mask_with(std::vector<float>& shares) const;
  double compressor_parameters() const;
  double learning_flops(double positions) const;  // per sequence, of a compression that learns
  // The operands of attention: q (batch, seq, heads key size) of the segment, kv (batch, rows + seq, heads (key size +
  // value size)) of all positions.
  struct Projected {
    Tensor q, kv;
  };
  struct Attended {
    Tensor o, lse;
  };
  // Everything that a forward pass makes; backward takes it from the tape.
  struct Saved {
    Tensor joined;          // input of the projections
    Projected projected;    // as the products give them
    Projected transformed;  // as attention takes them: `kv` holds keys alone; the same as projected without a transform
    Tensor table;
    Attended attended;
  };
  // All but `attended`.
  Saved before_attention(Context& ctx, const Tensor& normed, Scratch& scratch, Tape* tape) const;
  void forward_with(Context& ctx, const Tensor& normed, const BranchOutput& out, Tape* tape, Tape* kept_on,
                    Attended known) const;
  // True if rows of the memory that a head does not look back to are left without its key, value and gradient: they may
  // hold anything, and nothing may sum over them (kernels/span_projection). Compression reads all evicted rows.
  bool skips_rows() const { return memory_.rows() > 0 && config_.memory.compressed == 0; }
  // The rows that heads look back to.
  kernels::DistanceScores read(const Projected& projected) const;
  // Rows at the beginning of the memory that no head looks back to. Counted on the CPU; on a GPU spans are in its own
  // memory, and row by row operations take all rows.
  std::int64_t unread_rows(const Context& ctx, const Projected& projected) const;
  void project_keys_values(Context& ctx, const Tensor& x, const Tensor& kv) const;
  Projected project(Context& ctx, const Tensor& segment, const Tensor& joined, Scratch& scratch, Tape* tape) const;
  Projected transform(Context& ctx, const Projected& in, Scratch& scratch, Tape* tape) const;
  void transform_back(Context& ctx, const Projected& in, const Projected& gradients) const;
  Attended attend(Context& ctx, const Saved& in, Scratch& scratch, Tape* tape) const;
  kernels::DecodedStream decoded_stream(std::int64_t positions) const;
  // Stores the keys and values of memories of zeros.
  void append_zeros(Context& ctx, const DistanceMixerCache& cache) const;
  CompressedCache make_compressed_cache(Context& ctx, Scratch& memory, std::int64_t batch,
                                        const kernels::DecodedStream& stream) const;
  void keep_for_compression(Context& ctx, const CompressedCache& cache, const Tensor& normed, const Tensor& q,
                            std::int64_t position) const;
  void compress_evicted(Context& ctx, const DistanceMixerCache& cache, std::int64_t position) const;
  // Stores the compressed rows that the segment beginning at `position` sees, in the places before its memory.
  void append_compressed(Context& ctx, const DistanceMixerCache& cache, std::int64_t position) const;
  Tensor received_while_decoding(Context& ctx, const DistanceMixerCache& cache, std::int64_t position,
                                 Scratch& scratch) const;
  // The keys of kv as attention takes them, the first of which is at position `first`.
  Tensor transformed_keys(Context& ctx, const Tensor& kv, std::int64_t first, Scratch& scratch) const;
  void transform_keys(Context& ctx, const Tensor& kv, std::int64_t first, const Tensor& y) const;
  // Memory for the gradients of what attention read.
  Projected gradient_tensors(Context& ctx, const Saved& made, Scratch& scratch) const;
  // The gradients of the segment and of W_qkv with its bias.
  void backward_projections(Context& ctx, const Tensor& segment, const Tensor& joined, const Projected& gradients,
                            const Tensor& dsegment) const;
  // Writes the memory of the next step.
  void remember(Context& ctx, const Saved& made) const;
  // The attention that every position received: (batch, rows + seq, heads), the sums of probabilities over queries.
  Tensor received(Context& ctx, const Saved& made, const SeenRows& seen, Scratch& scratch) const;
  // The reconstruction loss and its gradient.
  void reconstruct(Context& ctx, const Saved& made) const;
  Tensor bias_of(const Tensor& bias, std::int64_t begin, std::int64_t end) const {
    return bias.given() ? bias.slice(0, begin, end) : Tensor{};
  }
  // The pairs that are allowed, without values.
  kernels::DistanceScores visible(const Tensor& q, const Tensor& k) const;
  void add_span(kernels::DistanceScores& scores, const Tensor& spans) const;
  kernels::DistanceScores scores(const Context& ctx, const Saved& in, const SeenRows& seen) const;
  Tensor keys(const Tensor& kv) const;    // (batch, n, heads, key size)
  Tensor values(const Tensor& kv) const;  // (batch, n, heads, value size)
  Tensor queries(const Tensor& q) const { return q.split_last(config_.shape.heads, config_.shape.key_size); }
  std::int64_t query_width() const { return config_.shape.heads * config_.shape.key_size; }

  DistanceMixerConfig config_;
  Linear query_key_value_;
  DistanceTerm term_;
  Parameter* span_ = nullptr;
  Linear output_;
  Memory memory_;
  Compressor compressor_;
  std::shared_ptr<const RememberedPositions> remembered_;
  std::shared_ptr<const Windows> windows_;
};

}  // namespace longstride
