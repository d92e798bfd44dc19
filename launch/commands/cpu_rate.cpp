#include "launch/commands/cpu_rate.h"

#include <algorithm>
#include <chrono>
#include <limits>

#include "framework/core/arena.h"
#include "framework/core/device/memory.h"
#include "framework/ops/linear.h"
#include "launch/console/device_option.h"

namespace longstride {

double measure_cpu_rate() {
  using Clock = std::chrono::steady_clock;
  constexpr std::int64_t n = 512;
  constexpr double enough_seconds = 0.06;
  constexpr int least_runs = 3;
  check_room_for_products();
  const Block memory(Device::cpu, 4 * n * n * sizeof(float));
  Arena arena(memory.data(), memory.bytes());
  Context ctx;
  ctx.arena = &arena;
  Scratch scratch(ctx);
  const Tensor x = scratch.tensor({n, n}, Dtype::f32), weight = scratch.tensor({n, n}, Dtype::f32);
  const Tensor y = scratch.tensor({n, n}, Dtype::f32);
  for (const Tensor& t : {x, weight}) std::fill_n(t.as<float>(), n * n, 0.5F);
  double fastest = std::numeric_limits<double>::infinity(), all = 0;  // other programs only make it slower
  for (int runs = 0; runs < least_runs || all < enough_seconds; ++runs) {
    const Clock::time_point begin = Clock::now();
    ops::linear(ctx, x, weight, {}, y);
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    fastest = std::min(fastest, seconds);
    all += seconds;
  }
  return 2.0 * n * n * n / fastest;
}

}  // namespace longstride
