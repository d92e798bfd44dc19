// LONGSTRIDE_CHECK throws an InternalError, with values and file:line, when an invariant of the program is broken.
#pragma once
#include <fmt/format.h>

#include <stdexcept>
#include <string>

namespace longstride {

class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

[[noreturn]] void check_failed(const char* condition, const char* file, int line, const std::string& message);

}  // namespace longstride

// LONGSTRIDE_CHECK(a == b, "a is {} but b is {}", a, b);
#define LONGSTRIDE_CHECK(condition, ...)                                                                    \
  do {                                                                                                      \
    if (!(condition)) ::longstride::check_failed(#condition, __FILE__, __LINE__, fmt::format(__VA_ARGS__)); \
  } while (false)
