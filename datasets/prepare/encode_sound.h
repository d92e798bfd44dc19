// Sound as the bytes of a dataset: one channel, one sampling rate, mu-law.
#pragma once
#include <cstdint>
#include <functional>

#include "datasets/formats/audio.h"

namespace longstride {

inline constexpr const char* mu_law_encoding = "mu-law 255";

// Receives the next levels; returns whether more are wanted.
using LevelSink = std::function<bool(const std::uint8_t* levels, std::int64_t count)>;

// Reads the file to its end, or as far as levels are wanted, and returns the largest magnitude of its samples. `done`
// is told how many samples have been read, and may be empty.
float encode_sound(AudioFile& file, std::int64_t rate, const LevelSink& sink,
                   const std::function<void(std::int64_t samples)>& done = {});

}  // namespace longstride
