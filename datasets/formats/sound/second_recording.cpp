#include "datasets/formats/sound/second_recording.h"

#include <algorithm>

#include "framework/core/errors.h"
#include "framework/core/text/numbers.h"

namespace longstride {
namespace {

using namespace std::string_view_literals;

// The header of a frame: eleven ones, version (2 bits), layer (2), no checksum (1), bit rate (4), sampling rate (2), ..
constexpr std::size_t frame_header = 4;
constexpr std::uint64_t sync = 0xFFE00000, version = 0x00180000, layer = 0x00060000, bit_rate = 0x0000F000,
                        sampling_rate = 0x00000C00, kind = sync | version | layer | sampling_rate;

bool is_frame(std::uint64_t header) {
  return (header & sync) == sync && (header & version) != 0x00080000 && (header & layer) != 0 &&
         (header & bit_rate) != bit_rate && (header & sampling_rate) != sampling_rate;
}

std::uint64_t header_at(BlobWindow& file, std::uint64_t at) {
  const std::string_view bytes = file.at(at, frame_header);
  return bytes.size() < frame_header ? 0 : number_of(bytes, true);
}

// Bytes of a frame of layer I, as which text in UTF-16 begins; 0 of others, and of one whose bit rate is not stated.
std::uint64_t layer_1_size(std::uint64_t header) {
  constexpr std::uint64_t rates[] = {44100, 48000, 32000, 1};
  const std::uint64_t kilobits = (header & bit_rate) >> 12, padding = header >> 9 & 1;
  if ((header & (version | layer)) != (version | layer)) return 0;
  return kilobits == 0 ? 0 : (12 * 32000 * kilobits / rates[(header & sampling_rate) >> 10] + padding) * 4;
}

// The marker, then the header of the block that has to come first, of 34 bytes.
void refuse_second_flac(BlobWindow& file, std::uint64_t start) {
  for (const std::string_view marker : {"fLaC\0\0\0\x22"sv, "fLaC\x80\0\0\x22"sv}) {
    const std::uint64_t second = file.find(marker, start + marker.size());
    if (second != file.size()) throw several_recordings(file.blob(), second);
  }
}

// The first frame of a file states its length where others have sound: a word behind zeros, 9, 17 or 32 of them.
void refuse_second_mp3(BlobWindow& file, std::uint64_t start) {
  const std::uint64_t first = header_at(file, start);
  for (const std::string_view word : {"Xing"sv, "Info"sv})
    for (std::uint64_t at = start; (at = file.find(word, at)) != file.size(); ++at)
      for (const std::size_t zeros : {9, 17, 32}) {
        const std::uint64_t before = frame_header + zeros;
        if (at < start + 1 + before || (header_at(file, at - before) & kind) != (first & kind)) continue;
        const std::string_view gap = file.at(at - zeros, zeros);
        if (std::all_of(gap.begin(), gap.end(), [](char c) { return c == 0; }))
          throw several_recordings(file.blob(), at - before);
      }
}

}  // namespace

UserError several_recordings(const Blob& blob, std::uint64_t at) {
  return user_error(
      "{}: holds several recordings one after the other, the second from byte {} on; split it into a file for each",
      blob.name(), thousands(static_cast<std::int64_t>(at)));
}

bool begins_like_mpeg(BlobWindow& file, std::uint64_t start) { return is_frame(header_at(file, start)); }

bool has_mpeg_frames(BlobWindow& file, std::uint64_t start) {
  constexpr std::uint64_t near = 1 << 16;
  const std::uint64_t first = header_at(file, start), end = std::min(start + near, file.size());
  if (const std::uint64_t size = layer_1_size(first); size > 0)
    return (header_at(file, start + size) & kind) == (first & kind);
  for (std::uint64_t at = start + frame_header; at < end; ++at) {
    const std::uint64_t header = header_at(file, at);
    if (is_frame(header) && (header & kind) == (first & kind)) return true;
  }
  return false;
}

void refuse_second_recording(BlobWindow& file, std::uint64_t start) {
  if (file.at(start, 4) == "fLaC") refuse_second_flac(file, start);
  if (begins_like_mpeg(file, start)) refuse_second_mp3(file, start);
}

}  // namespace longstride
