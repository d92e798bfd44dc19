// How fast this machine's processor computes, for estimates of time.
#pragma once

namespace longstride {

// Operations per second of fp32 matrix products with all threads of this process, measured in some 60 ms.
double measure_cpu_rate();

// Part of that rate which a training step reaches, attention and norms included: a half and more with the quickstart's
// recipes on two cores.
constexpr double usual_cpu_utilisation = 0.5;

}  // namespace longstride
