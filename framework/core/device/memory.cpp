#include "framework/core/device/memory.h"

#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <limits>
#include <string>

#include "framework/core/arena.h"
#include "framework/core/device/host_limits.h"
#include "framework/core/errors.h"
#include "framework/core/text/numbers.h"

namespace longstride {
namespace {

std::atomic<std::int64_t> in_host_blocks = 0;  // bytes, touched or not
std::int64_t most_in_host_blocks = std::numeric_limits<std::int64_t>::max();
std::int64_t allowed = 0;
std::string where_allowed;

void release(void* data) {
  in_host_blocks -= static_cast<std::int64_t>(::malloc_usable_size(data));
  std::free(data);
}

}  // namespace

// Pages that are touched beyond a limit end the process without a word.
void limit_host_blocks(std::int64_t bytes, const std::string& origin) {
  most_in_host_blocks = in_host_blocks + bytes;
  allowed = bytes;
  where_allowed = origin;
}

Block Block::on_host(std::size_t bytes) {
  const std::size_t rounded = Arena::rounded(bytes > 0 ? bytes : 1);
  const std::int64_t needed = in_host_blocks + static_cast<std::int64_t>(rounded);
  if (needed > most_in_host_blocks)
    throw user_error(
        "{:.3f} GiB of memory per rank are needed, but only {:.3f} are {}; use a smaller batch or model, end other "
        "programs, or raise the limit",
        gib(needed + allowed - most_in_host_blocks), gib(allowed), where_allowed);
  driver::Handle data(std::aligned_alloc(Arena::alignment, rounded), release);
  if (data == nullptr)
    throw user_error("cannot allocate {:.2f} GiB of memory; `longstride plan` says what takes it", gib(rounded));
  in_host_blocks += static_cast<std::int64_t>(::malloc_usable_size(data.get()));
  return {std::move(data), rounded};
}

Block::Block(Device device, std::size_t bytes)
    : Block(device == Device::cpu ? on_host(bytes) : Block(driver::allocate(bytes), bytes)) {}

Block Block::host_side(Device device, std::size_t bytes) {
  return device == Device::cpu ? on_host(bytes) : Block(driver::allocate_pinned(bytes), bytes);
}

}  // namespace longstride
