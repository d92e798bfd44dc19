// Replaces archive_libarchive.cpp if libarchive was not found at configure time.
#include "datasets/formats/archive.h"
#include "framework/core/errors.h"

namespace longstride {

std::unique_ptr<Archive> open_archive(const Blob& blob) {
  throw user_error(
      "{}: reading tar, zip and .npz files needs libarchive, which this build lacks; install libarchive-dev and "
      "configure again, or unpack it first",
      blob.name());
}

std::unique_ptr<Archive> open_zip_stream(std::unique_ptr<ByteStream> stream) {
  return open_archive(MemoryBlob(stream->name(), nullptr, 0));
}

std::unique_ptr<UnsizedStream> open_compressed(const Blob& blob, const std::string& format) {
  throw user_error(
      "{}: reading {} files needs libarchive, which this build lacks; install libarchive-dev and configure again, or "
      "unpack it first",
      blob.name(), format);
}

}  // namespace longstride
