// The meaning of a recipe's `train.precision` on a device, and the device's peak rate.
#pragma once
#include <optional>
#include <string>

#include "framework/core/context.h"
#include "framework/train/train_config.h"

namespace longstride {

// automatic: bf16 on a GPU, fp32 on the CPU.
Precision resolved(Precision precision, Device device);
const char* name_of(Precision precision);
// The same names for a type that is computed in: fp32, not f32.
std::string precision_text(Dtype type);

// The type of activations inside a branch and of the weights that matrix products read: bf16 with fp8, which is a
// matter of products alone. UserError for a type that the CPU does not support.
Dtype compute_type(Precision precision, Device device);

// True if a step's linear layers multiply in fp8 (Context::fp8_products). Evaluation and generation never do: their
// figures are comparable with those of bf16, and need no GPU that has fp8.
bool fp8_products(Precision precision, Device device);
// The precision of evaluation and generation: bf16 with fp8, otherwise the run's.
Precision without_fp8(Precision precision);

// UserError if the device cannot compute in this precision. Unlike the others it asks the GPU, so it is for runs alone,
// not for plans.
void check_precision(Precision precision, Device device);
// The same for a GPU of this name and compute capability.
void check_fp8(const std::string& gpu, int major, int minor);

// True if the residual stream is of that type too (Context::low_precision_residual): with bf16 and fp8 unless the
// recipe says fp32. Never on the CPU, which only uses fp32, and never with fp16, whose range is too small for a sum
// over all branches.
bool low_precision_residual(const TrainConfig& config, Device device);

// The type in which gradients travel between ranks. UserError for a type that the device does not support.
Dtype gradient_type(const TrainConfig& config, Device device);

// Dense operations per second, from the vendor's data sheet; absent for a GPU that is not in the table.
std::optional<double> peak_flops(const std::string& gpu, Precision precision);

}  // namespace longstride
