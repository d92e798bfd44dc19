#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "framework/ops/basic.h"
#include "framework/ops/linear.h"
#include "kernels/base/philox.h"
#include "launch/bench/bench_device.h"
#include "launch/console/json_output.h"

namespace longstride {
namespace {

// Sizes of the copy and the product in ceilings(): well beyond any cache on a GPU, and quick on a CPU.
std::int64_t copy_elements(Device device) { return device == Device::cuda ? std::int64_t{1} << 28 : 1 << 25; }
std::int64_t product_size(Device device) { return device == Device::cuda ? 8192 : 1024; }

struct Probe {
  Tensor from, to;  // operands of the copy
  Tensor a, b, c;   // operands of the product
};

Probe probe_of(Scratch& scratch, Device device, Dtype compute) {
  const std::int64_t n = product_size(device);
  const std::int64_t elements = copy_elements(device);
  return {scratch.tensor({elements}, Dtype::f32), scratch.tensor({elements}, Dtype::f32),
          scratch.tensor({n, n}, compute), scratch.tensor({n, n}, compute), scratch.tensor({n, n}, compute)};
}

}  // namespace

BenchDevice::BenchDevice(Device device, Dtype compute, const std::function<void(Context&)>& work) : stream_(device) {
  const auto counted = [&](auto&& f) {
    Arena counting;
    Context ctx;
    ctx.arena = &counting;
    ctx.device = device;
    ctx.compute = compute;
    f(ctx);
    return counting.high_water();
  };
  const std::size_t bytes = std::max(counted(work), counted([&](Context& ctx) {
                                       Scratch scratch(ctx);
                                       const Probe probe = probe_of(scratch, device, compute);
                                       ops::linear(ctx, probe.a, probe.b, {}, probe.c);
                                       plan_upload(ctx, probe.a);
                                     }));
  const std::size_t libraries = library_workspace_bytes(device);
  const auto gpu = gpu_info(device);
  name_ = gpu ? gpu->name : "CPU";
  block_ = Block(device, bytes + libraries);
  arena_ = Arena(block_.data() + libraries, bytes);
  ctx_.device = device;
  ctx_.compute = compute;
  ctx_.launch = {stream_.stream(), block_.data(), libraries};
  ctx_.arena = &arena_;
}

double BenchDevice::once_ms(const std::function<void()>& work) {
  begin_.record(stream_);
  work();
  end_.record(stream_);
  end_.wait();
  return end_.milliseconds_since(begin_);
}

double BenchDevice::median_ms(int repeats, const std::function<void()>& work) {
  for (int i = 0; i < 3; ++i) once_ms(work);
  std::vector<double> ms;
  for (int i = 0; i < repeats; ++i) ms.push_back(once_ms(work));
  std::nth_element(ms.begin(), ms.begin() + repeats / 2, ms.end());
  return ms[static_cast<std::size_t>(repeats / 2)];
}

void BenchDevice::plan_upload(Context& ctx, const Tensor& to) {
  Scratch scratch(ctx);
  scratch.tensor({to.count()}, Dtype::f32);
}

void BenchDevice::upload(const Tensor& from, const Tensor& to) {
  const Tensor flat = from.reshape({from.count()});
  Scratch scratch(ctx_);
  const Tensor exact = scratch.tensor({to.count()}, Dtype::f32);
  stream_.copy_to_device(exact.data(), flat.data(), flat.bytes());
  ops::copy(ctx_, exact, to.reshape({to.count()}));  // rounds
  stream_.synchronize();
}

void BenchDevice::fill_normal(const Tensor& t, std::uint64_t seed) {
  const Block memory(Device::cpu, static_cast<std::size_t>(t.count()) * sizeof(float));
  const Tensor host(memory.data(), Dtype::f32, {t.count()});
  auto* x = host.as<float>();
#pragma omp parallel for
  for (std::int64_t i = 0; i < t.count(); ++i)
    x[i] = static_cast<float>(kernels::normal_of(kernels::philox(seed, static_cast<std::uint64_t>(i), 0, 0)));
  upload(host, t);
}

Ceilings BenchDevice::ceilings() {
  Scratch scratch(ctx_);
  const Probe probe = probe_of(scratch, ctx_.device, ctx_.compute);
  ops::fill_zero(ctx_, probe.from);
  // Not zeros, on which matrix units run faster, but a ramp that a product cannot overflow.
  const std::int64_t n = probe.a.size(0);
  const Block memory(Device::cpu, static_cast<std::size_t>(n * n) * sizeof(float));
  const Tensor host(memory.data(), Dtype::f32, {n * n});
  for (std::int64_t i = 0; i < n * n; ++i)
    host.as<float>()[i] = static_cast<float>((i * 2654435761) % 2001 - 1000) / 1000.0f;
  upload(host, probe.a);
  upload(host, probe.b);
  const double copy = median_ms(10, [&] { ops::copy(ctx_, probe.from, probe.to); });
  const double product = median_ms(10, [&] { ops::linear(ctx_, probe.a, probe.b, {}, probe.c); });
  const auto size = static_cast<double>(n);
  return {2e3 * static_cast<double>(probe.from.bytes()) / copy, 2e3 * size * size * size / product};
}

BenchReport::BenchReport(const AttentionBenchOptions& options, const Recipe& recipe, const BenchDevice& device,
                         const Ceilings& ceilings)
    : json_(options.json), ceilings_(ceilings) {
  out_ = {{"recipe", recipe.name},
          {"device", device.name()},
          {"copy_bytes_per_second", ceilings.bytes_per_second},
          {"product_flops_per_second", ceilings.flops_per_second},
          {"lines", nlohmann::ordered_json::array()}};
  if (json_) return;
  fmt::print("{} on {}: copy {:.2f} TB/s, matrix product {:.1f} TFLOP/s\n", recipe.name, device.name(),
             ceilings.bytes_per_second / 1e12, ceilings.flops_per_second / 1e12);
  fmt::print("{:<52}{:>10}{:>10}{:>10}{:>10}{:>8}\n", "", "ms", "TFLOP/s", "TB/s", "bound ms", "bound");
}

void BenchReport::line(const std::string& name, double ms, double bytes, double flops) {
  const double floor = 1e3 * std::max(bytes / ceilings_.bytes_per_second, flops / ceilings_.flops_per_second);
  out_["lines"].push_back({{"name", name},
                           {"ms", ms},
                           {"bytes", bytes},
                           {"flops", flops},
                           {"floor_ms", floor},
                           {"floor_fraction", floor / ms}});
  if (!json_)
    fmt::print("{:<52}{:>10.4f}{:>10.1f}{:>10.2f}{:>10.4f}{:>7.0f}%\n", name, ms, flops / ms / 1e9, bytes / ms / 1e9,
               floor, 100 * floor / ms);
}

void BenchReport::finish() {
  if (json_) print_json(out_);
}

}  // namespace longstride
