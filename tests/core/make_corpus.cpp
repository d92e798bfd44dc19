// Writes the seed inputs for the fuzzers of this folder: make_corpus FOLDER creates FOLDER/<name>/*.
#include <cstdint>
#include <filesystem>

#include "framework/core/files/safetensors.h"

int main(int count, char** arguments) {
  using namespace longstride;
  if (count != 2) return 2;
  const std::filesystem::path folder = std::filesystem::path(arguments[1]) / "safetensors";
  std::filesystem::create_directories(folder);
  float weights[6] = {1, 2, 3, 4, 5, 6};
  std::uint8_t bytes[3] = {7, 8, 9};
  const Tensor matrix(weights, Dtype::f32, {2, 3}), vector(bytes, Dtype::u8, {3});
  TensorEntry first, second;
  first.name = "matrix";
  first.shape = {2, 3};
  second.name = "vector";
  second.dtype = Dtype::u8;
  second.shape = {3};
  SafetensorsWriter writer((folder / "two_tensors").string(), {first, second}, {{"format", "pt"}});
  writer.write(matrix);
  writer.write(vector);
  writer.finish();
  return 0;
}
