// Sound that libsndfile does not read.
#pragma once
#include <string>

#include "datasets/formats/byte_input.h"

namespace longstride {

// "AAC", "MPEG-4 (such as M4A)" .., by the first bytes; empty for anything else.
std::string other_sound_format(const Blob& blob);

// True if the name ends like that of such a file: ".m4a", ".wma" ..
bool named_like_other_sound(const std::string& path);

// "ffmpeg -i 'a.m4a' 'a.flac'", as it can be copied to a shell.
std::string conversion_to_flac(const std::string& path);

}  // namespace longstride
