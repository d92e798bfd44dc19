// Pictures of 8 x 8 pixels for the tests of `prepare images`.
#pragma once
#include <string>
#include <vector>

#include "tests/datasets/support.h"

namespace longstride {

constexpr std::size_t side = 8, picture = side * side * 3;

inline PrepareImagesConfig config_of(std::vector<std::string> inputs) {
  PrepareImagesConfig config;
  config.inputs = std::move(inputs);
  config.split = "1.0,0.0";
  config.side = side;
  return config;
}

inline Bytes slice(const Bytes& all, std::size_t i) {
  return Bytes(all.begin() + static_cast<std::ptrdiff_t>(i * picture),
               all.begin() + static_cast<std::ptrdiff_t>((i + 1) * picture));
}

// (N, H, W, 3) to (N, 3, H, W)
inline Bytes planar(const Bytes& pixels) {
  Bytes out(pixels.size());
  for (std::size_t i = 0; i < pixels.size(); ++i) {
    const std::size_t n = i / picture, pixel = i % picture / 3, channel = i % 3;
    out[n * picture + channel * side * side + pixel] = pixels[i];
  }
  return out;
}

inline Bytes train_of(const PrepareImagesConfig& config, const Folder& folder) {
  prepare_images(config, to(folder / "x.h5", true));
  return whole_split(*Dataset::open(folder / "x.h5"), "train");
}

}  // namespace longstride
