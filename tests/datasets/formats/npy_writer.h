// Small .npy files for the tests of the reader.
#pragma once
#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <vector>

namespace longstride {

using Bytes = std::vector<std::uint8_t>;

inline void put_number(Bytes& out, std::uint64_t value, int bytes) {
  for (; bytes > 0; --bytes, value >>= 8) out.push_back(static_cast<std::uint8_t>(value));
}

inline Bytes make_npy(const std::string& shape, const Bytes& data, const std::string& descr = "|u1",
                      const std::string& fortran = "False") {
  std::string header = fmt::format("{{'descr': '{}', 'fortran_order': {}, 'shape': {}, }}", descr, fortran, shape);
  header.resize((10 + header.size() + 1 + 63) / 64 * 64 - 10 - 1, ' ');
  header += '\n';
  Bytes out;
  out.reserve(10 + header.size() + data.size());
  for (const int byte : {0x93, 0x4e, 0x55, 0x4d, 0x50, 0x59, 1, 0}) out.push_back(static_cast<std::uint8_t>(byte));
  put_number(out, header.size(), 2);
  out.insert(out.end(), header.begin(), header.end());
  out.insert(out.end(), data.begin(), data.end());
  return out;
}

}  // namespace longstride
