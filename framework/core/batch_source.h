// The trainer's and the evaluator's view of a dataset, independent of its file and format.
#pragma once
#include <cstdint>
#include <span>

#include "framework/core/batch.h"
#include "framework/core/objective.h"

namespace longstride {

// Training data. The row of (step, index in the global batch) is a pure function of those two and the seed:
// resuming needs only the step, and the order does not depend on the number of ranks.
class BatchSource {
 public:
  virtual ~BatchSource() = default;
  virtual std::int64_t context() const = 0;     // bytes or other tokens in a row
  virtual std::int64_t epoch_rows() const = 0;  // rows that make one pass over the split
  // After how many steps rows start again from the beginning of the streams that they read in order; 0: rows do not
  // continue those of the step before.
  virtual std::int64_t steps_of_stream() const { return 0; }
  // Writes the rows of `out`, in host memory, from row `first_row` on of the global batch of `global_batch` rows at
  // `step` (0-based). Thread-safe.
  virtual void read(std::int64_t step, std::int64_t global_batch, std::int64_t first_row, const Batch& out) const = 0;
};

// A whole split, as sequences that must not be joined: one for a stream of bytes, one for each image, one
// for each audio file.
class SequenceSet {
 public:
  virtual ~SequenceSet() = default;
  virtual std::int64_t sequences() const = 0;
  virtual std::int64_t length(std::int64_t sequence) const = 0;
  // Bytes of a token: 1, or 2 where the vocabulary has more than 256. Lengths and offsets count tokens.
  virtual std::int64_t token_bytes() const { return 1; }
  // Bytes of text per token; 0: not known.
  virtual double bytes_per_token() const { return 1; }
  // out[0 .. length) = sequence[offset .. offset + length), token_bytes() each. Thread-safe.
  virtual void read(std::int64_t sequence, std::int64_t offset, std::int64_t length, std::uint8_t* out) const = 0;
  // Where documents end in a sequence (write_groups); none: it is one document.
  virtual std::span<const std::int64_t> documents(std::int64_t /*sequence*/) const { return {}; }
  // Where its groups, such as sentences, end; none: they are not known.
  virtual RowEnds groups(std::int64_t /*sequence*/) const { return {}; }
  virtual std::span<const std::uint32_t> labels(std::int64_t /*sequence*/) const { return {}; }
  // One for each group between the boundaries that groups() gives; none: they have none.
  virtual std::span<const std::uint16_t> group_labels() const { return {}; }

  // A row's bytes from `offset` of a sequence on, `length` of them, with what is known of them.
  RowBytes row(std::int64_t sequence, std::int64_t offset, std::int64_t length, const std::uint8_t* bytes) const {
    const RowEnds of_groups = groups(sequence);
    return {.bytes = bytes,
            .length = length,
            .documents = {documents(sequence), offset},
            .groups = {of_groups.boundaries, of_groups.offset + offset},
            .offset = offset,
            .labels = labels(sequence),
            .group_labels = group_labels(),
            .wide = token_bytes() > 1};
  }
};

}  // namespace longstride
