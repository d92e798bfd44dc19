// Mixers whose heads are side by side in one layer: W_p [o_1; o_2] = W_p1 o_1 + W_p2 o_2. Each has projections of its
// own; only the first has a bias behind the output.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "framework/mixers/mixer.h"

namespace longstride {

class SideBySide final : public Mixer {
 public:
  explicit SideBySide(std::vector<std::shared_ptr<const Mixer>> parts) : parts_(std::move(parts)) {}

  void forward(Context& ctx, const Tensor& normed, const BranchOutput& out, Tape* tape) const override;
  void backward(Context& ctx, const Tensor& dout, const Tensor& dnormed, Tape& tape) const override;
  Tensor output_bias_gradient() const override { return parts_.front()->output_bias_gradient(); }
  const Parameter& gradients_final_from() const override { return parts_.front()->gradients_final_from(); }
  int kept_results() const override;
  void forward_keeping(Context& ctx, const Tensor& normed, const BranchOutput& out, Tape& tape) const override;
  void forward_again(Context& ctx, const Tensor& normed, const BranchOutput& out, const KeptResults& kept,
                     Tape& tape) const override;
  std::unique_ptr<BranchCache> make_cache(Context& ctx, Scratch& memory, std::int64_t batch,
                                          std::int64_t positions) const override;
  void decode(Context& ctx, const Tensor& normed, const Tensor& out, BranchCache* cache,
              std::int64_t position) const override;
  bool decodes_several() const override;
  void begin_position(Context& ctx, BranchCache* cache, std::int64_t position) const override;

  std::int64_t heads() const override;
  std::string kind(std::int64_t head) const override;
  KeyRows key_rows() const override;
  std::int64_t stride() const override;
  PairCost cost(std::int64_t positions) const override;
  PairWeight pair_weight(std::int64_t head, double span) const override;
  std::string problem_of_probabilities() const override;
  std::string state() const override;
  void show_probabilities(Context& ctx, const Tensor& normed, const std::vector<std::int64_t>& queries,
                          const SeeProbabilities& see) const override;
  std::optional<double> mean_keys(double span) const override;
  void extend(Reach& reach) const override;
  std::int64_t remembered_positions() const override;
  bool remembers_without_end() const override;
  HeadSpans spans() const override;
  void add_parameter_losses(Context& ctx) const override;
  std::string slow(std::int64_t positions) const override;
  std::string problem_on_gpu() const override;
  std::string problem_of_ranks(int ranks) const override;
  std::string summary() const override;
  std::vector<MixerBench> bench(Context& ctx, Scratch& scratch, std::int64_t batch,
                                std::int64_t positions) const override;

 private:
  // run(part, its output) for every part; what they give is added up in `out`.
  template <class Run>
  void add_up(Context& ctx, const Tensor& normed, const BranchOutput& out, const Run& run) const;
  struct Head {
    const Mixer& part;
    std::int64_t head;  // counted within the part
  };
  Head at(std::int64_t head) const;
  std::string first_given(const std::function<std::string(const Mixer&)>& text) const;  // that is not empty
  // How many rows a part's own key rows begin after those of the widest.
  std::int64_t rows_before(const Mixer& part) const { return key_rows().before() - part.key_rows().before(); }

  std::vector<std::shared_ptr<const Mixer>> parts_;
};

}  // namespace longstride
