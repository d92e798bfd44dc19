// out = W_p y + b_p for linear attention as a scan (kernels/scan), with what its published forms put around it:
//   q, k, v      W_qkv x + b
//   convolution  q, k, v <- silu of the last positions, channel by channel (kernels/short_convolution)
//   features     q, k <- features of their softmax kernel (kernels/features)
//                without them q is scaled by 1 / sqrt(key size), and form delta divides both by their lengths
//   decay        per head log a = -exp(rate) softplus(W_a x + bias); with time_step v <- softplus(W_a x + bias) v, and
//   q
//                is not scaled
//                per channel log a = log sigmoid(W_2 W_1 x + bias) / 16
//   beta         form delta: b = most sigmoid(W_b x)
//   skip         o <- o + D v, D per head
//   norm, gate   y = norm(o) gain silu(W_g x) per head (kernels/gated_norm), or y = norm(o silu(W_g x)) gain over the
//                heads that share keys; without them y = o
// Queries and keys may have fewer heads, each for as many of the values (kernels/repeat_heads).
// Rows of the projection of features are a function of (seed, step, layer), so that they need no state.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "framework/layers/linear.h"
#include "framework/mixers/mixer.h"
#include "framework/mixers/scan/config.h"
#include "kernels/features/features.h"

namespace longstride {

struct ScanMixerConfig {
  std::int64_t width = 0, heads = 0, key_heads = 0, key_size = 0, value_size = 0;
  double deviation = 0;                  // initial deviation of maps of the input
  double output_deviation = 0;           // that of W_p
  bool biased = true;                    // W_qkv has a bias
  bool output_biased = true;             // W_p has a bias
  kernels::QueryKeyTransform transform;  // applied to q and k before features
  std::int64_t segment = 0;              // positions of a whole one
  kernels::Direction direction = kernels::Direction::past;
  std::uint32_t layer = 0;  // a number of its own in the model, for the draws of features
  ScanSettings scan;        // without `automatic`
};

// Tensors that continue from window to window, or from position to position: read, and written for the next. All may
// be absent.
struct ScanStates {
  Tensor rows, next_rows;  // (batch, convolution - 1, channels)
  Tensor c, next_c;        // (batch, heads) exact; 0: none so far
  Tensor sums, next_sums;  // (batch, heads, key rows, columns) exact
};

// Parameters that attention lacks; absent where the form has none.
struct AddedParameters {
  Parameter *convolution = nullptr, *convolution_bias = nullptr, *decay_bias = nullptr, *decay_rate = nullptr,
            *skip = nullptr, *norm = nullptr;
  std::optional<Linear> decay_low, decay, beta, gate;
};

class ScanMixer final : public Mixer {
 public:
  // Parameters: `name`.query_key_value.*, `name`.output.*; and new where another model's weights lack them (train
  // --from): `name`.convolution.weight, `name`.decay.weight or `name`.decay_low.weight and `name`.decay.weight,
  // `name`.decay_bias, `name`.decay_rate, `name`.beta.weight, `name`.gate.weight, `name`.norm.weight; with the options
  // `name`.convolution.bias, `name`.skip.
  // States, with a memory: `name`.convolution_rows, `name`.stabiliser, `name`.sums.
  ScanMixer(ParameterSet& parameters, StateSet& states, const std::string& name, const ScanMixerConfig& config);

  void forward(Context& ctx, const Tensor& normed, const BranchOutput& out, Tape* tape) const override;
  bool adds_residual() const override { return true; }
  void backward(Context& ctx, const Tensor& dout, const Tensor& dnormed, Tape& tape) const override;
  Tensor output_bias_gradient() const override { return output_.bias_gradient(); }
  const Parameter& gradients_final_from() const override { return query_key_value_.weight(); }
  // o, but in both directions the states before every chunk, and the denominators.
  int kept_results() const override { return 1 + (both() ? 0 : 1) + (normalises() ? 1 : 0); }
  void forward_keeping(Context& ctx, const Tensor& normed, const BranchOutput& out, Tape& tape) const override;
  void forward_again(Context& ctx, const Tensor& normed, const BranchOutput& out, const KeptResults& kept,
                     Tape& tape) const override;

