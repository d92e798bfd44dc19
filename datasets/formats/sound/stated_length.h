// libsndfile reads a truncated file as if it were whole. But most formats state their length.
#pragma once
#include "datasets/formats/byte_input.h"

namespace longstride {

// UserError if a sound file is shorter than it says, or if an Ogg file has a damaged page or several recordings. WAV
// (RIFF, RIFX, RF64), W64, AIFF, AU, CAF, NIST, VOC and Ogg say; other files pass.
void check_complete(const Blob& blob);

}  // namespace longstride
