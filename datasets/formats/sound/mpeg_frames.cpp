#include "datasets/formats/sound/mpeg_frames.h"

#include <algorithm>

#include "framework/core/errors.h"
#include "framework/core/text/numbers.h"

namespace longstride {
namespace {

// The header of a frame: eleven ones, version (2 bits), layer (2), no checksum (1), bit rate (4), sampling rate (2),
// padding (1), ..
constexpr std::size_t frame_header = 4;
constexpr std::uint64_t sync = 0xFFE00000, version = 0x00180000, layer = 0x00060000, bit_rate = 0x0000F000,
                        sampling_rate = 0x00000C00, padding = 0x00000200, kind = sync | version | layer | sampling_rate;
constexpr std::uint64_t version_1 = 3, version_2 = 2, layer_1 = 3, layer_2 = 2;  // as the header has them

bool is_frame(std::uint64_t header) {
  return (header & sync) == sync && (header & version) != 0x00080000 && (header & layer) != 0 &&
         (header & bit_rate) != bit_rate && (header & sampling_rate) != sampling_rate;
}

std::uint64_t samples_of(std::uint64_t header) {
  const std::uint64_t l = (header & layer) >> 17, v = (header & version) >> 19;
  return l == layer_1 ? 384 : l == layer_2 || v == version_1 ? 1152 : 576;
}

// Bytes; 0 if it is no frame, or its bit rate is not stated.
std::uint64_t size_of(std::uint64_t header) {
  if (!is_frame(header)) return 0;
  constexpr std::uint64_t rates[5][15] = {{0, 32, 64, 96, 128, 160, 192, 224, 256, 288, 320, 352, 384, 416, 448},
                                          {0, 32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384},
                                          {0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320},
                                          {0, 32, 48, 56, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256},
                                          {0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160}};
  constexpr std::uint64_t hertz[] = {44100, 48000, 32000};
  const std::uint64_t l = (header & layer) >> 17, v = (header & version) >> 19;
  const std::uint64_t row = v == version_1 ? layer_1 - l : l == layer_1 ? 3 : 4;
  const std::uint64_t bits = rates[row][(header & bit_rate) >> 12] * 1000;
  const std::uint64_t rate = hertz[(header & sampling_rate) >> 10] >> (v == version_1 ? 0 : v == version_2 ? 1 : 2);
  if (bits == 0) return 0;
  const std::uint64_t padded = (header & padding) != 0 ? 1 : 0;
  if (l == layer_1) return (12 * bits / rate + padded) * 4;
  return samples_of(header) / 8 * bits / rate + padded;
}

// True if there is a frame of this kind, and another one or the end of the file behind it.
bool is_followed_frame(BlobWindow& file, std::uint64_t at, std::uint64_t first) {
  const std::uint64_t header = mpeg_header_at(file, at), size = size_of(header);
  return same_mpeg_kind(header, first) && size > 0 &&
         (at + size == file.size() || same_mpeg_kind(mpeg_header_at(file, at + size), first));
}

}  // namespace

std::uint64_t mpeg_header_at(BlobWindow& file, std::uint64_t at) {
  const std::string_view bytes = file.at(at, frame_header);
  return bytes.size() < frame_header ? 0 : number_of(bytes, true);
}

bool same_mpeg_kind(std::uint64_t a, std::uint64_t b) { return is_frame(a) && is_frame(b) && (a & kind) == (b & kind); }

bool begins_like_mpeg(BlobWindow& file, std::uint64_t start) { return is_frame(mpeg_header_at(file, start)); }

bool has_mpeg_frames(BlobWindow& file, std::uint64_t start) {
  constexpr std::uint64_t near = 1 << 16;
  const std::uint64_t first = mpeg_header_at(file, start), end = std::min(start + near, file.size());
  if ((first & layer) >> 17 == layer_1 && size_of(first) > 0)
    return same_mpeg_kind(mpeg_header_at(file, start + size_of(first)), first);
  for (std::uint64_t at = start + frame_header; at < end; ++at)
    if (same_mpeg_kind(mpeg_header_at(file, at), first)) return true;
  return false;
}

std::int64_t samples_of_mpeg_frames(BlobWindow& file, std::uint64_t start) {
  const std::uint64_t first = mpeg_header_at(file, start);
  if (!is_frame(first) || size_of(first) == 0) return 0;
  std::uint64_t samples = 0;
  for (std::uint64_t at = start; at < file.size();) {
    const std::uint64_t header = mpeg_header_at(file, at);
    if (same_mpeg_kind(header, first) && size_of(header) > 0) {
      if (at + size_of(header) > file.size())
        throw user_error(
            "{}: is cut short (its last frame lacks {} bytes); copy or download it again, or convert what is left",
            file.blob().name(), at + size_of(header) - file.size());
      samples += samples_of(header), at += size_of(header);
      continue;
    }
    std::uint64_t next = at;
    while (next < file.size() && !is_followed_frame(file, next, first)) ++next;
    const std::string_view gap = file.at(at, 8);
    if (next < file.size() && !gap.starts_with("ID3") && !gap.starts_with("TAG") && !gap.starts_with("APETAGEX"))
      throw user_error("{}: is damaged at byte {}, where {} bytes are no frame of sound; copy or download it again",
                       file.blob().name(), thousands(static_cast<std::int64_t>(at)),
                       thousands(static_cast<std::int64_t>(next - at)));
    at = next;
  }
  return static_cast<std::int64_t>(samples);
}

}  // namespace longstride
