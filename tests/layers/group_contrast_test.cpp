#include "kernels/group_contrast/group_contrast.h"

#include "tests/ops/op_test.h"

namespace longstride::testing::group_contrast_test {
namespace {

using kernels::GroupContrastArgs;

constexpr std::int64_t rows = 3, n = 14, ids = 9;
// Groups of 1 to 4 positions; the last row has fewer of its own, and none of its groups is asked whole.
const std::vector<double> groups = {0, 0, 0, 1, 1, 2, 2, 2, 2, 3, 3, 4, 4, 4, 5, 5, 6, 6, 6, 7, 8,
                                    8, 8, 8, 9, 9, 9, 9, 0, 0, 1, 1, 1, 2, 2, 3, 3, 3, 3, 3, 3, 3};
const std::vector<double> weights = {0, 0, 0, 1, 1, 2, 2, 0, 2, 0, 0, 1, 1, 1, 1, 1, 0, 0, 0, 1, 0,
                                     0, 0, 0, 1, 1, 1, 1, 1, 0, 0, 1, 0, 1, 0, 1, 1, 1, 1, 1, 1, 1};
const double lengths[] = {14, 14, 8};

class GroupContrastTest : public OpTest {
 protected:
  struct Found {
    std::vector<double> targets;
    const Operand &table, &z;
    std::int64_t added, width;
    double scale;

    // The global row of a position, by its definition; -1: padding.
    std::int64_t row_of(std::int64_t r, std::int64_t i) const {
      if (static_cast<double>(i) >= lengths[r]) return -1;
      const auto at = [&](std::int64_t p) {
        return static_cast<std::int64_t>(groups[static_cast<std::size_t>(r * n + p)]);
      };
      const std::int64_t used = std::min(added, at(static_cast<std::int64_t>(lengths[r]) - 1) - at(0) + 1);
      return added - used + std::min(at(i) - at(0), used - 1);
    }
    // The losses, then the gradients of z.
    template <class T>
    std::vector<T> plain() const {
      std::vector<T> losses(static_cast<std::size_t>(rows * added)), dz(static_cast<std::size_t>(rows * added * width));
      for (std::int64_t r = 0; r < rows; ++r) {
        const std::int64_t first = row_of(r, 0);
        std::vector<std::vector<T>> e;
        std::vector<bool> asked;
        for (std::int64_t g = first; g < added; ++g) {
          std::vector<T> sum(static_cast<std::size_t>(width));
          T count = 0;
          bool all = true;
          for (std::int64_t i = 0; i < n; ++i) {
            if (row_of(r, i) != g) continue;
            const auto at = static_cast<std::size_t>(r * n + i);
            for (std::int64_t c = 0; c < width; ++c)
              sum[static_cast<std::size_t>(c)] +=
                  static_cast<T>(table.at(static_cast<std::int64_t>(targets[at]) * width + c));
            all = all && weights[at] > 0;
            ++count;
          }
          for (T& x : sum) x /= count;
          e.push_back(sum);
          asked.push_back(all);
        }
        for (std::size_t c = 0; c < static_cast<std::size_t>(width); ++c) {
          T mean = 0;
          for (const auto& x : e) mean += x[c];
          for (auto& x : e) x[c] -= mean / static_cast<T>(e.size());
        }
        for (auto& x : e) {
          T squares = static_cast<T>(GroupContrastArgs::epsilon * static_cast<double>(width));
          for (const T v : x) squares += v * v;
          for (T& v : x) v *= std::sqrt(static_cast<T>(width) / squares);
        }
        const auto count = static_cast<T>(std::count(asked.begin(), asked.end(), true));
        for (std::size_t g = 0; g < e.size(); ++g) {
          if (!asked[g]) continue;
          const std::int64_t row = r * added + first + static_cast<std::int64_t>(g);
          std::vector<T> p;
          T sum = 0, own = 0;
          for (const auto& x : e) {
            T s = 0;
            for (std::int64_t c = 0; c < width; ++c)
              s += static_cast<T>(z.at(row * width + c)) * x[static_cast<std::size_t>(c)];
            s /= std::sqrt(static_cast<T>(width));
            if (p.size() == g) own = s;
            p.push_back(std::exp(s));
            sum += p.back();
          }
          losses[static_cast<std::size_t>(row)] = static_cast<T>(scale) / count * (std::log(sum) - own);
          for (std::size_t j = 0; j < e.size(); ++j)
            for (std::int64_t c = 0; c < width; ++c)
              dz[static_cast<std::size_t>(row * width + c)] +=
                  static_cast<T>(scale) / count * (p[j] / sum - (j == g ? T(1) : T(0))) *
                  e[j][static_cast<std::size_t>(c)] / std::sqrt(static_cast<T>(width));
        }
      }
      losses.insert(losses.end(), dz.begin(), dz.end());
      return losses;
    }
  };
};
LONGSTRIDE_OP_TESTS(GroupContrastTest);

TEST_P(GroupContrastTest, IsAsExactAsAPlainLoop) {
  std::vector<double> targets, ends;
  for (std::int64_t i = 0; i < rows * n; ++i) targets.push_back(static_cast<double>(i * i % 7 + i % 3));
  for (const double length : lengths) ends.insert(ends.end(), n, length);
  const Operand of = with_values({rows, n}, Dtype::i32, groups), end = with_values({rows, 1, n}, Dtype::i32, ends),
                weight = with_values({rows, n}, Dtype::f32, weights),
                target = with_values({rows, n}, Dtype::u16, targets);
  for (const std::int64_t added : {1, 4, 6, 40})
    for (const std::int64_t width : {8, 100}) {
      const Operand table = normals({ids, width}, exact(), 3), z = normals({rows, added, width}, 4);
      Operand e = result({rows, added, width}, exact()), losses = result({rows, added}, exact()),
              dz = result({rows, added, width});
      const Found found{targets, table, z, added, width, 0.7};
      run(GroupContrastArgs{.groups = of,
                            .end = end,
                            .targets = target,
                            .weights = weight,
                            .table = table,
                            .z = z,
                            .e = e,
                            .losses = losses,
                            .dz = dz,
                            .scale = 0.7},
          {&e, &losses, &dz});
      const auto split = static_cast<std::ptrdiff_t>(rows * added);
      const std::string name = std::to_string(added) + " rows of " + std::to_string(width);
      expect_as_exact_as_plain("losses of " + name, losses, [&](auto zero) {
        const auto all = found.template plain<decltype(zero)>();
        return std::vector<decltype(zero)>(all.begin(), all.begin() + split);
      });
      expect_as_exact_as_plain("dz of " + name, dz, [&](auto zero) {
        const auto all = found.template plain<decltype(zero)>();
        return std::vector<decltype(zero)>(all.begin() + split, all.end());
      });
    }
}

}  // namespace
}  // namespace longstride::testing::group_contrast_test
