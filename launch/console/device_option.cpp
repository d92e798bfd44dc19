#include "launch/console/device_option.h"

#include <omp.h>
#include <sys/resource.h>

#include <algorithm>
#include <utility>

#include "framework/comm/collectives.h"
#include "framework/core/errors.h"
#include "framework/core/text/numbers.h"
#include "framework/models/mixes_positions.h"
#include "kernels/gemm/blas.h"
#include "launch/console/host_share.h"

namespace longstride {

void check_room_for_products() {
  const int threads = omp_get_max_threads();
  // Nothing else limits buffers that are hardly touched.
  for (const auto& [which, name] :
       {std::pair{RLIMIT_AS, "address space (ulimit -v)"}, {RLIMIT_DATA, "data (ulimit -d)"}})
    if (rlimit limit = {};
        ::getrlimit(which, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && !kernels::cpu::room_for_products(threads))
      throw user_error(
          "the limit on {} is {} KiB, which leaves no room for matrix products on {}, 128 MiB for each; raise it, or "
          "set "
          "OMP_NUM_THREADS to fewer threads",
          name, limit.rlim_cur >> 10, counted(threads, "thread"));
}

void add_device_option(CLI::App& command, DeviceOption& option) {
  command.add_option("--device", option.name, "cpu or gpu; default: a GPU if there is one")
      ->check(CLI::IsMember({"cpu", "gpu"}));
}

Device planned_device(const DeviceOption& option) {
  const bool cpu = option.name == "cpu" || (option.name == "automatic" && device_count() == 0);
  return cpu ? Device::cpu : Device::cuda;
}

Device chosen_device(const DeviceOption& option, Communicator& comm) {
  keep_to(host_share(comm.local_size()));  // looked at before any rank takes memory
  if (!comm.any(planned_device(option) == Device::cuda)) {
    check_room_for_products();
    return Device::cpu;
  }
  if (!built_with_cuda())
    throw user_error(
        "--device gpu: this build has no CUDA; configure it again where nvcc is found, or use --device cpu");
  if (comm.size() == 1 && device_count() == 0)
    throw user_error("--device gpu: no GPU is found here (nvidia-smi shows what the driver sees); use --device cpu");
  if (comm.size() > 1 && !built_with_nccl())
    throw user_error(
        "training on several GPUs needs NCCL, which this build lacks: reconfigure where NCCL is installed, run one "
        "rank, or use --device cpu");
  choose_gpu(comm);
  return Device::cuda;
}

void check_device_computes(const Model& model, Device device) {
  const auto* mixes = capability<MixesPositions>(model);
  if (device == Device::cpu || mixes == nullptr) return;
  for (std::int64_t layer = 0; layer < mixes->layers(); ++layer)
    if (const std::string problem = mixes->mixer(layer).problem_on_gpu(); !problem.empty())
      throw user_error("{}", problem);
}

}  // namespace longstride
