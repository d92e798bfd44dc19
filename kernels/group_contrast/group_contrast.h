// Contrast of hidden groups (van den Oord et al. 2018): the row that stands for a group of which every position is
// asked is to find the group among all of its sequence, by the tokens that the model has not seen.
//
// Global row g of a sequence stands for the positions that kernels/global_rows gives its group. With their targets t,
//   m_g = mean_i table[t_i],   e_g = (m_g - mean of the m of the rows in use) / its root mean square
//   losses_g = scale / asked (log sum_j exp(s_gj) - s_gg),   s_gj = z_g . e_j / sqrt(width),   j over the rows in use
//   dz_g = loss_scale dlosses_g / dz_g;   the table is constant
// for the `asked` rows of the sequence whose positions all have a weight above 0; elsewhere both are 0.
#pragma once
#include "kernels/base/op.h"

namespace longstride::kernels {

struct GroupContrastArgs {
  static constexpr double epsilon = 1e-12;         // added to the mean square
  static constexpr std::int64_t most_rows = 8192;  // G
  Tensor groups;                                   // (rows, n) i32, contiguous, as GlobalRowsArgs has them
  Tensor end = {};                                 // (rows, 1, n) i32, likewise
  Tensor targets;                                  // (rows, n) u8 or u16, contiguous
  Tensor weights;                                  // (rows, n) f32, contiguous
  Tensor table;                                    // (ids, width) contiguous, exact type
  Tensor z;                                        // (rows, G, width) contiguous, compute type
  Tensor e;       // (rows, G, width) contiguous, exact type, written; 0 in rows not in use
  Tensor losses;  // (rows, G) contiguous, exact type, written
  Tensor dz;      // like z, written
  double scale = 1;
  const float* loss_scale = nullptr;  // device memory; null: 1

  void check(Device device) const;
  Cost cost() const { return {WorkKind::loss, bytes_of(z, e, dz), 0}; }
};
LONGSTRIDE_OP(group_contrast, GroupContrastArgs)

}  // namespace longstride::kernels
