#include "framework/core/device/memory.h"

#include <cstdlib>

#include "framework/core/arena.h"
#include "framework/core/errors.h"
#include "framework/core/text/numbers.h"

namespace longstride {

Block Block::on_host(std::size_t bytes) {
  const std::size_t rounded = Arena::rounded(bytes > 0 ? bytes : 1);
  driver::Handle data(std::aligned_alloc(Arena::alignment, rounded), std::free);
  if (data == nullptr)
    throw user_error("cannot allocate {:.2f} GiB of memory; `longstride plan` says what takes it", gib(rounded));
  return {std::move(data), rounded};
}

Block::Block(Device device, std::size_t bytes)
    : Block(device == Device::cpu ? on_host(bytes) : Block(driver::allocate(bytes), bytes)) {}

Block Block::host_side(Device device, std::size_t bytes) {
  return device == Device::cpu ? on_host(bytes) : Block(driver::allocate_pinned(bytes), bytes);
}

}  // namespace longstride
