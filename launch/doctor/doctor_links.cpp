#include <algorithm>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "framework/comm/collectives.h"
#include "framework/core/device/memory.h"
#include "framework/core/errors.h"
#include "framework/core/text/numbers.h"
#include "launch/bench/bench_device.h"
#include "launch/doctor/doctor_checks.h"
#include "launch/doctor/stopwatch.h"

namespace longstride {
namespace {

constexpr int all_pairs_up_to = 16;

std::string gpu_driver() {
  std::string text;
  std::getline(std::ifstream("/proc/driver/nvidia/version"), text);
  const std::size_t at = text.find("  ");  // NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.1  date
  return at == std::string::npos ? "unknown" : text.substr(at + 2, text.find("  ", at + 2) - at - 2);
}

// Microseconds of a barrier between two ranks.
double latency(Communicator& pair) {
  constexpr int times = 200;
  for (int i = 0; i < 20; ++i) pair.barrier();
  const Stopwatch clock;
  for (int i = 0; i < times; ++i) pair.barrier();
  return clock.seconds() / times * 1e6;
}

// GB/s that each rank of a pair sends to the other while receiving as much.
double bandwidth(Communicator& pair) {
  constexpr std::size_t each = std::size_t{8} << 20;
  constexpr int times = 8;
  const Block from(Device::cpu, 2 * each), to(Device::cpu, 2 * each);
  std::fill_n(from.data(), 2 * each, std::byte{1});
  for (int i = 0; i < 2; ++i) pair.all_to_all(from.data(), to.data(), each);
  const Stopwatch clock;
  for (int i = 0; i < times; ++i) pair.all_to_all(from.data(), to.data(), each);
  return static_cast<double>(each) * times / clock.seconds() / 1e9;
}

// GB/s of an all-reduce of 256 MiB of gradients, as the bytes that cross each rank's link.
double all_reduce_rate(Communicator& ranks) {
  constexpr std::int64_t elements = std::int64_t{1} << 27;
  constexpr int times = 10;
  const auto group = make_collectives(ranks, Device::cuda);
  const Block memory(Device::cuda, elements * 2);
  const Stream stream(Device::cuda);
  stream.zero(memory.data(), memory.bytes());
  const Tensor values(memory.data(), Dtype::bf16, {elements});
  Event begin, end;
  for (int i = 0; i < 3; ++i) group->all_reduce_sum(values, stream.stream());
  begin.record(stream);
  for (int i = 0; i < times; ++i) group->all_reduce_sum(values, stream.stream());
  end.record(stream);
  end.wait();
  const double n = ranks.size();
  return 2 * (n - 1) / n * static_cast<double>(memory.bytes()) * times / end.milliseconds_since(begin) / 1e6;
}

struct Summary {
  PairFigure least, most;
  double median = 0;
};

Summary summary_of(std::vector<PairFigure> figures) {
  std::sort(figures.begin(), figures.end(), [](const PairFigure& a, const PairFigure& b) { return a.value < b.value; });
  return {figures.front(), figures.back(), figures[figures.size() / 2].value};
}

std::string text_of(const Summary& s, const char* unit, bool least_is_worst) {
  const PairFigure& worst = least_is_worst ? s.least : s.most;
  return fmt::format("{:.3g} {} (median), worst {:.3g} between ranks {} and {}", s.median, unit, worst.value, worst.a,
                     worst.b);
}

}  // namespace

std::vector<PairFigure> measure_pairs(Communicator& comm, const std::function<double(Communicator&)>& measure) {
  const int n = comm.size();
  std::vector<double> figures(static_cast<std::size_t>(n) * static_cast<std::size_t>(n), 0.0);
  int end = 1;
  while (end < n) end *= 2;
  for (int distance = 1; distance < end; ++distance) {
    if (n > all_pairs_up_to && (distance & (distance - 1)) != 0) continue;
    const int other = comm.rank() ^ distance, first = std::min(comm.rank(), other);
    const bool paired = other < n;
    const auto pair = comm.split(paired ? first : n + comm.rank());
    const double value = paired ? measure(*pair) : 0;
    if (paired && comm.rank() == first) figures[static_cast<std::size_t>(first * n + other)] = value;
    comm.barrier();
  }
  comm.all_reduce_sum(figures.data(), static_cast<std::int64_t>(figures.size()));
  std::vector<PairFigure> pairs;
  for (int a = 0; a < n; ++a)
    for (int b = a + 1; b < n; ++b)
      if (const double value = figures[static_cast<std::size_t>(a * n + b)]; value > 0) pairs.push_back({a, b, value});
  return pairs;
}

Findings check_messages(Communicator& comm) {
  if (comm.size() == 1) return {};
  const Summary meet = summary_of(measure_pairs(comm, latency));
  const Summary speed = summary_of(measure_pairs(comm, bandwidth));
  if (comm.rank() != 0) return {};
  Finding a{"MPI latency", "between pairs", text_of(meet, "us", false)};
  if (meet.median > 500) {
    a.verdict = Verdict::note;
    a.advice =
        "more processes than cores, or a slow network: start one rank per core, choose the network with --mca "
        "btl_tcp_if_include or UCX_NET_DEVICES";
  }
  Finding b{"MPI bandwidth", "between pairs", text_of(speed, "GB/s each way", true)};
  if (speed.least.value < 1 || speed.least.value < speed.median / 4) {
    b.verdict = Verdict::note;
    b.advice = fmt::format(
        "ranks {} and {} have a slow link: choose the fast network (--mca btl_tcp_if_include, "
        "UCX_NET_DEVICES), look for a port that runs below its speed (ethtool, ibstat)",
        speed.least.a, speed.least.b);
  }
  return {a, b};
}

Findings check_gpu(Communicator& comm, Device& device) {
  const int gpus = device_count();
  const std::string where = fmt::format("rank {}, {}", comm.rank(), comm.host());
  device = Device::cpu;
  const bool driver = std::ifstream("/proc/driver/nvidia/version").good();
  const bool some = comm.any(gpus > 0);
  if (!some) {
    Finding f{"GPU", comm.host(), built_with_cuda() ? "none" : "this build has no CUDA"};
    if (driver) {
      f.verdict = Verdict::problem;
      f.advice = built_with_cuda()
                     ? "there is a driver, but CUDA finds no GPU: check nvidia-smi, CUDA_VISIBLE_DEVICES, "
                       "and that the driver is not older than this build's CUDA"
                     : "there is a GPU: build again where nvcc is found";
    }
    return comm.local_rank() == 0 ? Findings{f} : Findings{};
  }
  try {
    choose_gpu(comm);
  } catch (const UserError& error) {
    if (comm.rank() > 0) return {};
    return {
        {"GPU", "all ranks", error.what(), Verdict::problem, "start one rank per GPU, on hosts that all have GPUs"}};
  }
  device = Device::cuda;
  const DeviceInfo info = device_info();
  BenchDevice bench(Device::cuda, Dtype::bf16, [](Context&) {});
  const Ceilings speed = bench.ceilings();
  std::vector<double> rates(static_cast<std::size_t>(comm.size()), 0.0);
  rates[static_cast<std::size_t>(comm.rank())] = speed.flops_per_second;
  comm.all_reduce_sum(rates.data(), comm.size());
  const double best = *std::max_element(rates.begin(), rates.end());
  const double all = gib(static_cast<std::int64_t>(info.total_bytes)),
               free = gib(static_cast<std::int64_t>(info.free_bytes));
  Finding f{
      "GPU", where,
      fmt::format("{}, driver {}, {:.1f} GiB free of {:.1f}; copies {:.2f} TB/s, multiplies {:.0f} TFLOP/s", info.name,
                  gpu_driver(), free, all, speed.bytes_per_second / 1e12, speed.flops_per_second / 1e12)};
  if (speed.flops_per_second < 0.85 * best) {
    f.verdict = Verdict::problem;
    f.advice =
        "slower than the fastest GPU, and all others wait for it: look for heat, a power cap or another program "
        "(nvidia-smi -q -d PERFORMANCE)";
  }
  if (free < 0.9 * all) {
    f.verdict = Verdict::problem;
    f.advice = "another program holds its memory: nvidia-smi names it";
  }
  return {f};
}

Findings check_gpu_links(Communicator& comm) {
  if (comm.size() == 1) return {};
  if (!built_with_nccl())
    return comm.rank() > 0 ? Findings{}
                           : Findings{{"NCCL", "all ranks", "not in this build", Verdict::problem,
                                       "several GPUs need it: build again where NCCL is found"}};
  const std::string links = interconnect(comm, Device::cuda);
  const Summary pairs = summary_of(measure_pairs(comm, all_reduce_rate));
  const double together = all_reduce_rate(comm);
  if (comm.rank() != 0) return {};
  Finding f{"NCCL by pair", "between GPUs", text_of(pairs, "GB/s", true)};
  if (pairs.least.value < pairs.median / 2) {
    f.verdict = Verdict::problem;
    f.advice = fmt::format(
        "the GPUs of ranks {} and {} have a slow link: see nvidia-smi topo -m and nvidia-smi nvlink -s; "
        "NCCL_DEBUG=INFO shows which route NCCL takes",
        pairs.least.a, pairs.least.b);
  }
  return {f, {"NCCL all-reduce", "all GPUs", fmt::format("{:.3g} GB/s over {}", together, links)}};
}

}  // namespace longstride
