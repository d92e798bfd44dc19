#include "launch/run/write_samples.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "datasets/formats/mu_law.h"
#include "datasets/formats/png.h"
#include "datasets/formats/wav.h"
#include "framework/core/files/files.h"

namespace longstride {
namespace {

using Bytes = std::vector<std::uint8_t>;

const char* ending_of(DataKind kind) { return is_text(kind) ? "txt" : kind == DataKind::audio ? "wav" : "png"; }

}  // namespace

void write_grid(const std::string& path, const std::vector<Bytes>& samples, std::int64_t across, const Geometry& g) {
  const auto count = static_cast<std::int64_t>(samples.size());
  const std::int64_t down = (count + across - 1) / across, line = g.columns * g.channels;
  Bytes pixels(static_cast<std::size_t>(down * g.rows * across * line), 0);
  for (std::int64_t s = 0; s < count; ++s)
    for (std::int64_t r = 0; r < g.rows; ++r)
      std::copy_n(samples[static_cast<std::size_t>(s)].begin() + r * line, line,
                  pixels.begin() + ((s / across * g.rows + r) * across + s % across) * line);
  write_png(path, down * g.rows, across * g.columns, g.channels, pixels.data());
}

std::vector<std::filesystem::path> write_samples(const std::filesystem::path& folder, const SampleForm& form,
                                                 const std::vector<Bytes>& samples) {
  const Geometry& g = form.geometry;
  std::vector<std::filesystem::path> files;
  for (std::size_t s = 0; s < samples.size(); ++s) {
    const std::string file =
        files.emplace_back(folder / fmt::format("sample-{:03}.{}", s, ending_of(form.kind))).string();
    switch (form.kind) {
      case DataKind::bytes:
      case DataKind::tokens:
        write_file_atomically(file, {reinterpret_cast<const char*>(samples[s].data()), samples[s].size()});
        break;
      case DataKind::audio:
        write_wav(file, mu_law_decode(samples[s]), form.rate);
        break;
      case DataKind::cifar10:
      case DataKind::images:
        write_png(file, g.rows, g.columns, g.channels, samples[s].data());
        break;
    }
  }
  const auto across = static_cast<std::int64_t>(std::ceil(std::sqrt(static_cast<double>(samples.size()))));
  if (g.rows > 0 && samples.size() > 1) write_grid((folder / "grid.png").string(), samples, across, g);
  return files;
}

std::vector<Media> media_of(const std::vector<std::filesystem::path>& files, const SampleForm& form,
                            const std::vector<Bytes>& samples) {
  std::vector<Media> all;
  for (std::size_t s = 0; s < files.size(); ++s) {
    Media media;
    media.tag = fmt::format("samples/{:03}", s);
    media.content = read_file(files[s].string());
    if (form.kind == DataKind::audio) {
      media.form = Media::Form::wav;
      media.rate = form.rate;
      media.frames = static_cast<std::int64_t>(samples[s].size());
    } else if (!is_text(form.kind)) {
      media.form = Media::Form::png;
      media.rows = form.geometry.rows;
      media.columns = form.geometry.columns;
      media.channels = form.geometry.channels;
    }
    all.push_back(std::move(media));
  }
  return all;
}

}  // namespace longstride
