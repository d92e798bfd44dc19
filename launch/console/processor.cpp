#include "launch/console/processor.h"

#include <unistd.h>

namespace longstride {
namespace {

#if defined(__x86_64__)
#define LONGSTRIDE_BASELINE __attribute__((target("arch=x86-64"), no_sanitize("address", "undefined", "thread")))

// The first instruction set that the compiler was told to use and the processor lacks, or null. The compiler's macros
// say which ones it was told of, whether by -march=native or by x86-64-v3.
LONGSTRIDE_BASELINE const char* missing_instructions() {
  __builtin_cpu_init();
#ifdef __SSE4_2__
  if (!__builtin_cpu_supports("sse4.2")) return "SSE4.2";
#endif
#ifdef __POPCNT__
  if (!__builtin_cpu_supports("popcnt")) return "POPCNT";
#endif
#ifdef __AVX__
  if (!__builtin_cpu_supports("avx")) return "AVX";
#endif
#ifdef __AVX2__
  if (!__builtin_cpu_supports("avx2")) return "AVX2";
#endif
#ifdef __FMA__
  if (!__builtin_cpu_supports("fma")) return "FMA";
#endif
#ifdef __BMI2__
  if (!__builtin_cpu_supports("bmi2")) return "BMI2";
#endif
#ifdef __AVX512F__
  if (!__builtin_cpu_supports("avx512f")) return "AVX-512";
#endif
#ifdef __AVX512BW__
  if (!__builtin_cpu_supports("avx512bw")) return "AVX-512BW";
#endif
#ifdef __AVX512DQ__
  if (!__builtin_cpu_supports("avx512dq")) return "AVX-512DQ";
#endif
#ifdef __AVX512VL__
  if (!__builtin_cpu_supports("avx512vl")) return "AVX-512VL";
#endif
#ifdef __AVX512VNNI__
  if (!__builtin_cpu_supports("avx512vnni")) return "AVX-512 VNNI";
#endif
#ifdef __AVX512BF16__
  if (!__builtin_cpu_supports("avx512bf16")) return "AVX-512 BF16";
#endif
  return nullptr;
}

LONGSTRIDE_BASELINE void say(const char* text) {
  static_cast<void>(!::write(STDERR_FILENO, text, __builtin_strlen(text)));
}

#ifdef __AVX512F__
constexpr const char* remedy = "build it on this machine";
#else
constexpr const char* remedy = "build it on this machine, or run it on one with AVX2 (x86-64-v3: since 2013)";
#endif
#endif

}  // namespace

#if defined(__x86_64__)
LONGSTRIDE_BASELINE void refuse_older_processor(int, char**, char**) {
  const char* missing = missing_instructions();
  if (missing == nullptr) return;
  say("longstride: this processor lacks ");
  say(missing);
  say(", which this build needs; ");
  say(remedy);
  say("\n");
  ::_exit(2);
}
#else
void refuse_older_processor(int, char**, char**) {}
#endif

}  // namespace longstride
