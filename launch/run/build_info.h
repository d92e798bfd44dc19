// How this program was built. The build writes the .cpp (cmake/BuildInfo.cmake).
#pragma once

namespace longstride {

struct BuildInfo {
  const char* commit;      // commit of the source, with "-dirty" if files differed from it; "unknown" outside git
  const char* type;        // CMAKE_BUILD_TYPE
  const char* sanitizers;  // LONGSTRIDE_SANITIZE; empty: none
  bool native;             // LONGSTRIDE_NATIVE: tuned for the processor of the machine that built it
};
BuildInfo build_info();

}  // namespace longstride
