// Vectors per label of a pair of positions, which are added to its key:
//   score(i, j) = scale q_i . (k_j + A[label(i, j)]).
// With c labels per set, the label is
//   clamp(j - i, -clip, clip) + clip             the clipped distance, c = 2 clip + 1; or
//   min(keys that follow j in i's interval, c - 1)   from_end: the place, counted from the interval's last key;
// plus c if groups are given and those of i and j differ. So A has c rows, or 2 c with groups: those of the own group
// first. An interval is what the bounds leave of a part of the plan, whatever lists say, in entries of the part's row
// set; if those are natural, end_i - 1 - j keys follow j.
#pragma once
#include <cstdint>

#include "kernels/base/host_device.h"
#include "kernels/base/tensor.h"

namespace longstride::kernels {

struct Labels {
  Tensor table = {};      // A: (labels, heads or 1, key size), q's type, the last dimension dense; absent: no labels
  std::int32_t clip = 0;  // 0 or more; 0 with from_end
  Tensor query_groups = {}, key_groups = {};  // (batch, n_q) and (batch, n) i32, contiguous; both or neither
  bool from_end = false;

  bool given() const { return table.given(); }
  std::int64_t count() const { return given() ? table.size(0) : 0; }
};

// The labels of one sequence's pairs, passed to kernels by value.
struct LabelRule {
  const std::int32_t *query_groups = nullptr, *key_groups = nullptr;
  std::int32_t clip = 0, of_set = 1;  // labels of a set
  bool from_end = false;

  LabelRule() = default;
  LabelRule(const Labels& labels, std::int64_t sequence) : clip(labels.clip), from_end(labels.from_end) {
    of_set = static_cast<std::int32_t>(labels.count());
    if (!labels.key_groups.given()) return;
    of_set /= 2;
    query_groups = labels.query_groups.as<const std::int32_t>() + sequence * labels.query_groups.size(1);
    key_groups = labels.key_groups.as<const std::int32_t>() + sequence * labels.key_groups.size(1);
  }

  // i, j: positions; after: keys of i's interval that follow j, below 0 if j is not in it.
  LONGSTRIDE_HOST_DEVICE std::int32_t label(std::int32_t i, std::int32_t j, std::int32_t after) const {
    const std::int32_t most = from_end ? of_set - 1 : 2 * clip, place = from_end ? after : j - i + clip;
    const std::int32_t within = place < 0 ? 0 : place > most ? most : place;
    return within + (key_groups != nullptr && query_groups[i] != key_groups[j] ? of_set : 0);
  }
};

}  // namespace longstride::kernels
