// How fast this machine's processor computes, for estimates of time.
#pragma once

namespace longstride {

// Operations per second of fp32 matrix products with all threads of this process, measured in some 60 ms.
double measure_cpu_rate();

// The fraction of that rate that a training step reaches, including attention and norms: half or more with the
// quickstart recipes on two cores.
constexpr double usual_cpu_utilisation = 0.5;

}  // namespace longstride
