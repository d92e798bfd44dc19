// to = from for arrays of rows that are not next to each other: (groups, rows, width), the last dimension dense.
#pragma once
#include "kernels/base/view.h"

namespace longstride::kernels {

struct CopyRowsArgs {
  View from;  // any type
  View to;    // of the same shape and type
};

namespace cpu {
void copy_rows(const CopyRowsArgs&, const Launch&);
}
namespace cuda {
void copy_rows(const CopyRowsArgs&, const Launch&);
}

}  // namespace longstride::kernels
