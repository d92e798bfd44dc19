// Replaces archive_libarchive.cpp where libarchive was not found at configure time.
#include "datasets/formats/archive.h"
#include "framework/core/errors.h"

namespace longstride {

std::unique_ptr<Archive> open_archive(const Blob& blob) {
  throw user_error(
      "{}: this program was built without libarchive, which tar, zip and .npz files need; install libarchive-dev and "
      "configure again, or unpack it first",
      blob.name());
}

}  // namespace longstride
