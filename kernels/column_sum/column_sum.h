// total (columns) += sum over rows of x: the gradient of a bias. Independent of the number of threads.
#pragma once
#include "kernels/base/row_chunks.h"
#include "kernels/base/view.h"

namespace longstride::kernels {

struct ColumnSumArgs {
  View x;         // (rows, columns), last dimension dense; all of one type
  View total;     // (columns)
  View partials;  // (row_chunks(rows).chunks, columns): workspace
};

namespace cpu {
void column_sum(const ColumnSumArgs&, const Launch&);
}
namespace cuda {
void column_sum(const ColumnSumArgs&, const Launch&);
}

}  // namespace longstride::kernels
