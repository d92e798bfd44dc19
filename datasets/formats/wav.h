// Writes sound as a WAV file: mono, 16-bit PCM. Needs no library.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace longstride {

// samples in [-1, 1], clipped; rate in samples per second. Atomic. UserError if the file cannot be written or would
// exceed the format's limit of 4 GiB.
void write_wav(const std::string& path, const std::vector<float>& samples, std::int64_t rate);

}  // namespace longstride
