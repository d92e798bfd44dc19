#include <limits>
#include <utility>
#include <vector>

#include "datasets/dataset.h"
#include "framework/core/errors.h"

namespace longstride {
namespace {

constexpr std::int64_t for_ever = std::numeric_limits<std::int64_t>::max();

class StagedSource final : public BatchSource {
 public:
  StagedSource(std::vector<RowStage> stages, const SourceOfLength& make) {
    std::int64_t first_step = 0, bytes = 0;
    for (const RowStage& stage : stages) {
      LONGSTRIDE_CHECK(stage.until > first_step && stage.rows > 0 && stage.context > 0, "{} rows of {} until step {}",
                       stage.rows, stage.context, stage.until);
      parts_.push_back({stage, first_step, bytes / stage.context, make(stage.context)});
      if (stage.until == for_ever) break;
      bytes += (stage.until - first_step) * stage.rows * stage.context;
      first_step = stage.until;
    }
  }

  std::int64_t context() const override { return parts_.back().source->context(); }
  std::int64_t epoch_rows() const override { return parts_.back().source->epoch_rows(); }

  // Row number R of a source is row R of one batch without end.
  void read(std::int64_t step, std::int64_t global_batch, std::int64_t first_row, const Batch& out) const override {
    const Part& part = at(step);
    LONGSTRIDE_CHECK(step >= 0 && global_batch == part.stage.rows && first_row >= 0 &&
                         first_row + out.rows() <= global_batch && out.tokens.size(1) == part.stage.context,
                     "rows {} to {} of a batch of {} x {} at step {} for {} x {}", first_row, first_row + out.rows(),
                     global_batch, out.tokens.size(1), step, part.stage.rows, part.stage.context);
    const std::int64_t row = part.first_row + (step - part.first_step) * global_batch + first_row;
    part.source->read(0, for_ever, row, out);
  }

 private:
  struct Part {
    RowStage stage;
    std::int64_t first_step, first_row;
    std::unique_ptr<BatchSource> source;
  };
  const Part& at(std::int64_t step) const {
    std::size_t i = 0;
    while (step >= parts_[i].stage.until) ++i;
    return parts_[i];
  }

  std::vector<Part> parts_;
};

}  // namespace

std::unique_ptr<BatchSource> make_staged_source(const std::vector<RowStage>& stages, std::int64_t rows,
                                                std::int64_t context, const SourceOfLength& make) {
  std::vector<RowStage> all = stages;
  all.push_back({for_ever, rows, context});
  return std::make_unique<StagedSource>(std::move(all), make);
}

}  // namespace longstride
