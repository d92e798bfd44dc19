#include "datasets/hdf5/chunk_filters.h"

#include <zlib.h>

#include <algorithm>

namespace longstride::hdf5 {

std::uint32_t fletcher32(const std::uint8_t* bytes, std::size_t count) {
  constexpr std::size_t words_without_overflow = 360;
  std::uint32_t sum = 0, sums = 0;
  const auto fold = [](std::uint32_t n) { return (n & 0xFFFF) + (n >> 16); };
  for (std::size_t words = count / 2; words > 0;) {
    const std::size_t taken = std::min(words, words_without_overflow);
    for (std::size_t w = 0; w < taken; ++w, bytes += 2) {
      sum += std::uint32_t{bytes[0]} << 8 | bytes[1];
      sums += sum;
    }
    words -= taken;
    sum = fold(sum), sums = fold(sums);
  }
  if (count % 2 == 1) {
    sum += std::uint32_t{*bytes} << 8;
    sums += sum;
    sum = fold(sum), sums = fold(sums);
  }
  return fold(sums) << 16 | fold(sum);
}

bool undo_fletcher32(std::vector<std::uint8_t>& bytes) {
  if (bytes.size() < 4) return false;
  const std::size_t content = bytes.size() - 4;
  const std::uint8_t* end = bytes.data() + content;
  const auto word = [&](int a, int b, int c, int d) {
    return std::uint32_t{end[a]} | std::uint32_t{end[b]} << 8 | std::uint32_t{end[c]} << 16 |
           std::uint32_t{end[d]} << 24;
  };
  const std::uint32_t sum = fletcher32(bytes.data(), content);
  if (sum != word(0, 1, 2, 3) && sum != word(1, 0, 3, 2)) return false;  // HDF5 1.6.2 swapped the bytes
  bytes.resize(content);
  return true;
}

bool undo_deflate(std::vector<std::uint8_t>& bytes, std::size_t most) {
  std::vector<std::uint8_t> out(most);
  uLongf made = most;
  if (uncompress(out.data(), &made, bytes.data(), bytes.size()) != Z_OK) return false;
  out.resize(made);
  bytes = std::move(out);
  return true;
}

bool undo_shuffle(std::vector<std::uint8_t>& bytes, std::size_t width) {
  if (width < 2) return true;
  if (bytes.size() % width != 0) return false;
  const std::size_t entries = bytes.size() / width;
  std::vector<std::uint8_t> out(bytes.size());
  for (std::size_t w = 0; w < width; ++w)
    for (std::size_t e = 0; e < entries; ++e) out[e * width + w] = bytes[w * entries + e];
  bytes = std::move(out);
  return true;
}

}  // namespace longstride::hdf5
