// SHA-256 (FIPS 180-4), for the checksums of data files and checkpoints.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace longstride {

class Sha256 {
 public:
  // portable: without the processor's own instructions for it, where it has some; the answer is the same.
  explicit Sha256(bool portable = false);
  void update(const void* bytes, std::size_t count);
  // The digest of everything so far, as 64 lower-case hexadecimal digits. Ends the stream: update no more.
  std::string hex();

 private:
  void compress(const std::uint8_t* block, std::size_t blocks);

  bool portable_;
  std::array<std::uint32_t, 8> state_;
  std::array<std::uint8_t, 64> pending_{};
  std::uint64_t bytes_ = 0;
};

// The checksum of a file's content. UserError when the file cannot be read.
std::string sha256_of_file(const std::string& path);

}  // namespace longstride
