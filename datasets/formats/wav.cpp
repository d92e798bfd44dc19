#include "datasets/formats/wav.h"

#include <algorithm>
#include <cmath>

#include "framework/core/errors.h"
#include "framework/core/files/files.h"

namespace longstride {
namespace {

void put(std::string& out, std::uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i) & 0xFF);
}

}  // namespace

void write_wav(const std::string& path, const std::vector<float>& samples, std::int64_t rate) {
  LONGSTRIDE_CHECK(rate > 0 && rate < 1 << 24, "{} samples per second", rate);
  const std::uint64_t bytes = samples.size() * 2;
  if (bytes > 0xFFFFFFFFull - 36)
    throw user_error("{}: {} samples are more than a WAV file can hold", path, samples.size());
  std::string header = "RIFF";
  put(header, 36 + bytes, 4);
  header += "WAVEfmt ";
  put(header, 16, 4);  // bytes of this chunk
  put(header, 1, 2);   // PCM
  put(header, 1, 2);   // channels
  put(header, static_cast<std::uint64_t>(rate), 4);
  put(header, static_cast<std::uint64_t>(rate) * 2, 4);  // bytes per second
  put(header, 2, 2);                                     // bytes per frame
  put(header, 16, 2);                                    // bits per sample
  header += "data";
  put(header, bytes, 4);

  AtomicFile file(path);
  file.write(header.data(), header.size());
  constexpr std::size_t at_once = std::size_t{1} << 16;
  std::string piece;
  for (std::size_t at = 0; at < samples.size(); at += at_once) {
    piece.clear();
    for (std::size_t i = at; i < std::min(samples.size(), at + at_once); ++i) {
      const float clipped = std::clamp(samples[i], -1.0f, 1.0f);
      put(piece, static_cast<std::uint64_t>(std::lround(clipped * 32767.0f)), 2);
    }
    file.write(piece.data(), piece.size());
  }
  file.commit();
}

}  // namespace longstride
