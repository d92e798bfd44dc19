// Any bytes read as an archive: an error, or files of the sizes that it states.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "datasets/formats/archive.h"
#include "framework/core/errors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace longstride;
  const MemoryBlob blob("fuzz", data, size);
  try {
    std::vector<std::uint8_t> content(1 << 16);
    std::uint64_t enough = 1 << 22;  // a sparse or compressed file may be very long
    for (const auto archive = open_archive(blob); archive->next();)
      while (archive->left() > 0 && enough > 0) {
        const auto count = std::min<std::uint64_t>({archive->left(), content.size(), enough});
        archive->read(content.data(), static_cast<std::size_t>(count));
        enough -= count;
      }
  } catch (const UserError&) {
  }
  return 0;
}
