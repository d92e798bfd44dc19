#include "framework/models/model.h"

#include "framework/core/errors.h"

namespace longstride {

void Model::generate(Context&, DecodingState&, const ops::Drawing&, std::int64_t first, std::int64_t count) const {
  check_failed("generates(state)", __FILE__, __LINE__, fmt::format("positions {} to {}", first, first + count));
}

}  // namespace longstride
