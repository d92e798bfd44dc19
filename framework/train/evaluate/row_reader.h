// Rows, one at a time, through a model that is not trained: hidden rows, or scores of answers.
#pragma once
#include <array>
#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "framework/core/device/memory.h"
#include "framework/core/objective.h"
#include "framework/models/model.h"

namespace longstride {

class RowReader {
 public:
  // asks: rows have the fields that the objective asks about. References must outlive this object, which takes scratch
  // from ctx's arena until it is destroyed.
  RowReader(const Model& model, const Objective& objective, Context& ctx, bool asks);
  // Exact arena bytes for rows of the model's context.
  static std::size_t bytes(const Model& model, const Objective& objective, const Context& ctx, bool asks);

  // Bytes of a row, without the ids that the objective writes before them.
  std::int64_t row_bytes() const { return model_.context() - objective_.leading(); }
  // Writes the row in host memory; `of` has at most row_bytes() bytes.
  const Batch& write(const RowBytes& of, std::int64_t count, const RowKey& key);
  const Batch& row() const { return slots_[current_].host; }  // as written; may be changed before it is read
  // The results of the row: hidden rows (positions, width), if it Encodes, and scores (asked, answers), if it
  // Predicts. They and the row are valid until the call of write() after the next, so that another thread may use them
  // while the next row is read.
  std::span<const float> hidden();
  std::span<const float> scores();

 private:
  using Run = std::function<void(Context& ctx, const Batch& batch, const Tensor& out)>;
  // Host memory that is kept from row to row: pinning it takes longer than a row does.
  class Kept {
   public:
    const HostSide& of(Device device, std::size_t bytes);

   private:
    std::optional<HostSide> side_;
    std::size_t bytes_ = 0;
  };
  struct Slot {
    std::vector<std::byte> block;  // the row
    Batch host;
    Kept results;
    std::vector<float> converted;
  };
  std::span<const float> read(const Shape& shape, const Run& run);

  const Model& model_;
  const Objective& objective_;
  Context& ctx_;
  BatchFields fields_;
  std::int64_t positions_ = 0;
  std::array<Slot, 2> slots_;
  std::size_t current_ = 0;
  Kept sent_;
};

}  // namespace longstride
