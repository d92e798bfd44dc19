// libsndfile reads a truncated file as if it were whole. But most formats state their length.
#pragma once
#include "datasets/formats/sound/blob_window.h"

namespace longstride {

struct SoundLength {
  // False if the header has a placeholder, as of programs that write to a pipe: all that follows is sound.
  bool stated = true;
  // Where a RIFF file has 0 for the size of its samples, which libsndfile would believe; 0: nowhere.
  std::uint64_t zero_at = 0;
};

// Where the sound begins: libsndfile skips ID3 tags in front of any format. Their size has 7 bits per byte.
std::uint64_t after_tags(BlobWindow& file);

// UserError if a sound file is shorter than it says, or if an Ogg, FLAC or MP3 file has a damaged page or several
// recordings. WAV (RIFF, RIFX, RF64), W64, AIFF, AU, CAF, NIST, VOC and Ogg state their length; other files pass.
SoundLength check_complete(const Blob& blob);

}  // namespace longstride