  // In decoding.cpp. A head keeps its state, whatever the number of positions.
  std::unique_ptr<BranchCache> make_cache(Context& ctx, Scratch& memory, std::int64_t batch,
                                          std::int64_t positions) const override;
  bool decodes_several() const override { return true; }
  void begin_position(Context& ctx, BranchCache* cache, std::int64_t position) const override;
  void decode(Context& ctx, const Tensor& normed, const Tensor& out, BranchCache* cache,
              std::int64_t position) const override;

  // In facts.cpp, and bench.cpp.
  std::int64_t heads() const override { return config_.heads; }
  std::string kind(std::int64_t head) const override;
  KeyRows key_rows() const override { return {.segment = config_.segment, .ahead = both()}; }
  PairCost cost(std::int64_t positions) const override;
  PairWeight pair_weight(std::int64_t head, double span) const override;
  std::string problem_of_probabilities() const override;
  void show_probabilities(Context& ctx, const Tensor& normed, const std::vector<std::int64_t>& queries,
                          const SeeProbabilities& see) const override;
  void extend(Reach& reach) const override;
  std::string state() const override;
  bool remembers_without_end() const override { return config_.scan.memory; }
  std::string problem_of_ranks(int ranks) const override;
  std::string slow(std::int64_t positions) const override;
  std::string summary() const override;
  std::vector<MixerBench> bench(Context& ctx, Scratch& scratch, std::int64_t batch,
                                std::int64_t positions) const override;

 private:
  // Products of the input with parameters; absent where the form has none. Ranks that divide a sequence have decay_low
  // and gate of all heads at their own positions, and the others of their own heads at all positions.
  struct Projected {
    Tensor qkv, decay_low, decay, beta, gate;
  };
  // The operands of the scan, all of which follow from Projected.
  struct Operands {
    Tensor mixed;         // (batch, seq, channels): qkv behind the convolution
    Tensor q, k, v;       // (batch, seq, heads, size), before features; v as the scan reads it
    Tensor step;          // by which v was multiplied
    Tensor projection;    // for features
    Tensor phi_q, phi_k;  // rows of the scan: features, or q and k, for every head
    Tensor own_decay;     // from the input alone
    Tensor decay;         // with that of the features' stabiliser
    Tensor beta;
    ScanStates states;
  };
  struct Scanned {
    Tensor o, chunk_states, denominator;
  };
  // How keys are stabilised: as in training, or from position to position.
  enum class Pace : std::uint8_t { training, decoding };

