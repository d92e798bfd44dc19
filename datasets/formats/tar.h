// Walks through a tar archive (ustar, with GNU's and pax's long names) from first to last.
#pragma once
#include <cstdint>
#include <string>

#include "datasets/formats/byte_input.h"

namespace longstride {

class TarReader {
 public:
  explicit TarReader(BlobStream& stream) : stream_(stream) {}

  // Goes to the next regular file; false at the end mark, after which the stream has been read to its end. UserError
  // for damage, and for an archive that stops without its end mark: it is cut short.
  bool next();
  const std::string& name() const { return name_; }
  std::uint64_t size() const { return size_; }
  // Where the content begins in the archive, until it is read.
  std::uint64_t offset() const { return stream_.position(); }
  // The content of the file, at most once.
  void read(void* out);

 private:
  bool read_header(char* header);
  std::string read_extension(std::uint64_t size);
  void apply_pax(const std::string& records);

  BlobStream& stream_;
  std::string name_, long_name_;
  std::uint64_t size_ = 0, pending_ = 0;  // pending_: bytes of content and padding not yet read
  std::uint64_t pax_size_ = 0;
  bool has_pax_size_ = false;
};

}  // namespace longstride
