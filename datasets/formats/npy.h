// Reads NumPy's array files, for pictures: uint8, C order. Writes those of losses: float32.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "datasets/formats/archive.h"
#include "datasets/formats/byte_input.h"
#include "framework/core/files/files.h"

namespace longstride {

struct NpyHeader {
  std::string descr;  // "|u1": uint8
  bool fortran_order = false;
  std::vector<std::int64_t> shape;
};

// Reads the header and leaves the stream at the first element. UserError if it is damaged or not a .npy file, or if the
// number of remaining bytes does not match the shape.
NpyHeader read_npy_header(ByteStream& stream);

// A float32 array (rows, columns), which appears whole or not at all: written a part at a time, so that it need not fit
// in memory. Without commit() the destructor discards it.
class NpyWriter {
 public:
  NpyWriter(const std::string& path, std::int64_t rows, std::int64_t columns);
  void append(std::span<const float> values);
  void commit();

 private:
  AtomicFile file_;
  std::int64_t left_;  // values
};

void write_npy(const std::string& path, const std::vector<float>& values, std::int64_t columns);

// How pictures are arranged in an array.
struct NpyPictures {
  enum class Layout { interleaved, planar, grey };  // (N, H, W, 3); (N, 3, H, W) or (N, 3HW); (N, H, W) or (N, H, W, 1)
  Layout layout = Layout::interleaved;
  std::int64_t count = 0, rows = 0, columns = 0;

  std::int64_t bytes() const { return rows * columns * (layout == Layout::grey ? 1 : 3); }  // size of a picture
};

// side: the number of rows and columns that the pictures must have. UserError, saying what is accepted, otherwise.
NpyPictures npy_pictures(const NpyHeader& header, std::int64_t side, const std::string& name);

// The array of pictures in a .npz file, which `open` opens from its beginning: `data`, as in the published downsampled
// ImageNet, or else the only one.
std::unique_ptr<ByteStream> open_npz_pictures(const std::function<std::unique_ptr<Archive>()>& open,
                                              const std::string& name);

}  // namespace longstride
