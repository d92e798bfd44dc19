// Two kinds of failure, never mixed up.
//  - UserError: a mistake in a recipe, file, checkpoint or command line. One sentence that says what to do;
//    main prints it and ends with exit code 2.
//  - InternalError: a broken invariant of ours, thrown by LONGSTRIDE_CHECK with values and file:line.
// Libraries throw; only main ends the process.
#pragma once
#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace longstride {

class UserError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

// throw user_error("{}: holds {} bytes ...", path, n);
template <class... Args>
UserError user_error(fmt::format_string<Args...> format, Args&&... args) {
  return UserError(fmt::format(format, std::forward<Args>(args)...));
}

[[noreturn]] void check_failed(const char* condition, const char* file, int line, const std::string& message);

}  // namespace longstride

// LONGSTRIDE_CHECK(a == b, "a is {} but b is {}", a, b);
#define LONGSTRIDE_CHECK(condition, ...)                                                                    \
  do {                                                                                                      \
    if (!(condition)) ::longstride::check_failed(#condition, __FILE__, __LINE__, fmt::format(__VA_ARGS__)); \
  } while (false)
