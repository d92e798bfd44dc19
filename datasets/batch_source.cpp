// The order of training rows.
//
// Row number R = step * global_batch + index continues from epoch to epoch: epoch = R / epoch_rows. In each epoch every
// sequence is cut into non-overlapping windows from a seeded offset, and the windows of all sequences are read in a
// seeded permutation. The number of windows must not depend on the offset, or epochs would differ in length. So a
// sequence of q whole windows and a remainder keeps
//   q - 1 windows if q >= 16; its offset ranges over one context plus the remainder, so every phase occurs;
//   q windows otherwise; its offset ranges over the remainder only (none for an image).
// The last bytes of a sequence are missing from some epochs, but not from training. Padded, a sequence keeps all of its
// windows, from its beginning.
#include <algorithm>
#include <vector>

#include "datasets/dataset.h"
#include "datasets/permutation.h"
#include "framework/core/errors.h"
#include "framework/core/text/numbers.h"

namespace longstride {
namespace {

constexpr std::int64_t windows_worth_shifting = 16;

class WindowSource final : public BatchSource {
 public:
  WindowSource(std::shared_ptr<const SequenceSet> sequences, std::int64_t context, std::uint64_t seed,
               const Objective& objective, bool padded)
      : sequences_(std::move(sequences)), objective_(objective), context_(context), seed_(seed), padded_(padded) {
    first_window_.reserve(static_cast<std::size_t>(sequences_->sequences()) + 1);
    first_window_.push_back(0);
    for (std::int64_t s = 0; s < sequences_->sequences(); ++s) {
      const std::int64_t length = sequences_->length(s), whole = length / context;
      const std::int64_t kept =
          padded ? (length + context - 1) / context : (whole >= windows_worth_shifting ? whole - 1 : whole);
      first_window_.push_back(first_window_.back() + kept);
    }
  }

  std::int64_t context() const override { return context_; }
  std::int64_t epoch_rows() const override { return first_window_.back(); }

  void read(std::int64_t step, std::int64_t global_batch, std::int64_t first_row, const Batch& out) const override {
    const std::int64_t rows = out.rows();
    LONGSTRIDE_CHECK(step >= 0 && first_row >= 0 && rows >= 0 && first_row + rows <= global_batch,
                     "rows {} to {} of a batch of {} at step {}", first_row, first_row + rows, global_batch, step);
    const std::int64_t each = sequences_->token_bytes();
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(context_ * each));
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::int64_t row = step * global_batch + first_row + r;
      const Window window = window_of(row);
      sequences_->read(window.sequence, window.offset, window.length, bytes.data());
      std::fill(bytes.begin() + window.length * each, bytes.end(), std::uint8_t{0});
      const RowBytes of = sequences_->row(window.sequence, window.offset, window.length, bytes.data());
      objective_.write_row_of(out, r, of, {seed_, row});
    }
  }

 private:
  struct Window {
    std::int64_t sequence, offset, length;
  };
  Window window_of(std::int64_t row) const {
    const auto epoch = static_cast<std::uint32_t>(row / epoch_rows());
    const auto count = static_cast<std::uint64_t>(epoch_rows());
    const Permutation order(count, seed_, epoch, kernels::Purpose::data_order);
    const auto window = static_cast<std::int64_t>(order(static_cast<std::uint64_t>(row % epoch_rows())));
    const auto next = std::upper_bound(first_window_.begin(), first_window_.end(), window);
    const std::int64_t sequence = next - first_window_.begin() - 1;
    const std::int64_t first = *(next - 1), windows = *next - first;
    const std::int64_t length = sequences_->length(sequence), spare = length - windows * context_;
    const std::int64_t at = (padded_ ? 0 : offset(sequence, epoch, spare)) + (window - first) * context_;
    return {sequence, at, std::min(context_, length - at)};
  }

  // Uniform in [0, spare].
  std::int64_t offset(std::int64_t sequence, std::uint32_t epoch, std::int64_t spare) const {
    const std::uint32_t domain = kernels::domain_of(kernels::Purpose::data_order, 0xFFFFFF);
    const auto r = kernels::philox(seed_, static_cast<std::uint64_t>(sequence), epoch, domain);
    const std::uint64_t number = std::uint64_t{r.word[0]} << 32 | r.word[1];
    return static_cast<std::int64_t>(number % static_cast<std::uint64_t>(spare + 1));
  }

  std::shared_ptr<const SequenceSet> sequences_;
  const Objective& objective_;
  std::int64_t context_;
  std::uint64_t seed_;
  bool padded_;
  std::vector<std::int64_t> first_window_;  // each sequence's first window, counted over all; then their number
};

}  // namespace

std::unique_ptr<BatchSource> make_batch_source(std::shared_ptr<const SequenceSet> sequences, std::int64_t context,
                                               std::uint64_t seed, const std::string& where, const Objective& objective,
                                               bool padded) {
  LONGSTRIDE_CHECK(context > 0, "context is {}", context);
  std::int64_t bytes = 0, longest = 0;
  for (std::int64_t s = 0; s < sequences->sequences(); ++s) {
    bytes += sequences->length(s);
    longest = std::max(longest, sequences->length(s));
  }
  if (padded && bytes == 0) throw user_error("{}: is empty; prepare it with a larger split", where);
  if (padded) return std::make_unique<WindowSource>(std::move(sequences), context, seed, objective, true);
  if (bytes < context)
    throw user_error(
        "{}: holds {} bytes, fewer than one context of {}; prepare it with a larger split or shorten data.context",
        where, thousands(bytes), thousands(context));
  if (longest < context)
    throw user_error(
        "{}: its longest file has {} bytes, fewer than one context of {}; shorten data.context or set "
        "data.cross_files: true",
        where, thousands(longest), thousands(context));
  return std::make_unique<WindowSource>(std::move(sequences), context, seed, objective, false);
}

}  // namespace longstride
