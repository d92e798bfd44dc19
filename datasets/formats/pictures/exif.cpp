#include "datasets/formats/pictures/exif.h"

#include <cstring>

namespace longstride {
namespace {

// A TIFF file: byte order, offset of a directory, and there 12 bytes per entry: tag, type, count and value.
class Tiff {
 public:
  Tiff(const std::uint8_t* bytes, std::size_t count) : bytes_(bytes), count_(count) {}

  int orientation() const {
    if (count_ < 8 || (std::memcmp(bytes_, "II*\0", 4) != 0 && std::memcmp(bytes_, "MM\0*", 4) != 0)) return 1;
    const std::size_t directory = number(4, 4);
    if (directory > count_ || count_ - directory < 2) return 1;
    std::size_t entry = directory + 2;
    for (std::size_t left = number(directory, 2); left > 0 && count_ - entry >= 12; --left, entry += 12) {
      constexpr std::size_t tag = 0x0112, two_bytes = 3;
      if (number(entry, 2) != tag) continue;
      const std::size_t value = number(entry + 8, 2);
      const bool valid = number(entry + 2, 2) == two_bytes && number(entry + 4, 4) == 1 && value >= 1 && value <= 8;
      return valid ? static_cast<int>(value) : 1;
    }
    return 1;
  }

 private:
  std::size_t number(std::size_t at, std::size_t size) const {
    std::size_t value = 0;
    for (std::size_t i = 0; i < size; ++i) value = value << 8 | bytes_[at + (bytes_[0] == 'I' ? size - 1 - i : i)];
    return value;
  }

  const std::uint8_t* bytes_;
  std::size_t count_;
};

}  // namespace

int exif_orientation(const std::uint8_t* bytes, std::size_t count) {
  constexpr std::size_t prefix = 6;
  const bool prefixed = count >= prefix && std::memcmp(bytes, "Exif\0\0", prefix) == 0;
  return prefixed ? Tiff(bytes + prefix, count - prefix).orientation() : Tiff(bytes, count).orientation();
}

}  // namespace longstride
