// --device cpu|gpu: where a command computes.
#pragma once
#include <CLI/CLI.hpp>

#include <string>

#include "framework/comm/communicator.h"
#include "framework/core/device/device.h"
#include "framework/models/model.h"

namespace longstride {

struct DeviceOption {
  std::string name = "automatic";
};

void add_device_option(CLI::App& command, DeviceOption& option);

// Automatic: GPUs if there are any, else the CPU. Every rank calls it and gets its own GPU. UserError if there is no
// GPU, if several ranks would share one, or for several ranks in a build without NCCL.
Device chosen_device(const DeviceOption& option, Communicator& comm);
// For planning, which needs neither a GPU nor a build with CUDA. Automatic: as above.
Device planned_device(const DeviceOption& option);

// Before matrix products on the CPU: UserError if a limit on address space leaves no room for them.
void check_room_for_products();

// UserError for a model that the device's kernels do not support.
void check_device_computes(const Model& model, Device device);

// One sentence if attention of this shape is slow on a Hopper GPU, with the nearest shapes that are fast; else empty.
std::string slow_attention(const Model& model);
// One sentence about what a model does not gain from train.precision: fp8: sizes that its products do not support, or
// that are too narrow; else empty.
std::string narrow_fp8(Model& model);

}  // namespace longstride
