// One block of the host's memory, aligned for the arena and never touched before it is used.
#pragma once
#include <cstddef>
#include <cstdlib>
#include <memory>

#include "framework/core/arena.h"
#include "framework/core/errors.h"

namespace longstride {

class HostMemory {
 public:
  explicit HostMemory(std::size_t bytes)
      : bytes_(Arena::rounded(bytes > 0 ? bytes : 1)), block_(std::aligned_alloc(Arena::alignment, bytes_), std::free) {
    if (block_ == nullptr)
      throw user_error("cannot allocate {:.2f} GiB of memory; `longstride plan` says what takes it",
                       static_cast<double>(bytes_) / (1 << 30));
  }
  std::byte* data() const { return static_cast<std::byte*>(block_.get()); }
  std::size_t bytes() const { return bytes_; }

 private:
  std::size_t bytes_;
  std::unique_ptr<void, void (*)(void*)> block_;
};

}  // namespace longstride
