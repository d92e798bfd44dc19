// Small .npy, .zip and .tar files, for the tests of their readers.
#pragma once
#include <fmt/format.h>
#include <zlib.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace longstride {

using NamedFiles = std::vector<std::pair<std::string, std::vector<std::uint8_t>>>;

inline void put_number(std::vector<std::uint8_t>& out, std::uint64_t value, int bytes) {
  for (; bytes > 0; --bytes, value >>= 8) out.push_back(static_cast<std::uint8_t>(value));
}

inline std::vector<std::uint8_t> make_npy(const std::string& shape, const std::vector<std::uint8_t>& data,
                                          const std::string& descr = "|u1", const std::string& fortran = "False") {
  std::string header = fmt::format("{{'descr': '{}', 'fortran_order': {}, 'shape': {}, }}", descr, fortran, shape);
  header.resize((10 + header.size() + 1 + 63) / 64 * 64 - 10 - 1, ' ');
  header += '\n';
  std::vector<std::uint8_t> out = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0};
  put_number(out, header.size(), 2);
  out.insert(out.end(), header.begin(), header.end());
  out.insert(out.end(), data.begin(), data.end());
  return out;
}

inline std::vector<std::uint8_t> deflated(const std::vector<std::uint8_t>& data) {
  z_stream stream = {};
  deflateInit2(&stream, 6, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
  std::vector<std::uint8_t> out(deflateBound(&stream, data.size()));
  stream.next_in = const_cast<Bytef*>(data.data());
  stream.avail_in = static_cast<uInt>(data.size());
  stream.next_out = out.data();
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

// wide: with zip64 fields, as archives of over 4 GiB have them.
inline std::vector<std::uint8_t> make_zip(const NamedFiles& files, bool deflate, bool wide = false) {
  std::vector<std::uint8_t> out, directory;
  const std::uint64_t elsewhere = 0xFFFFFFFF;
  for (const auto& file : files) {
    const std::string& name = file.first;  // not a structured binding: clang 14 cannot capture one
    const std::vector<std::uint8_t>& content = file.second;
    const auto stored = deflate ? deflated(content) : content;
    const std::uint64_t offset = out.size();
    const auto common = [&](std::vector<std::uint8_t>& to, int extra) {
      put_number(to, 20, 2);  // version needed
      put_number(to, 0, 2);   // flags
      put_number(to, deflate ? 8 : 0, 2);
      put_number(to, 0, 4);  // time
      put_number(to, crc32(0, content.data(), static_cast<uInt>(content.size())), 4);
      put_number(to, wide ? elsewhere : stored.size(), 4);
      put_number(to, wide ? elsewhere : content.size(), 4);
      put_number(to, name.size(), 2);
      put_number(to, static_cast<std::uint64_t>(extra), 2);
    };
    put_number(out, 0x04034b50, 4);
    common(out, 0);
    out.insert(out.end(), name.begin(), name.end());
    out.insert(out.end(), stored.begin(), stored.end());
    put_number(directory, 0x02014b50, 4);
    put_number(directory, 20, 2);  // made by
    common(directory, wide ? 28 : 0);
    put_number(directory, 0, 2 + 2 + 2 + 4);  // comment, disk, attributes
    put_number(directory, wide ? elsewhere : offset, 4);
    directory.insert(directory.end(), name.begin(), name.end());
    if (!wide) continue;
    put_number(directory, 1, 2);
    put_number(directory, 24, 2);
    put_number(directory, content.size(), 8);
    put_number(directory, stored.size(), 8);
    put_number(directory, offset, 8);
  }
  const std::uint64_t start = out.size();
  out.insert(out.end(), directory.begin(), directory.end());
  const std::uint64_t end = out.size();
  if (wide) {
    put_number(out, 0x06064b50, 4);
    put_number(out, 44, 8);
    put_number(out, 0, 2 + 2 + 4 + 4);  // versions, disks
    for (const std::uint64_t value : {files.size(), files.size(), directory.size(), start}) put_number(out, value, 8);
    put_number(out, 0x07064b50, 4);
    put_number(out, 0, 4);
    put_number(out, end, 8);
    put_number(out, 1, 4);
  }
  put_number(out, 0x06054b50, 4);
  put_number(out, 0, 4);
  put_number(out, wide ? 0xFFFF : files.size(), 2);
  put_number(out, wide ? 0xFFFF : files.size(), 2);
  put_number(out, wide ? elsewhere : directory.size(), 4);
  put_number(out, wide ? elsewhere : start, 4);
  put_number(out, 0, 2);
  return out;
}

inline void add_to_tar(std::vector<std::uint8_t>& out, char type, const std::string& name,
                       const std::vector<std::uint8_t>& content) {
  char header[512] = {};
  std::memcpy(header, name.data(), name.size() < 100 ? name.size() : 100);
  std::memcpy(header + 100, "0000644", 7);
  const std::string size = fmt::format("{:011o}", content.size());
  std::memcpy(header + 124, size.data(), size.size());
  header[156] = type;
  std::memcpy(header + 257, "ustar\00000", 8);
  std::memset(header + 148, ' ', 8);
  unsigned sum = 0;
  for (const char c : header) sum += static_cast<unsigned char>(c);
  const std::string checksum = fmt::format("{:06o}", sum);
  std::memcpy(header + 148, checksum.c_str(), 7);
  out.insert(out.end(), header, header + 512);
  out.insert(out.end(), content.begin(), content.end());
  out.resize((out.size() + 511) / 512 * 512);
}

// Names of 100 bytes and more are written in an entry of their own, as GNU tar does it or, with `pax`, as POSIX has it.
inline std::vector<std::uint8_t> make_tar(const NamedFiles& files, bool pax = false) {
  std::vector<std::uint8_t> out;
  for (const auto& file : files) {
    const std::string& name = file.first;
    if (name.size() >= 100) {
      const std::string record = fmt::format("{} path={}\n", name.size() + 10, name);  // the length counts itself
      const std::string text = pax ? record : name + '\0';
      add_to_tar(out, pax ? 'x' : 'L', "long name", std::vector<std::uint8_t>(text.begin(), text.end()));
    }
    add_to_tar(out, '0', name, file.second);
  }
  out.resize(out.size() + 1024);
  return out;
}

}  // namespace longstride
