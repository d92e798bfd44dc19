// --device cpu|gpu: where a command computes.
#pragma once
#include <CLI/CLI.hpp>

#include <string>

#include "framework/core/device.h"
#include "framework/models/sparse_transformer_config.h"

namespace longstride {

struct DeviceOption {
  std::string name = "automatic";
};

void add_device_option(CLI::App& command, DeviceOption& option);

// Automatic: a GPU where there is one, else the CPU. UserError for a GPU that is not there, or for several ranks on
// one.
Device chosen_device(const DeviceOption& option, int ranks);
// For planning: no GPU is needed, but a build that could use one. Automatic: as above.
Device planned_device(const DeviceOption& option);

// UserError for a model that the device's kernels do not compute.
void check_device_computes(const SparseTransformerConfig& model, Device device);

}  // namespace longstride
