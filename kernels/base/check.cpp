#include "kernels/base/check.h"

namespace longstride {

void check_failed(const char* condition, const char* file, int line, const std::string& message) {
  throw InternalError(fmt::format("{}:{}: {} ({} does not hold)", file, line, message, condition));
}

}  // namespace longstride
