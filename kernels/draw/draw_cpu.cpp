#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "kernels/base/ids.h"
#include "kernels/base/tensor_checks.h"
#include "kernels/draw/draw.h"

namespace longstride::kernels {

void DrawArgs::check(Device device) const {
  LONGSTRIDE_CHECK(logits.rank() == 2 && logits.size(1) <= 65536, "logits are {}", logits.shape().text());
  check_vector(logits, logits.count(), exact_type(device, logits.dtype()), "logits");
  LONGSTRIDE_CHECK(bytes.rank() == 2 && bytes.size(0) == logits.size(0) && position >= 0 && position < bytes.size(1),
                   "bytes are {} at position {}", bytes.shape().text(), position);
  check_vector(bytes, bytes.count(), id_type(logits.size(1)), "bytes");
  check_vector(previous, logits.size(0), bytes.dtype(), "previous");
  if (log_probabilities.given()) check_vector(log_probabilities, bytes.count(), Dtype::f32, "log_probabilities");
}

namespace cpu {
namespace {

// weights[v] = 0 for bytes that top_k and top_p exclude.
void leave_out(std::vector<double>& weights, const double* logits, const Sampling& sampling) {
  const auto vocabulary = static_cast<std::int64_t>(weights.size());
  std::vector<std::int64_t> order(weights.size());
  std::iota(order.begin(), order.end(), std::int64_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) { return logits[a] > logits[b]; });
  const std::int64_t most = sampling.top_k > 0 ? std::min(sampling.top_k, vocabulary) : vocabulary;
  double total = 0, better = 0;
  for (std::int64_t r = 0; r < most; ++r)
    total += weights[static_cast<std::size_t>(order[static_cast<std::size_t>(r)])];
  for (std::int64_t r = 0; r < vocabulary; ++r) {
    double& weight = weights[static_cast<std::size_t>(order[static_cast<std::size_t>(r)])];
    const bool kept = r < most && (r == 0 || sampling.top_p >= 1 || better < sampling.top_p * total);
    better += weight;
    if (!kept) weight = 0;
  }
}

}  // namespace

int draw_one(const double* logits, std::int64_t vocabulary, const Sampling& sampling, double uniform) {
  const double* best = std::max_element(logits, logits + vocabulary);
  if (sampling.temperature <= 0) return static_cast<int>(best - logits);
  std::vector<double> weights(static_cast<std::size_t>(vocabulary));
  for (std::size_t v = 0; v < weights.size(); ++v) weights[v] = std::exp((logits[v] - *best) / sampling.temperature);
  if (sampling.top_k > 0 || sampling.top_p < 1) leave_out(weights, logits, sampling);
  double left = uniform * std::accumulate(weights.begin(), weights.end(), 0.0);
  for (std::size_t v = 0; v < weights.size(); ++v) {
    left -= weights[v];
    if (left < 0) return static_cast<int>(v);
  }
  return static_cast<int>(best - logits);  // reached only because of rounding
}

void draw(const DrawArgs& args, const Launch&) {
  const std::int64_t batch = args.logits.size(0), vocabulary = args.logits.size(1), length = args.bytes.size(1);
  std::vector<double> logits(static_cast<std::size_t>(vocabulary));
  for (std::int64_t s = 0; s < batch; ++s) {
    with_float_type(args.logits.dtype(), [&](auto zero) {
      std::copy_n(args.logits.as<const decltype(zero)>() + s * vocabulary, vocabulary, logits.data());
    });
    const bool wide = args.bytes.dtype() == Dtype::u16;
    const std::int64_t at = s * length + args.position;
    int byte = ids_of(args.bytes)[at];
    if (args.position >= args.prompted)
      byte = draw_one(logits.data(), vocabulary, args.sampling,
                      uniform_for(args.sampling, args.first_sequence + s, args.position));
    write_id(args.bytes.data(), wide, at, byte);
    write_id(args.previous.data(), wide, s, byte);
    if (!args.log_probabilities.given()) continue;
    const double best = *std::max_element(logits.begin(), logits.end());
    double total = 0;
    for (double x : logits) total += std::exp(x - best);
    args.log_probabilities.as<float>()[at] = static_cast<float>(logits[byte] - best - std::log(total));
  }
}

}  // namespace cpu
}  // namespace longstride::kernels
