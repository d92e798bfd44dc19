#include "kernels/scan/choice.h"

#include <algorithm>

namespace longstride::kernels {
namespace {

constexpr std::int64_t longest_run = 512, wanted_blocks = 512;
constexpr int multiprocessors = 132;

}  // namespace

ScanFastPath fast_path_of(const ScanProblem& p) {
  if (p.direction == Direction::both) return {ScanSlowness::direction};
  const bool delta = p.form == ScanForm::delta;
  if (delta && p.channels) return {ScanSlowness::channels};
  const std::int64_t most_keys = delta || p.channels ? 128 : 256,
                     most_values = p.key_size > (p.channels ? 64 : 128) ? 64 : 128;
  if (p.key_size > most_keys) return {ScanSlowness::key_size, p.key_size, most_keys};
  if (p.value_size > most_values) return {ScanSlowness::value_size, p.value_size, most_values};
  return {};
}

bool takes_walks(Device device, const ScanProblem& p) {
  return device == Device::cuda && bytes_of(p.dtype) == 2 && fast_path_of(p).slowness == ScanSlowness::none;
}

int walk_blocks(std::int64_t key_size, std::int64_t value_size, bool per_head) {
  const int small = per_head ? 3 : 2, of_multiprocessor = key_size > 128 || value_size > 64 ? 1
                                                          : key_size > 64                   ? small - 1
                                                                                            : small;
  return multiprocessors * of_multiprocessor;
}

std::int64_t scan_run(Device device, const ScanProblem& p) {
  if (!takes_walks(device, p)) return scan_chunk;
  if (p.run > 0) return p.run;
  std::int64_t run = scan_chunk;
  while (run < longest_run && p.units * p.n >= 2 * run * wanted_blocks) run *= 2;
  return run;
}

}  // namespace longstride::kernels
