// The `data:` section of a recipe.
#pragma once
#include <cstdint>
#include <string>

namespace longstride {

enum class DataKind : std::uint8_t { bytes, cifar10, images, audio };

// windows: a seeded permutation of windows, anew each epoch. streams: each row of the global batch reads its own
// contiguous part of the split in order, window after window, and starts again at the end.
enum class DataOrder : std::uint8_t { windows, streams };

struct DataConfig {
  DataKind kind = DataKind::bytes;
  std::string path;          // HDF5 file written by `longstride prepare`
  std::int64_t context = 0;  // positions in one training sequence; images: rows * columns * channels
  bool cross_files = false;  // audio: let a window cross the boundary between two files
  DataOrder order = DataOrder::windows;
};

}  // namespace longstride
