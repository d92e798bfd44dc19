// One block of memory used from both ends.
//  - The low end is the tape: what forward saves for backward, released in the reverse order.
//  - The high end is scratch: what lives inside one function, released when its Scratch goes out of scope.
// Both are last-in first-out and never fragment. Every allocation is rounded up to `alignment` bytes.
//
// A planning arena has no memory: it hands out null pointers and only counts, so the code that trains also determines,
// to the byte, what training will need (high_water). A real arena of exactly that capacity suffices, and ends with the
// same high_water.
#pragma once
#include <cstddef>

#include "framework/core/tensor.h"

namespace longstride {

class Arena {
 public:
  static constexpr std::size_t alignment = 256;
  static constexpr std::size_t rounded(std::size_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

  Arena() = default;                        // planning
  Arena(void* base, std::size_t capacity);  // capacity: a multiple of alignment

  bool planning() const { return base_ == nullptr; }
  std::size_t high_water() const { return high_water_; }            // most bytes in use at once
  std::size_t tape_high_water() const { return tape_high_water_; }  // the tape's own peak
  std::size_t tape_used() const { return tape_; }
  std::size_t scratch_used() const { return scratch_; }

  void* allocate_tape(std::size_t bytes);
  void* allocate_scratch(std::size_t bytes);
  void release_tape(std::size_t used);     // back to an earlier tape_used()
  void release_scratch(std::size_t used);  // back to an earlier scratch_used()

 private:
  void grow(std::size_t& end, std::size_t bytes);

  std::byte* base_ = nullptr;
  std::size_t capacity_ = 0;
  std::size_t tape_ = 0;
  std::size_t scratch_ = 0;
  std::size_t high_water_ = 0;
  std::size_t tape_high_water_ = 0;
};

}  // namespace longstride
