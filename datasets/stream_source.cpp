// Training rows in order. Row r reads bytes [r * part, (r + 1) * part) of the split, part = floor(length / rows); at
// step s it reads the window of that part with number s modulo the number of whole windows. So the rows of a step are a
// function of the step alone, and a row's first window starts a stream.
#include <vector>

#include "datasets/dataset.h"
#include "framework/core/errors.h"
#include "framework/core/text/numbers.h"

namespace longstride {
namespace {

class StreamSource final : public BatchSource {
 public:
  StreamSource(std::shared_ptr<const SequenceSet> sequences, std::int64_t context, std::int64_t rows,
               std::uint64_t seed, const Objective& objective)
      : sequences_(std::move(sequences)),
        objective_(objective),
        seed_(seed),
        context_(context),
        rows_(rows),
        part_(sequences_->length(0) / rows),
        windows_(part_ / context) {}

  std::int64_t context() const override { return context_; }
  std::int64_t epoch_rows() const override { return rows_ * windows_; }
  std::int64_t steps_of_stream() const override { return windows_; }

  void read(std::int64_t step, std::int64_t global_batch, std::int64_t first_row, const Batch& out) const override {
    LONGSTRIDE_CHECK(step >= 0 && first_row >= 0 && first_row + out.rows() <= rows_ && global_batch == rows_,
                     "rows {} to {} of a batch of {} at step {} for {} streams", first_row, first_row + out.rows(),
                     global_batch, step, rows_);
    const std::int64_t window = step % windows_, before = window > 0 ? 1 : 0;
    const std::int64_t each = sequences_->token_bytes();
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>((context_ + 1) * each));  // and the one before
    for (std::int64_t r = 0; r < out.rows(); ++r) {
      const std::int64_t offset = (first_row + r) * part_ + window * context_;
      sequences_->read(0, offset - before, context_ + before, bytes.data() + (1 - before) * each);
      RowBytes of = sequences_->row(0, offset, context_, bytes.data() + each);
      of.before = static_cast<std::uint16_t>(kernels::Ids{bytes.data(), of.wide}[0]), of.starts = window == 0;
      objective_.write_row_of(out, r, of, {seed_, step * rows_ + first_row + r});
    }
  }

 private:
  std::shared_ptr<const SequenceSet> sequences_;
  const Objective& objective_;
  std::uint64_t seed_;
  std::int64_t context_, rows_;
  std::int64_t part_;     // bytes that a row reads
  std::int64_t windows_;  // windows in a part
};

}  // namespace

std::unique_ptr<BatchSource> make_stream_source(std::shared_ptr<const SequenceSet> sequences, std::int64_t context,
                                                std::int64_t rows, const std::string& where, std::uint64_t seed,
                                                const Objective& objective) {
  LONGSTRIDE_CHECK(context > 0 && rows > 0, "{} rows of {}", rows, context);
  if (sequences->sequences() != 1)
    throw user_error(
        "{}: holds {} files, but data.order: streams reads one stream; set data.cross_files: true to join them", where,
        sequences->sequences());
  if (sequences->length(0) / rows < context)
    throw user_error(
        "{}: holds {} bytes, fewer than one context of {} for each of {} rows; prepare it with a larger split, or "
        "lower "
        "train.global_batch",
        where, thousands(sequences->length(0)), thousands(context), rows);
  return std::make_unique<StreamSource>(std::move(sequences), context, rows, seed, objective);
}

}  // namespace longstride
