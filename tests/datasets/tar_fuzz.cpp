// Any bytes taken for a tar archive: an error, or files that lie inside it.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "datasets/formats/tar.h"
#include "framework/core/errors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace longstride;
  const MemoryBlob blob("fuzz", data, size);
  BlobStream stream(blob, 0, size);
  try {
    std::uint64_t sum = 0;
    for (TarReader tar(stream); tar.next(); sum += 512 + tar.size()) {
      if (tar.size() > size) std::abort();
      std::vector<std::uint8_t> content(static_cast<std::size_t>(tar.size()));
      tar.read(content.data());
    }
    if (sum > size || stream.left() != 0) std::abort();
  } catch (const UserError&) {
  }
  return 0;
}
