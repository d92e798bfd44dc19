// True if the address sanitizer checks the tests. Arithmetic then takes five to eleven times as long, so a test may
// visit the same code with fewer steps or smaller cases.
#pragma once

namespace longstride::test {

#ifdef __SANITIZE_ADDRESS__
constexpr bool sanitized = true;
#else
constexpr bool sanitized = false;
#endif

}  // namespace longstride::test
