// The parts that benchmarks share: a device with just the memory that the work needs, timing, the device's best rates,
// and the report.
#pragma once
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "framework/core/device/memory.h"
#include "framework/train/step/memory_plan.h"
#include "framework/train/step/precision.h"
#include "launch/commands/commands.h"
#include "launch/console/device_option.h"
#include "launch/recipe/recipe.h"

namespace longstride {

struct AttentionBenchOptions {
  std::string recipe;
  std::vector<std::string> overrides;
  std::int64_t batch = 0;  // sequences; 0: the recipe's micro-batch
  int repeats = 20;
  bool json = false;
  DeviceOption device;
};

// Measured in the same run: a copy of far more than the caches hold, counting bytes read and written, and a large
// matrix product in the compute type. A time below the bound that they give means that the data stayed in a cache.
struct Ceilings {
  double bytes_per_second = 0, flops_per_second = 0;
};

class BenchDevice {
 public:
  // Runs `work` in a planning arena first, then allocates what it needs.
  BenchDevice(Device device, Dtype compute, const std::function<void(Context&)>& work);
  Context& context() { return ctx_; }
  const std::string& name() const { return name_; }
  // Median of `repeats` runs after three to warm up, in milliseconds on the device.
  double median_ms(int repeats, const std::function<void()>& work);
  Ceilings ceilings();
  // From f32 on the host, converted to the type of `to`. plan_upload reserves the memory for this while planning.
  static void plan_upload(Context& ctx, const Tensor& to);
  void upload(const Tensor& from, const Tensor& to);
  // Normal numbers in the type of `t`, uploaded.
  void fill_normal(const Tensor& t, std::uint64_t seed);

 private:
  double once_ms(const std::function<void()>& work);
  std::string name_;
  Block block_;  // workspace of libraries, and the arena
  Stream stream_;
  Event begin_, end_;
  Arena arena_;
  Context ctx_;
};

// Lines of name, time, rates and the fraction of the bound, as a table or as JSON.
class BenchReport {
 public:
  BenchReport(const AttentionBenchOptions& options, const Recipe& recipe, const BenchDevice& device,
              const Ceilings& ceilings);
  void line(const std::string& name, double ms, double bytes, double flops);
  void finish();  // prints JSON

 private:
  bool json_;
  Ceilings ceilings_;
  nlohmann::ordered_json out_;
};

// Subcommands of `longstride bench`.
void add_bench_attention(CLI::App& bench, Session& session);
void add_bench_sample(CLI::App& bench, Session& session);

}  // namespace longstride
