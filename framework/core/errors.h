// Two kinds of failure, never mixed up.
//  - UserError: a mistake in a recipe, file, checkpoint or command line. One sentence that says what to do; main prints
//    it and exits with code 2.
//  - InternalError: a broken invariant of the program (kernels/base/check.h).
// Libraries throw; only main ends the process.
#pragma once
#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

#include "kernels/base/check.h"

namespace longstride {

class UserError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// throw user_error("{}: holds {} bytes ...", path, n);
template <class... Args>
UserError user_error(fmt::format_string<Args...> format, Args&&... args) {
  return UserError(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace longstride
