// Runs an op of the kernels for a caller in C.
#pragma once
#include "kernels/base/op.h"
#include "kernels/c_api/views.h"

namespace longstride::kernels::c_api {

inline Tensor lse_of(const Settings& s, const void* lse) {
  return {const_cast<void*>(lse), exact_type(s.device, s.dtype), {s.batch, s.heads, s.n}};
}

// With the scratch and on the stream of `call`. Throws Mistake, which names the function that tells how much is needed,
// if the scratch does not suffice.
template <class Args, class Call>
void run(const Settings& s, Args args, const Call& call, const char* memory_function) {
  const Tensor needed = args.scratch_on(s.device);
  check_scratch(call.scratch, call.scratch_bytes, needed.bytes(), memory_function);
  if (s.batch == 0) return;
  args.check(s.device);
  if (needed.given()) args.scratch = Tensor(call.scratch, needed.dtype(), needed.shape());
  launch_on(s.device, args, Launch{.stream = call.stream});
}

}  // namespace longstride::kernels::c_api
