// Mu-law companding to 256 levels, mu = 255 (the continuous form of ITU-T G.711's curve, as in WaveNet):
//   f(x) = sign(x) ln(1 + mu |x|) / ln(1 + mu),  level = floor((f(x) + 1) / 2 * mu + 1/2)
#pragma once
#include <cstdint>
#include <vector>

namespace longstride {

std::uint8_t mu_law_encode(float sample);  // clipped to [-1, 1]
float mu_law_decode(std::uint8_t level);   // in [-1, 1]
std::vector<float> mu_law_decode(const std::vector<std::uint8_t>& levels);

}  // namespace longstride
