#include "kernels/dropout/dropout.h"

#include <algorithm>
#include <cmath>

#include "kernels/base/philox.h"
#include "kernels/base/tensor_checks.h"

namespace longstride::kernels {

void DropoutArgs::check(Device device) const {
  check_contiguous(branch, "branch");
  check_computes(device, branch, "branch");
  LONGSTRIDE_CHECK(p >= 0 && p < 1, "dropout is {}, but must be in [0, 1)", p);
  LONGSTRIDE_CHECK(goes_with(device, branch.dtype(), y.dtype()) || goes_with(device, y.dtype(), branch.dtype()),
                   "dropout from {} to {}", name_of(branch.dtype()), name_of(y.dtype()));
  check_vector(y, branch.count(), y.dtype(), "y");
  if (residual.given()) check_vector(residual, branch.count(), y.dtype(), "residual");
}

namespace cpu {
namespace {

constexpr std::int64_t block_groups =
    64;  // groups of four elements whose words are drawn together, in vector registers
constexpr std::int64_t block_elements = 4 * block_groups;

// words[e] for the elements [4 group, 4 group + block_elements) of the global batch.
void draw(const DropoutArgs& args, std::uint32_t step, std::int64_t group, std::uint32_t* words) {
  const std::uint32_t domain = domain_of(Purpose::dropout, args.layer);
#pragma omp simd
  for (std::int64_t g = 0; g < block_groups; ++g) {
    const Philox4 r = philox(args.seed, static_cast<std::uint64_t>(group + g), step, domain);
    words[4 * g] = r.word[0];
    words[4 * g + 1] = r.word[1];
    words[4 * g + 2] = r.word[2];
    words[4 * g + 3] = r.word[3];
  }
}

template <class T>
void run(const DropoutArgs& args) {
  const T* branch = args.branch.as<const T>();
  const T* residual = args.residual.as<const T>();
  T* y = args.y.as<T>();
  const auto step = static_cast<std::uint32_t>(args.p > 0 ? *args.step : 0);
  const auto limit = static_cast<std::uint32_t>(std::ceil(static_cast<double>(args.p) * 4294967296.0));
  const T scale = T(1) / (T(1) - static_cast<T>(args.p));
  // Blocks start at multiples of block_elements of the global batch, wherever this micro-batch starts.
  const std::int64_t begin = args.first_element, end = begin + args.branch.count();
  const std::int64_t first_block = begin / block_elements, last_block = (end + block_elements - 1) / block_elements;
#pragma omp parallel for schedule(static) if (end - begin > 16384)
  for (std::int64_t block = first_block; block < last_block; ++block) {
    std::uint32_t words[block_elements];
    if (args.p > 0)
      draw(args, step, block * block_groups, words);
    else
      std::fill_n(words, block_elements, 0u);  // the limit is 0: no word is below it
    const std::int64_t from = std::max(begin, block * block_elements) - begin;
    const std::int64_t count = std::min(end, (block + 1) * block_elements) - begin - from;
    const std::uint32_t* word = words + (from + begin - block * block_elements);
    const T* in = branch + from;
    T* out = y + from;
    if (residual != nullptr) {
      const T* add = residual + from;
#pragma omp simd
      for (std::int64_t i = 0; i < count; ++i) out[i] = add[i] + (word[i] < limit ? T(0) : in[i] * scale);
    } else {
#pragma omp simd
      for (std::int64_t i = 0; i < count; ++i) out[i] = word[i] < limit ? T(0) : in[i] * scale;
    }
  }
}

}  // namespace

void dropout(const DropoutArgs& args, const Launch&) {
  with_float_type(args.y.dtype(), [&](auto zero) { run<decltype(zero)>(args); });
}

}  // namespace cpu
}  // namespace longstride::kernels
