// Any bytes read as a PNG file: an error, or a picture of the size in its header.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "datasets/formats/png.h"
#include "framework/core/errors.h"
#include "tests/datasets/formats/png_encoder.h"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t most);

// Without correct checksums hardly any input gets past the header.
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t most, unsigned seed) {
  size = LLVMFuzzerMutate(data, size, most);
  if (seed % 4 == 0) return size;
  std::vector<std::uint8_t> file(data, data + size);
  longstride::set_chunk_checksums(file);
  std::memcpy(data, file.data(), size);
  return size;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace longstride;
  constexpr std::size_t header_end = 24;
  // Large pictures are valid but slow to decode under the sanitizer, and test nothing new.
  if (size >= header_end && (data[16] | data[17] | data[18] | data[20] | data[21] | data[22]) != 0) return 0;
  try {
    const Picture picture = read_png(data, size, "fuzz");
    if (picture.rows != data[23] || picture.columns != data[19]) std::abort();
    if (picture.pixels.size() != static_cast<std::size_t>(picture.rows * picture.columns * picture.channels))
      std::abort();
  } catch (const UserError&) {
  }
  return 0;
}
