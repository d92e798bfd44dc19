// The safetensors format: named tensors in one file that the Python package of that name opens.
//   8 bytes   length of the header, little endian
//   header    JSON: {"name": {"dtype": "F32", "shape": [..], "data_offsets": [begin, end]}, .., "__metadata__": {..}}
//   data      the tensors, row-major, little endian, without gaps
// Supported element types: F64, F32, BF16, F16, I64, I32, U16, U8.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "framework/core/files/files.h"
#include "framework/core/files/sha256.h"
#include "framework/core/tensor.h"

namespace longstride {

using Metadata = std::map<std::string, std::string>;

struct TensorEntry {
  std::string name;
  Dtype dtype = Dtype::f32;
  Shape shape;              // a scalar, [] in the file, reads as (1)
  std::uint64_t begin = 0;  // bytes from the start of the data; the writer fills these in itself
  std::uint64_t end = 0;
};

// Size and checksum of a written file.
struct FileDigest {
  std::uint64_t bytes = 0;
  std::string sha256;
};

// Writes the tensors of `entries` one at a time, never holding all of them. The data starts at a multiple of 64 bytes.
// finish() gives the file its name.
class SafetensorsWriter {
 public:
  SafetensorsWriter(const std::string& path, std::vector<TensorEntry> entries, const Metadata& metadata = {});
  // The next tensor in order: host memory, contiguous, of the declared type and shape.
  void write(const Tensor& tensor);
  FileDigest finish();

 private:
  void append(const void* bytes, std::size_t count);

  AtomicFile file_;
  std::vector<TensorEntry> entries_;
  std::size_t next_ = 0;
  FileDigest digest_;
  Sha256 sha_;
};

// Opens and checks a file; reads tensors on demand. Every error in the header (lengths, types, shapes that do not match
// their bytes, overlaps, gaps, data outside the file, duplicate names) is a UserError in one sentence that names the
// file.
class SafetensorsReader {
 public:
  explicit SafetensorsReader(const std::string& path);
  const std::string& path() const { return file_.path(); }
  const std::vector<TensorEntry>& entries() const { return entries_; }  // in the order of their data
  const Metadata& metadata() const { return metadata_; }
  const TensorEntry* find(const std::string& name) const;  // null: not there
  // Fills `out` (host memory, contiguous). UserError when the tensor is absent or has another type or shape.
  void read(const std::string& name, const Tensor& out) const;

 private:
  InputFile file_;
  std::uint64_t data_begin_ = 0;
  std::vector<TensorEntry> entries_;
  std::unordered_map<std::string, std::size_t> index_;
  Metadata metadata_;
};

}  // namespace longstride
