#include "kernels/bands/bands.h"

#include <algorithm>
#include <cmath>

#include "kernels/base/ids.h"
#include "kernels/base/tensor_checks.h"

namespace longstride::kernels {

void BandTargetsArgs::check(Device /*device*/) const {
  const std::int64_t rows = targets.count();
  check_ids(targets, rows, "targets");
  if (weights.given()) check_vector(weights, rows, Dtype::f32, "weights");
  check_vector(places, rows, targets.dtype(), "places");
  check_vector(asked, rows, Dtype::f32, "asked");
  LONGSTRIDE_CHECK(edges.count <= BandEdges::most && band >= 0 && band <= edges.count, "band {} behind {} edges", band,
                   edges.count);
}

void BandScoresArgs::check(Device device) const {
  LONGSTRIDE_CHECK(x.rank() == 2 && clusters.rank() == 2 && x.size(1) > 0 && clusters.size(0) == x.size(0),
                   "x is {} next to clusters {}", x.shape().text(), clusters.shape().text());
  LONGSTRIDE_CHECK(cluster >= 0 && cluster < clusters.size(1), "cluster {} of {}", cluster, clusters.size(1));
  check_vector(x, x.count(), exact_type(device, x.dtype()), "x");
  check_vector(clusters, clusters.count(), x.dtype(), "clusters");
  check_rows(y, x.shape(), x.dtype(), "y");
}

namespace cpu {

void band_targets(const BandTargetsArgs& args, const Launch&) {
  const Ids targets = ids_of(args.targets);
  const auto* weights = args.weights.as<const float>();
  for (std::int64_t r = 0; r < args.targets.count(); ++r) {
    const int place = args.edges.place(targets[r], args.band);
    write_id(args.places.data(), targets.wide, r, std::max(place, 0));
    args.asked.as<float>()[r] = place < 0 ? 0 : weights != nullptr ? weights[r] : 1;
  }
}

void band_scores(const BandScoresArgs& args, const Launch&) {
  const std::int64_t rows = args.x.size(0), ids = args.x.size(1), clusters = args.clusters.size(1);
  with_float_type(args.x.dtype(), [&](auto zero) {
    using T = decltype(zero);
#pragma omp parallel for schedule(static) if (args.x.count() > 16384)
    for (std::int64_t r = 0; r < rows; ++r) {
      const T* const x = args.x.as<const T>() + r * ids;
      T* const y = args.y.as<T>() + r * args.y.stride(0);
      const T most = *std::max_element(x, x + ids);
      T sum = 0;
      for (std::int64_t j = 0; j < ids; ++j) sum += std::exp(x[j] - most);
      const T by = args.clusters.as<const T>()[r * clusters + args.cluster] - most - std::log(sum);
      for (std::int64_t j = 0; j < ids; ++j) y[j] = x[j] + by;
    }
  });
}

}  // namespace cpu
}  // namespace longstride::kernels
