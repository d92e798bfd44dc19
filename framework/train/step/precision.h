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

// The type of activations inside a branch and of the weights that matrix products read. UserError for a type that the
// CPU does not support.
Dtype compute_type(Precision precision, Device device);

// Whether the residual stream is of that type too (Context::low_precision_residual): with bf16 unless the recipe
// says fp32. Never on the CPU, which only uses fp32, and never with fp16, whose range is too small for a sum over all
// branches.
bool low_precision_residual(const TrainConfig& config, Device device);

// The type in which gradients travel between ranks. UserError for a type that the device does not support.
Dtype gradient_type(const TrainConfig& config, Device device);

// Dense operations per second, from the vendor's data sheet; absent for a GPU that is not in the table.
std::optional<double> peak_flops(const std::string& gpu, Precision precision);

}  // namespace longstride
