// Archives through libarchive: tar (also compressed by gzip, xz, bzip2 or zstd) and zip, which .npz files are; and
// files compressed by xz, bzip2 or zstd (gzip.h has its own reader). In a build without libarchive, no_archive.cpp
// replaces the readers and says so.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "datasets/formats/byte_input.h"

namespace longstride {

// The regular files of an archive from first to last. The stream yields the content of the current file, named like
// "x.tar:a.png"; a file's zip checksum is verified when its last byte is read.
class Archive : public ByteStream {
 public:
  // Moves to the next regular file; false after the last one. UserError if the archive is damaged or cut short, even
  // between two files.
  virtual bool next() = 0;
  virtual const std::string& member() const = 0;  // the name of the current file within the archive
  virtual std::int64_t links() const = 0;  // to other files, passed over so far: they have no content of their own
};

// `blob` must outlive the archive. UserError if it is not an archive.
std::unique_ptr<Archive> open_archive(const Blob& blob);

// A zip archive that is read once from first to last, as within another archive.
std::unique_ptr<Archive> open_zip_stream(std::unique_ptr<ByteStream> stream);

// The content of a file compressed once. format: "xz", "bzip2" or "zstd". `blob` must outlive the stream. UserError if
// the file is damaged, cut short or followed by anything else.
std::unique_ptr<UnsizedStream> open_compressed(const Blob& blob, const std::string& format);

}  // namespace longstride
