// The `data:` section of a recipe.
#pragma once
#include <cstdint>
#include <string>

namespace longstride {

enum class DataKind : std::uint8_t { bytes, cifar10, images, audio };

struct DataConfig {
  DataKind kind = DataKind::bytes;
  std::string path;          // HDF5 file written by `longstride prepare`
  std::int64_t context = 0;  // positions in one training sequence; images: rows * columns * channels
  bool cross_files = false;  // audio: let a window cross the boundary between two files
};

}  // namespace longstride
