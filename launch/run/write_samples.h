// Samples as files, in the form of what they are: text (of tokens too), PNG or WAV.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "datasets/data_config.h"
#include "framework/models/model.h"
#include "framework/models/model_config.h"
#include "framework/train/metrics/event_file.h"

namespace longstride {

struct SampleForm {
  DataKind kind = DataKind::bytes;
  Geometry geometry;      // size of pictures
  std::int64_t rate = 0;  // rate of sound, in samples per second
};

// All pictures side by side in rows of `across`.
void write_grid(const std::string& path, const std::vector<std::vector<std::uint8_t>>& samples, std::int64_t across,
                const Geometry& geometry);

// sample-000.txt, .png or .wav and so on; several pictures also as grid.png. Returns the files of the samples.
std::vector<std::filesystem::path> write_samples(const std::filesystem::path& folder, const SampleForm& form,
                                                 const std::vector<std::vector<std::uint8_t>>& samples);

// The same for TensorBoard.
std::vector<Media> media_of(const std::vector<std::filesystem::path>& files, const SampleForm& form,
                            const std::vector<std::vector<std::uint8_t>>& samples);

}  // namespace longstride
