// Any bytes read as a sound file: an error, or exactly as many samples as it claims.
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "datasets/formats/audio.h"
#include "datasets/formats/mu_law.h"
#include "framework/core/errors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace longstride;
  static const int file = memfd_create("fuzz", 0);
  static const std::string path = "/proc/self/fd/" + std::to_string(file);
  if (ftruncate(file, 0) != 0 || pwrite(file, data, size, 0) != static_cast<ssize_t>(size)) std::abort();
  try {
    const auto sound = open_audio(path);
    if (sound->frames() <= 0 || sound->rate() <= 0 || sound->channels() <= 0) std::abort();
    constexpr std::int64_t at_once = 1 << 12, enough = 1 << 18;
    std::vector<float> samples(at_once);
    std::int64_t total = 0;
    for (std::int64_t got; total < enough && (got = sound->read(samples.data(), at_once)) > 0; total += got)
      for (std::int64_t s = 0; s < got; ++s) static_cast<void>(mu_law_encode(samples[static_cast<std::size_t>(s)]));
    if (total > sound->frames() || (total < enough && total != sound->frames())) std::abort();
  } catch (const UserError&) {
  }
  return 0;
}
