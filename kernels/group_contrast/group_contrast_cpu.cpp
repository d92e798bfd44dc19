#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/base/tensor_checks.h"
#include "kernels/global_rows/global_row.h"
#include "kernels/group_contrast/group_contrast.h"

namespace longstride::kernels {

void GroupContrastArgs::check(Device device) const {
  LONGSTRIDE_CHECK(groups.rank() == 2 && z.rank() == 3 && z.size(0) == groups.size(0) && z.size(1) <= most_rows,
                   "groups {} and rows {}", groups.shape().text(), z.shape().text());
  check_computes(device, z, "z");
  const Dtype exact = exact_type(device, z.dtype());
  check_vector(groups, groups.count(), Dtype::i32, "groups");
  if (end.given()) check_vector(end, groups.count(), Dtype::i32, "end");
  check_ids(targets, groups.count(), "targets");
  check_vector(weights, groups.count(), Dtype::f32, "weights");
  LONGSTRIDE_CHECK(table.rank() == 2 && table.size(1) == z.size(2), "a table {} for rows {}", table.shape().text(),
                   z.shape().text());
  check_vector(table, table.count(), exact, "table");
  check_vector(z, z.count(), z.dtype(), "z");
  check_vector(dz, z.count(), z.dtype(), "dz");
  check_vector(e, z.count(), exact, "e");
  check_vector(losses, z.size(0) * z.size(1), exact, "losses");
}

namespace cpu {
namespace {

// The groups of one sequence.
template <class T>
class Sequence {
 public:
  Sequence(const GroupContrastArgs& args, std::int64_t row)
      : args_(args),
        n_(args.groups.size(1)),
        width_(args.z.size(2)),
        row_(row),
        of_{args.groups.as<const std::int32_t>() + row * n_,
            args.end.given() ? args.end.as<const std::int32_t>()[row * n_] : static_cast<std::int32_t>(n_),
            static_cast<std::int32_t>(args.z.size(1)), true},
        first_(of_.first()),
        rows_(of_.added) {}

  void embed() const {
    std::fill_n(e(0), rows_ * width_, T(0));
    std::vector<T> mean(static_cast<std::size_t>(width_));
    for (std::int64_t g = first_; g < rows_; ++g) {
      const Interval positions = of_.positions(static_cast<std::int32_t>(g));
      for (std::int32_t i = positions.begin; i < positions.end; ++i) {
        const std::int64_t at = row_ * n_ + i;
        const std::int64_t id = args_.targets.dtype() == Dtype::u16 ? args_.targets.as<const std::uint16_t>()[at]
                                                                    : args_.targets.as<const std::uint8_t>()[at];
        for (std::int64_t c = 0; c < width_; ++c) e(g)[c] += args_.table.as<const T>()[id * width_ + c];
      }
      for (std::int64_t c = 0; c < width_; ++c) {
        e(g)[c] /= static_cast<T>(std::max(positions.end - positions.begin, 1));
        mean[static_cast<std::size_t>(c)] += e(g)[c] / static_cast<T>(rows_ - first_);
      }
    }
    for (std::int64_t g = first_; g < rows_; ++g) {
      T squares = 0;
      for (std::int64_t c = 0; c < width_; ++c) {
        e(g)[c] -= mean[static_cast<std::size_t>(c)];
        squares += e(g)[c] * e(g)[c];
      }
      const T root = std::sqrt(squares / static_cast<T>(width_) + static_cast<T>(GroupContrastArgs::epsilon));
      for (std::int64_t c = 0; c < width_; ++c) e(g)[c] /= root;
    }
  }

  bool asked(std::int64_t g) const {
    const Interval positions = of_.positions(static_cast<std::int32_t>(g));
    const float* const weights = args_.weights.as<const float>() + row_ * n_;
    return positions.begin < positions.end &&
           std::all_of(weights + positions.begin, weights + positions.end, [](float w) { return w > 0; });
  }

  void contrast() const {
    std::int64_t count = 0;
    for (std::int64_t g = first_; g < rows_; ++g) count += asked(g);
    T* const losses = args_.losses.as<T>() + row_ * rows_;
    std::fill_n(losses, rows_, T(0));
    std::fill_n(args_.dz.as<T>() + row_ * rows_ * width_, rows_ * width_, T(0));
    for (std::int64_t g = first_; g < rows_; ++g)
      if (asked(g)) losses[g] = find(g, static_cast<T>(args_.scale) / static_cast<T>(count));
  }

 private:
  T* e(std::int64_t g) const { return args_.e.as<T>() + (row_ * rows_ + g) * width_; }

  T find(std::int64_t g, T scale) const {
    const T root = std::sqrt(static_cast<T>(width_)), *z = args_.z.as<const T>() + (row_ * rows_ + g) * width_;
    std::vector<T> score(static_cast<std::size_t>(rows_ - first_));
    for (std::int64_t j = first_; j < rows_; ++j) {
      T& own = score[static_cast<std::size_t>(j - first_)];
      for (std::int64_t c = 0; c < width_; ++c) own += z[c] * e(j)[c];
      own /= root;
    }
    const T own = score[static_cast<std::size_t>(g - first_)], top = *std::max_element(score.begin(), score.end());
    T sum = 0;
    for (T& s : score) sum += s = std::exp(s - top);
    const T slope = scale * static_cast<T>(args_.loss_scale != nullptr ? *args_.loss_scale : 1.0F) / root;
    T* const dz = args_.dz.as<T>() + (row_ * rows_ + g) * width_;
    for (std::int64_t j = first_; j < rows_; ++j) {
      const T by = slope * (score[static_cast<std::size_t>(j - first_)] / sum - (j == g ? T(1) : T(0)));
      for (std::int64_t c = 0; c < width_; ++c) dz[c] += by * e(j)[c];
    }
    return scale * (std::log(sum) + top - own);
  }

  const GroupContrastArgs& args_;
  std::int64_t n_, width_, row_;
  GlobalRowsOf of_;
  std::int64_t first_, rows_;
};

}  // namespace

void group_contrast(const GroupContrastArgs& args, const Launch&) {
  with_float_type(args.z.dtype(), [&](auto zero) {
#pragma omp parallel for schedule(dynamic)
    for (std::int64_t row = 0; row < args.z.size(0); ++row) {
      const Sequence<decltype(zero)> sequence(args, row);
      sequence.embed();
      sequence.contrast();
    }
  });
}

}  // namespace cpu
}  // namespace longstride::kernels
