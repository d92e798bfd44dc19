// FLAC and MP3 files that were joined end to end. Decoders stop where the first one says that it ends.
#pragma once
#include "datasets/formats/sound/blob_window.h"
#include "framework/core/errors.h"

namespace longstride {

// The refusal of a file whose second recording begins at `at`.
UserError several_recordings(const Blob& blob, std::uint64_t at);

// UserError if a FLAC or MP3 file that begins at `start` is followed by another one that states its length.
void refuse_second_recording(BlobWindow& file, std::uint64_t start);

}  // namespace longstride
