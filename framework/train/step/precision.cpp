#include "framework/train/step/precision.h"

#include "framework/core/device/device.h"
#include "framework/core/errors.h"

namespace longstride {
namespace {

struct Peak {
  const char* name;     // part of the name that the driver reports
  double half, single;  // TFLOP/s in bf16 and fp16 with tensor cores, in fp32 without
};

// The first match counts, so longer names come before shorter ones. A name ends where no digit follows: an A4000 is no
// A40.
constexpr Peak peaks[] = {
    {"H100 PCIe", 756, 51}, {"H100 NVL", 835, 60},   {"H200 NVL", 835, 60},  {"H100", 989, 67},   {"H200", 989, 67},
    {"GH200", 989, 67},     {"H800", 989, 67},       {"B200", 2250, 75},     {"A100", 312, 19.5}, {"A800", 312, 19.5},
    {"A40", 149.7, 37.4},   {"A30", 165, 10.3},      {"L40S", 362, 91.6},    {"L40", 181, 90.5},  {"L4", 121, 30.3},
    {"A10", 125, 31.2},     {"RTX 4090", 165, 82.6}, {"RTX 3090", 71, 35.6},
};

bool is_named(const std::string& gpu, const std::string& name) {
  const std::size_t at = gpu.find(name), end = at + name.size();
  return at != std::string::npos && !(end < gpu.size() && gpu[end] >= '0' && gpu[end] <= '9');
}

}  // namespace

Precision resolved(Precision precision, Device device) {
  if (precision != Precision::automatic) return precision;
  return computes_in_16_bits(device) ? Precision::bf16 : Precision::fp32;
}

std::string precision_text(Dtype type) {
  const std::string name = kernels::name_of(type);
  return name.starts_with("f") ? "fp" + name.substr(1) : name;
}

const char* name_of(Precision precision) {
  switch (precision) {
    case Precision::automatic:
      return "automatic";
    case Precision::fp32:
      return "fp32";
    case Precision::bf16:
      return "bf16";
    case Precision::fp16:
      return "fp16";
    case Precision::fp8:
      return "fp8";
  }
  return "?";
}

Dtype compute_type(Precision precision, Device device) {
  const Precision exact = resolved(precision, device);
  if (exact == Precision::fp32) return Dtype::f32;
  if (!computes_in_16_bits(device))
    throw user_error(
        "train.precision is {}, which needs a GPU, and this runs on the CPU; use --set train.precision=automatic",
        name_of(exact));
  return exact == Precision::fp16 ? Dtype::f16 : Dtype::bf16;
}

bool fp8_products(Precision precision, Device device) { return resolved(precision, device) == Precision::fp8; }

Precision without_fp8(Precision precision) { return precision == Precision::fp8 ? Precision::bf16 : precision; }

void check_precision(Precision precision, Device device) {
  compute_type(precision, device);
  if (!fp8_products(precision, device)) return;
  const DeviceInfo gpu = device_info();
  check_fp8(gpu.name, gpu.major, gpu.minor);
}

void check_fp8(const std::string& gpu, int major, int minor) {
  if (major * 10 + minor >= 89) return;
  throw user_error(
      "train.precision is fp8, which needs a GPU of compute capability 8.9 (Ada, Hopper) or later, and {} has {}.{}; "
      "use --set train.precision=bf16",
      gpu, major, minor);
}

bool low_precision_residual(const TrainConfig& config, Device device) {
  const Precision exact = resolved(config.precision, device);
  return config.residual != Precision::fp32 && (exact == Precision::bf16 || exact == Precision::fp8);
}

Dtype gradient_type(const TrainConfig& config, Device device) {
  const Precision asked = config.parallel.gradients;
  const Dtype type = compute_type(asked == Precision::automatic ? config.precision : Precision::fp32, device);
  if (asked == Precision::automatic || asked == Precision::fp32) return type;
  if (!computes_in_16_bits(device))
    throw user_error(
        "parallel.gradients is {}, which needs GPUs, and this runs on the CPU; use --set "
        "parallel.gradients=fp32",
        name_of(asked));
  return asked == Precision::bf16 ? Dtype::bf16 : Dtype::f16;
}

std::optional<double> peak_flops(const std::string& gpu, Precision precision) {
  for (const Peak& peak : peaks)
    if (is_named(gpu, peak.name))
      return 1e12 * (precision == Precision::fp32  ? peak.single
                     : precision == Precision::fp8 ? 2 * peak.half  // on all GPUs that have fp8
                                                   : peak.half);
  return std::nullopt;
}

}  // namespace longstride
