// ops::run(ctx, LayerNormArgs{.x = x.rows(), ...}) is what every op does around its kernel (kernels/base/op.h): it
// validates the arguments once, takes scratch from the arena, does no arithmetic while planning, meters the cost, and
// launches on the context's device.
#pragma once
#include "framework/core/context.h"
#include "kernels/base/op.h"

namespace longstride::ops {

template <class Args>
void run(Context& ctx, Args args) {
  args.check(ctx.device);
  Scratch scratch(ctx);
  if constexpr (requires { args.scratch_on(ctx.device); })
    if (const Tensor needed = args.scratch_on(ctx.device); needed.given()) args.scratch = scratch.like(needed);
  if (ctx.planning()) return;
  if constexpr (requires { args.cost(); }) {
    const kernels::MeteredRange range(ctx.launch.meter, args.cost());
    launch_on(ctx.device, args, ctx.launch);
  } else {
    launch_on(ctx.device, args, ctx.launch);
  }
}

}  // namespace longstride::ops
