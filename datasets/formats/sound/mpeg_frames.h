// The frames of MPEG audio, layers I to III (MP3). Each states its own size, so that a missing one can be noticed:
// decoders skip what they do not understand, or end there.
#pragma once
#include "datasets/formats/sound/blob_window.h"

namespace longstride {

// The four bytes at `at`; 0 at the end of the file.
std::uint64_t mpeg_header_at(BlobWindow& file, std::uint64_t at);
// True if two headers agree in version, layer and sampling rate, as all of a file do.
bool same_mpeg_kind(std::uint64_t a, std::uint64_t b);

// True if the bytes at `start` could be a frame of MPEG audio, which begins with eleven ones.
bool begins_like_mpeg(BlobWindow& file, std::uint64_t start);
// True if a frame of the same kind follows, in layer I at once and in others within 64 KiB. None does in text whose
// byte order mark looks like a frame.
bool has_mpeg_frames(BlobWindow& file, std::uint64_t start);

// The samples of each channel in the frames from `start` on; 0 if the frames do not state their sizes ("free format").
// UserError if the last one is cut short, or if anything but a tag lies between two of them.
std::int64_t samples_of_mpeg_frames(BlobWindow& file, std::uint64_t start);

}  // namespace longstride
