// Archives through libarchive: tar (also compressed by gzip, xz, bzip2 or zstd) and zip, which .npz files are. In a
// build without libarchive, no_archive.cpp replaces the reader and says so.
#pragma once
#include <memory>
#include <string>

#include "datasets/formats/byte_input.h"

namespace longstride {

// The regular files of an archive from first to last. As a stream it is the content of the current one, with a name
// such as "x.tar:a.png"; zip's checksum of a file is compared when its last byte is read.
class Archive : public ByteStream {
 public:
  // Moves to the next regular file; false after the last one. UserError for damage and for an archive that is cut
  // short, even between two files.
  virtual bool next() = 0;
  virtual const std::string& member() const = 0;  // the name of the current file within the archive
};

// `blob` must outlive the archive. UserError when it is no archive.
std::unique_ptr<Archive> open_archive(const Blob& blob);

}  // namespace longstride
