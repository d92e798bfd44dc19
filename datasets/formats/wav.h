// Writes sound as a WAV file: mono, 16-bit PCM. Needs no library.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace longstride {

// samples in [-1, 1], clipped; rate in samples per second. Atomic. UserError when the file cannot be written or would
// be longer than the 4 GiB that the format can say.
void write_wav(const std::string& path, const std::vector<float>& samples, std::int64_t rate);

}  // namespace longstride
