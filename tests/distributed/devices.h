// Where the ranks of a test compute: on the CPU, or on one GPU per rank if LONGSTRIDE_TEST_DEVICE is gpu.
#pragma once
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <memory>

#include "framework/comm/collectives.h"
#include "framework/core/device/memory.h"
#include "tests/distributed/world.h"

namespace longstride::testing {

inline bool on_gpus() {
  const char* device = std::getenv("LONGSTRIDE_TEST_DEVICE");
  return device != nullptr && std::strcmp(device, "gpu") == 0;
}
inline Device device() { return on_gpus() ? Device::cuda : Device::cpu; }

class OnRanks : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!on_gpus()) return;
    const bool enough = device_count() >= world().local_size() && built_with_nccl();
    if (world().any(!enough)) GTEST_SKIP() << "fewer GPUs than ranks, or no NCCL";
    choose_gpu(world());
  }
  std::unique_ptr<Communicator> alone_ = make_single_communicator();
};

}  // namespace longstride::testing
