// How a failure reaches a caller in C: as a status, with a sentence that is kept for the thread.
#pragma once
#include <fmt/format.h>

#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "kernels/c_api/attention.h"

namespace longstride::kernels::c_api {

// An argument that is not allowed.
class Mistake : public std::runtime_error {
 public:
  template <class... T>
  explicit Mistake(fmt::format_string<T...> text, T&&... values)
      : std::runtime_error(fmt::format(text, std::forward<T>(values)...)) {}
};

// A device for which this build has no kernels.
class Unsupported : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A caller's name in a message: its beginning, so that what is allowed still fits into the sentence, without control
// characters.
std::string shown(std::string_view name);

const char* last_error() noexcept;
// The status of the exception that is being handled, whose sentence is kept.
longstride_status status_of_exception() noexcept;

// Calls f; the status says whether and how it failed.
template <class F>
longstride_status status_of(F&& f) noexcept {
  try {
    f();
    return LONGSTRIDE_OK;
  } catch (...) {
    return status_of_exception();
  }
}

// Structs have had one size so far; a version that adds members accepts this size as well.
template <class Struct>
void check_struct(const Struct* given, const char* name) {
  if (given == nullptr) throw Mistake("{} is null, but must be given", name);
  if (given->struct_bytes != sizeof(Struct))
    throw Mistake("struct_bytes of {} is {}, but must be {}: set it to sizeof, and use the header of version {}", name,
                  given->struct_bytes, sizeof(Struct), LONGSTRIDE_VERSION);
}

}  // namespace longstride::kernels::c_api
