#include "framework/core/arena.h"

#include <algorithm>

#include "framework/core/errors.h"

namespace longstride {

Arena::Arena(void* base, std::size_t capacity) : base_(static_cast<std::byte*>(base)), capacity_(capacity) {
  LONGSTRIDE_CHECK(base != nullptr && capacity % alignment == 0, "arena of {} bytes at {}", capacity, base);
}

void Arena::grow(std::size_t& end, std::size_t bytes) {
  end += rounded(bytes);
  LONGSTRIDE_CHECK(planning() || tape_ + scratch_ <= capacity_,
                   "the arena of {} bytes is too small for {} bytes of tape and {} of scratch: the plan is wrong",
                   capacity_, tape_, scratch_);
  high_water_ = std::max(high_water_, tape_ + scratch_);
}

void* Arena::allocate_tape(std::size_t bytes) {
  const std::size_t begin = tape_;
  grow(tape_, bytes);
  tape_high_water_ = std::max(tape_high_water_, tape_);
  return planning() ? nullptr : base_ + begin;
}

void* Arena::allocate_scratch(std::size_t bytes) {
  grow(scratch_, bytes);
  return planning() ? nullptr : base_ + capacity_ - scratch_;
}

void Arena::release_tape(std::size_t used) {
  LONGSTRIDE_CHECK(used <= tape_, "release the tape to {} of {} bytes", used, tape_);
  tape_ = used;
}

void Arena::release_scratch(std::size_t used) {
  LONGSTRIDE_CHECK(used <= scratch_, "release scratch to {} of {} bytes", used, scratch_);
  scratch_ = used;
}

}  // namespace longstride
