// Sound files made by libsndfile for tests.
#pragma once
#include <gtest/gtest.h>
#include <sndfile.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "datasets/formats/audio.h"
#include "tests/datasets/support.h"

namespace longstride {

constexpr int sound_rate = 48000;
constexpr std::size_t sound_length = 30000;
constexpr int mpeg = 0x230000, layer_3 = 0x82;  // from libsndfile 1.1 on

inline std::vector<float> sound_tone(std::size_t length = sound_length) {
  std::vector<float> out(length);
  for (std::size_t i = 0; i < length; ++i)
    out[i] = static_cast<float>(0.4 * std::sin(0.05 * static_cast<double>(i)) +
                                0.2 * std::sin(1e-5 * static_cast<double>(i * i)));
  return out;
}

// The tone. Empty if this libsndfile cannot write the format.
inline Bytes encoded_sound(int format, std::size_t length = sound_length) {
  const Folder folder;
  SF_INFO info = {};
  info.format = format;
  info.samplerate = sound_rate;
  info.channels = 1;
  if (sf_format_check(&info) == 0) return {};
  SNDFILE* file = sf_open((folder / "a").c_str(), SFM_WRITE, &info);
  if (file == nullptr) return {};
  const std::vector<float> samples = sound_tone(length);
  sf_writef_float(file, samples.data(), static_cast<sf_count_t>(length));
  sf_close(file);
  return get_file(folder / "a");
}

inline std::vector<float> read_sound(const std::string& path) {
  const auto file = open_audio(path);
  std::vector<float> out, piece(777);
  for (std::int64_t got; (got = file->read(piece.data(), 777)) > 0;)
    out.insert(out.end(), piece.begin(), piece.begin() + got);
  EXPECT_EQ(static_cast<std::int64_t>(out.size()), file->frames());
  return out;
}

}  // namespace longstride
