// The checksums of HDF5's own structures (format of version 1.10), so that tests can change structures unnoticed.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

namespace longstride {

// Bob Jenkins' lookup3, as HDF5 uses it: little-endian, initial value 0.
inline std::uint32_t lookup3(const std::uint8_t* key, std::size_t length) {
  const auto turn = [](std::uint32_t x, int k) { return x << k | x >> (32 - k); };
  std::uint32_t a = 0xdeadbeef + static_cast<std::uint32_t>(length), b = a, c = a;
  std::uint32_t word[3];
  while (length > 12) {
    std::memcpy(word, key, 12);
    a += word[0], b += word[1], c += word[2];
    a -= c, a ^= turn(c, 4), c += b;
    b -= a, b ^= turn(a, 6), a += c;
    c -= b, c ^= turn(b, 8), b += a;
    a -= c, a ^= turn(c, 16), c += b;
    b -= a, b ^= turn(a, 19), a += c;
    c -= b, c ^= turn(b, 4), b += a;
    key += 12, length -= 12;
  }
  if (length == 0) return c;
  std::memset(word, 0, sizeof word);
  std::memcpy(word, key, length);
  a += word[0], b += word[1], c += word[2];
  c ^= b, c -= turn(b, 14);
  a ^= c, a -= turn(c, 11);
  b ^= a, b -= turn(a, 25);
  c ^= b, c -= turn(b, 16);
  a ^= c, a -= turn(c, 4);
  b ^= a, b -= turn(a, 14);
  c ^= b, c -= turn(b, 24);
  return c;
}

// Bytes [begin, end), followed by their checksum.
struct ChecksummedExtent {
  std::size_t begin = 0, end = 0;
};

inline std::uint32_t word_at(const std::vector<std::uint8_t>& file, std::size_t at) {
  std::uint32_t word = 0;
  std::memcpy(&word, file.data() + at, sizeof word);
  return word;
}

// Structures that begin with a signature and end with a matching checksum.
inline std::vector<ChecksummedExtent> checksummed_extents(const std::vector<std::uint8_t>& file) {
  constexpr std::string_view signatures[] = {"\x89HDF", "OHDR", "OCHK", "EAHD", "EAIB", "EASB", "EADB", "FAHD",
                                             "FADB",    "BTHD", "BTIN", "BTLF", "FRHP", "FHIB", "FSHD", "FSSE"};
  constexpr std::size_t longest = 8192;
  std::vector<ChecksummedExtent> found;
  for (std::size_t at = 0; at + 8 <= file.size(); ++at) {
    const std::string_view start(reinterpret_cast<const char*>(file.data()) + at, 4);
    if (std::find(std::begin(signatures), std::end(signatures), start) == std::end(signatures)) continue;
    for (std::size_t end = at + 8; end + 4 <= std::min(file.size(), at + longest); ++end)
      if (lookup3(file.data() + at, end - at) == word_at(file, end)) {
        found.push_back({at, end});
        break;
      }
  }
  return found;
}

inline void mend_checksums(std::vector<std::uint8_t>& file, const std::vector<ChecksummedExtent>& extents) {
  for (const ChecksummedExtent& e : extents) {
    const std::uint32_t sum = lookup3(file.data() + e.begin, e.end - e.begin);
    std::memcpy(file.data() + e.end, &sum, sizeof sum);
  }
}

}  // namespace longstride
