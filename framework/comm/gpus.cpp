#include <spdlog/spdlog.h>

#include <cstring>
#include <vector>

#include "framework/comm/collectives.h"
#include "framework/core/errors.h"

namespace longstride {

void choose_gpu(Communicator& comm) {
  const int gpus = device_count();
  // A launcher may show each rank only its own GPU, or all GPUs to every rank.
  const int mine = gpus > 0 ? comm.local_rank() % gpus : 0;
  if (gpus > 0) use_device(mine);
  struct Seat {
    char gpu[64];
    char host[64];
    int number;
  };
  std::vector<Seat> seats(static_cast<std::size_t>(comm.size()));
  Seat& own = seats[static_cast<std::size_t>(comm.rank())];
  if (gpus > 0) std::strncpy(own.gpu, device_identity().c_str(), sizeof(own.gpu) - 1);
  std::strncpy(own.host, comm.host().c_str(), sizeof(own.host) - 1);
  own.number = mine;
  comm.all_gather(seats.data(), sizeof(Seat));
  for (int b = 0; b < comm.size(); ++b) {
    const Seat& second = seats[static_cast<std::size_t>(b)];
    if (second.gpu[0] == '\0')
      throw user_error(
          "rank {} finds no GPU on {} (nvidia-smi shows what the driver sees); use hosts with GPUs, or "
          "--device cpu",
          b, second.host);
    for (int a = 0; a < b; ++a) {
      const Seat& first = seats[static_cast<std::size_t>(a)];
      if (std::strcmp(first.gpu, second.gpu) != 0) continue;
      if (std::strcmp(first.host, second.host) == 0)
        throw user_error(
            "ranks {} and {} would share GPU {} of {}; start at most one rank per GPU (mpirun -n N, or "
            "--map-by ppr:N:node on several hosts)",
            a, b, second.number, second.host);
      if (comm.rank() == 0)
        spdlog::warn(
            "ranks {} ({}) and {} ({}) share a GPU, so these hosts are parts of one machine: results are right, but "
            "the "
            "speed says nothing about hosts of their own",
            a, first.host, b, second.host);
    }
  }
}

int count_nodes(Communicator& comm) {
  double nodes = comm.local_rank() == 0 ? 1 : 0;
  comm.all_reduce_sum(&nodes, 1);
  return static_cast<int>(nodes);
}

std::string interconnect(Communicator& comm, Device device) {
  const int nodes = count_nodes(comm);
  std::string within = "memory";
  if (device == Device::cuda) within = device_links(comm.local_size());
  if (comm.size() == 1) return "none";
  if (nodes == 1) return within;
  return fmt::format("{}, and the network between {} nodes", within, nodes);
}

bool all_on_nvlink(Communicator& comm, Device device) {
  return count_nodes(comm) == 1 && device == Device::cuda && device_links(comm.local_size()) == "NVLink";
}

}  // namespace longstride
