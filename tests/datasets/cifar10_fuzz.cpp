// Any bytes taken for a batch file: an error or the pixels of every record, each from its place in the planes.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "datasets/formats/cifar10.h"
#include "framework/core/errors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace longstride;
  try {
    const std::int64_t records = cifar10_records(size, "fuzz");
    if (records * Cifar10::record != static_cast<std::int64_t>(size)) std::abort();
    std::array<std::uint8_t, Cifar10::pixels> pixels;
    for (std::int64_t r = 0; r < records; ++r) {
      const std::uint8_t* record = data + r * Cifar10::record;
      if (decode_cifar10(record, r, "fuzz", pixels.data()) != record[0]) std::abort();
      if (pixels[0] != record[1] || pixels[1] != record[1025] || pixels[3071] != record[3072]) std::abort();
    }
  } catch (const UserError&) {
    return 0;
  }
  return 0;
}
