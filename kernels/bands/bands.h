// A vocabulary in bands of ids, the most frequent first (Grave et al. 2017). The first choice is among a cluster for
// every later band and the ids of the first, in this order; another, among the ids of a band, follows a cluster:
//   p(id) = p(id)                      in the first band
//   p(id) = p(cluster) p(id | band)    elsewhere
#pragma once
#include "kernels/base/host_device.h"
#include "kernels/base/op.h"

namespace longstride::kernels {

struct BandEdges {
  static constexpr int most = 15;
  std::int32_t first[most] = {};  // the first ids of the bands after the first, which rise
  int count = 0;

  // The band of an id.
  LONGSTRIDE_HOST_DEVICE int of(int id) const {
    int band = 0;
    while (band < count && id >= first[band]) ++band;
    return band;
  }
  // The place of an id in the choice of `band`, negative if it has none there.
  LONGSTRIDE_HOST_DEVICE int place(int id, int band) const {
    const int own = of(id);
    if (band == 0) return own == 0 ? count + id : own - 1;
    return own == band ? id - first[band - 1] : -1;
  }
};

// The targets of one band's choice. Rows of which it is not asked have target and weight 0.
struct BandTargetsArgs {
  Tensor targets;       // (rows) u8 or u16
  Tensor weights = {};  // (rows) f32; absent: 1
  Tensor places;        // (rows) of targets' type, written
  Tensor asked;         // (rows) f32, written: the weights
  BandEdges edges;
  int band = 0;

  void check(Device device) const;
  Cost cost() const { return {WorkKind::loss, bytes_of(targets, places, asked), 0}; }
};
LONGSTRIDE_OP(band_targets, BandTargetsArgs)

// y = logits[:, cluster] + log softmax(x): next to the first choice's logits, those of a band's ids, so that one
// softmax of all has the probabilities above.
struct BandScoresArgs {
  Tensor x;         // (rows, ids) of the exact type, contiguous
  Tensor clusters;  // (rows, choices) of the exact type, contiguous: the first choice's logits
  Tensor y;         // (rows, ids) of the exact type, last dimension dense
  std::int64_t cluster = 0;

  void check(Device device) const;
  Cost cost() const { return {WorkKind::loss, bytes_of(x, y), 0}; }
};
LONGSTRIDE_OP(band_scores, BandScoresArgs)

}  // namespace longstride::kernels
