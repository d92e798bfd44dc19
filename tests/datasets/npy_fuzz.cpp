// Any bytes read as a .npy file, and as a .npz archive with one in it, alone or in another archive: an error, or
// exactly as many pictures as the header states.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "datasets/formats/npy.h"
#include "framework/core/errors.h"

namespace {

using namespace longstride;

void read_pictures(ByteStream& stream) {
  const NpyHeader header = read_npy_header(stream);
  const NpyPictures pictures = npy_pictures(header, 4, stream.name());
  std::vector<std::uint8_t> picture(static_cast<std::size_t>(pictures.bytes()));
  constexpr std::int64_t enough = 10'000;  // a compressed archive may hold very many
  const std::int64_t count = std::min(pictures.count, enough);
  for (std::int64_t i = 0; i < count; ++i) stream.read(picture.data(), picture.size());
  if (count == pictures.count && stream.left() != 0) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const MemoryBlob blob("fuzz", data, size);
  try {
    BlobStream stream(blob);
    read_pictures(stream);
  } catch (const UserError&) {
  }
  try {
    read_pictures(*open_npz_pictures([&] { return open_archive(blob); }, "fuzz"));
  } catch (const UserError&) {
  }
  try {
    const auto open = [&] { return open_zip_stream(std::make_unique<BlobStream>(blob)); };
    read_pictures(*open_npz_pictures(open, "fuzz"));
  } catch (const UserError&) {
  }
  return 0;
}
