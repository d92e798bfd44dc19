// The term of Hopper's general kernels that adds nothing to a score. A term is one struct; without one, the kernels
// leave out what it does.
#pragma once

namespace longstride::kernels::cuda::sm90 {

struct NoTerm {
  static constexpr bool given = false;
};

}  // namespace longstride::kernels::cuda::sm90
