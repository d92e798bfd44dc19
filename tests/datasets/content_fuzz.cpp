// Any bytes as an input of `prepare bytes`: an error, or as many bytes as were counted.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "datasets/prepare/byte_content.h"
#include "framework/core/errors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace longstride;
  const MemoryBlob blob("fuzz", data, size);
  try {
    const Packing packing = packing_of(blob);
    const std::int64_t counted = content_size(blob, packing, true).bytes;
    if (packing.archive && counted > std::int64_t{4} << 20) return 0;  // a sparse file may be very long
    const auto content = open_content(blob, packing);
    std::vector<std::uint8_t> buffer(4099);
    std::int64_t sum = 0;
    for (std::size_t got = buffer.size(); got == buffer.size(); sum += static_cast<std::int64_t>(got))
      got = content->read(buffer.data(), buffer.size());
    if (sum != counted || content->read(buffer.data(), 1) != 0) std::abort();
  } catch (const UserError&) {
  }
  return 0;
}
