// How a failure reaches a caller in C: as a status, with a sentence that is kept for the thread.
#pragma once
#include <fmt/format.h>

#include <cstddef>
#include <cstring>
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

// The size of a struct in the first version of its header, which is accepted as well.
template <class Struct>
inline constexpr std::size_t first_bytes = sizeof(Struct);
template <>
inline constexpr std::size_t first_bytes<longstride_pattern> = offsetof(longstride_pattern, direction);
template <>
inline constexpr std::size_t first_bytes<longstride_plan_config> = offsetof(longstride_plan_config, queries);
template <>
inline constexpr std::size_t first_bytes<longstride_forward_call> = offsetof(longstride_forward_call, begin);
template <>
inline constexpr std::size_t first_bytes<longstride_backward_call> = offsetof(longstride_backward_call, begin);

template <class Struct>
void check_struct(const Struct* given, const char* name) {
  if (given == nullptr) throw Mistake("{} is null, but must be given", name);
  if (given->struct_bytes != sizeof(Struct) && given->struct_bytes != first_bytes<Struct>)
    throw Mistake("struct_bytes of {} is {}, but must be {}: set it to sizeof, and use the header of version {}", name,
                  given->struct_bytes, sizeof(Struct), LONGSTRIDE_VERSION);
}

// A checked copy, in which members that the caller's version does not have are 0.
template <class Struct>
Struct complete(const Struct* given, const char* name) {
  check_struct(given, name);
  Struct all{};
  std::memcpy(&all, given, given->struct_bytes);
  return all;
}

}  // namespace longstride::kernels::c_api
