#include "datasets/formats/sound/second_recording.h"

#include <algorithm>

#include "datasets/formats/sound/mpeg_frames.h"
#include "framework/core/errors.h"
#include "framework/core/text/numbers.h"

namespace longstride {
namespace {

using namespace std::string_view_literals;

// The marker, then the header of the block that has to come first, of 34 bytes.
void refuse_second_flac(BlobWindow& file, std::uint64_t start) {
  for (const std::string_view marker : {"fLaC\0\0\0\x22"sv, "fLaC\x80\0\0\x22"sv}) {
    const std::uint64_t second = file.find(marker, start + marker.size());
    if (second != file.size()) throw several_recordings(file.blob(), second);
  }
}

// The first frame of a file states its length where others have sound: a word behind zeros, 9, 17 or 32 of them.
void refuse_second_mp3(BlobWindow& file, std::uint64_t start) {
  constexpr std::uint64_t frame_header = 4;
  const std::uint64_t first = mpeg_header_at(file, start);
  for (const std::string_view word : {"Xing"sv, "Info"sv})
    for (std::uint64_t at = start; (at = file.find(word, at)) != file.size(); ++at)
      for (const std::size_t zeros : {9, 17, 32}) {
        const std::uint64_t before = frame_header + zeros;
        if (at < start + 1 + before || !same_mpeg_kind(mpeg_header_at(file, at - before), first)) continue;
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

void refuse_second_recording(BlobWindow& file, std::uint64_t start) {
  if (file.at(start, 4) == "fLaC") refuse_second_flac(file, start);
  if (begins_like_mpeg(file, start)) refuse_second_mp3(file, start);
}

}  // namespace longstride