  void forward_with(Context& ctx, const Tensor& normed, const BranchOutput& out, Tape* tape, Tape* kept_on,
                    Scanned known) const;
  // Sizes from which the kernels of the scan are chosen; units: sequences times heads.
  kernels::ScanProblem problem(Dtype compute, std::int64_t units, std::int64_t seq) const;
  Projected project(Context& ctx, const Tensor& normed, Scratch& scratch, Tape* tape) const;
  // Rows of the projection of features, drawn; absent without features.
  Tensor projection(Context& ctx, Scratch& scratch, Tape* tape) const;
  // Positions count from `first`. In operands.cpp, with its gradients.
  Operands operands(Context& ctx, const Projected& in, const Tensor& projection, const ScanStates& states, Pace pace,
                    std::int64_t first, Scratch& scratch) const;
  void convolve(Context& ctx, const Projected& in, Operands& out, Scratch& scratch) const;
  void transform(Context& ctx, std::int64_t first, Operands& out, Scratch& scratch) const;
  void expand(Context& ctx, Pace pace, Operands& out, Scratch& scratch) const;
  void steer(Context& ctx, const Projected& in, Operands& out, Scratch& scratch) const;
  // Rows of v times their steps.
  void weigh(Context& ctx, const Projected& in, Operands& out, Scratch& scratch) const;
  // Gradients of what the scan read, of which dq, dk and dv become those of Projected.
  struct ScanGradients {
    Tensor dphi_q, dphi_k, dmixed, decay, beta, step;
  };
  ScanGradients gradient_tensors(const Operands& read, const Tensor& dmixed, Scratch& scratch) const;
  void scan_back(Context& ctx, const Operands& read, const Scanned& made, const Tensor& d_o,
                 const ScanGradients& to) const;
  // dv of the values before their step and skip.
  void backward_values(Context& ctx, const Operands& made, const Tensor& d_o, const ScanGradients& d) const;
  void backward_features(Context& ctx, const Operands& made, const ScanGradients& d) const;
  void backward_gates(Context& ctx, const Projected& in, const ScanGradients& d, const Projected& gradients) const;
  void backward_convolution(Context& ctx, const Projected& in, const Operands& made, const Tensor& dmixed,
                            const Tensor& dqkv) const;
  void backward_operands(Context& ctx, const Projected& in, const Operands& made, const ScanGradients& d,
                         const Projected& gradients) const;
  void backward_projections(Context& ctx, const Tensor& normed, const Projected& in, const Projected& gradients,
                            const Tensor& dnormed) const;
  Scanned tensors(Context& ctx, std::int64_t batch, std::int64_t seq, Scratch& scratch, Tape* tape, bool kept) const;
  void scan(Context& ctx, const Operands& in, const Scanned& out, Pace pace) const;
  void add_skip(Context& ctx, const Operands& in, const Tensor& o) const;
  Tensor finish(Context& ctx, const Tensor& o, const Tensor& gate, Scratch& scratch) const;
  // d_o is the gradient of what finish returned, and becomes that of o.
  void finish_back(Context& ctx, const Tensor& o, const Tensor& gate, const Tensor& d_o, const Tensor& dgate) const;
  ScanStates states_of(const Context& ctx) const;
  // Taps of the channels that this rank has, in a tensor of their own if those are not all.
  Tensor own_taps(Context& ctx, const Tensor& all, Scratch& scratch) const;
  void add_own_taps(Context& ctx, const Tensor& own, const Tensor& all) const;
  // The part of a vector of numbers per head, or of several per head, that belongs to this rank's heads.
  Tensor own_part(const Context& ctx, const Tensor& all) const;

  kernels::ScanForm form(Pace pace) const;
  bool normalises() const { return config_.scan.normalise == Switch::on; }
  bool has_gate() const { return config_.scan.gate == Switch::on; }
  bool has_norm() const { return config_.scan.norm != ScanNorm::none; }
  bool gate_first() const { return config_.scan.norm == ScanNorm::gated_rms; }
  bool shares_keys() const { return config_.key_heads < config_.heads; }
  bool delta() const { return config_.scan.form == kernels::ScanForm::delta; }
  bool both() const { return config_.direction == kernels::Direction::both; }
  // Keys' features have a decay.
  bool keeps_c(Pace pace) const {
    return config_.scan.stabilised() && !both() &&
           (pace == Pace::decoding || config_.scan.stabiliser == Stabiliser::running);
  }
  kernels::FeatureKind feature_kind() const;
  std::int64_t rows_of_projection() const;
  std::int64_t key_rows_of_state() const { return config_.scan.has_features() ? config_.scan.count : config_.key_size; }
  std::int64_t columns() const { return config_.value_size + (normalises() ? 1 : 0); }
  std::int64_t keys() const { return config_.key_heads * config_.key_size; }
  std::int64_t values() const { return config_.heads * config_.value_size; }
  std::int64_t channels() const { return 2 * keys() + values(); }
  // Elements that are normalised together, a row each.
  Tensor in_rows(const Tensor& x) const {
    const std::int64_t size = gate_first() ? values() / config_.key_heads : config_.value_size;
    return x.reshape({x.count() / size, size});
  }
  // Columns of qkv, of which ranks exchange each part by itself.
  std::vector<std::int64_t> column_groups() const { return {keys(), keys(), values()}; }
  // The transformations of q and of k.
  kernels::QueryKeyTransform query_transform() const;
  kernels::QueryKeyTransform key_transform() const;
  Tensor slice_of(const Tensor& mixed, int which) const;  // q, k or v of qkv, with heads

  ScanMixerConfig config_;
  Linear query_key_value_;
  AddedParameters added_;
  Linear output_;
  const State *rows_ = nullptr, *c_ = nullptr, *sums_ = nullptr;
};

}  // namespace longstride
