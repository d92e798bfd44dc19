// Reads this rank's rows ahead of training, on one thread, into a ring of buffers.
#pragma once
#include <cstdint>
#include <memory>

#include "framework/core/batch_source.h"

namespace longstride {

class Prefetcher {
 public:
  // Rows [first_row, first_row + rows) of each global batch, from `first_step` on, up to `depth` steps ahead.
  Prefetcher(const BatchSource& source, std::int64_t first_step, std::int64_t global_batch, std::int64_t first_row,
             std::int64_t rows, int depth = 2);
  ~Prefetcher();
  // The rows of the next step, (rows, context) bytes; valid until the next call. Rethrows what reading threw.
  const std::uint8_t* next();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace longstride
