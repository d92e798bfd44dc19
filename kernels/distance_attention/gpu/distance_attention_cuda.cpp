#include <algorithm>
#include <initializer_list>
#include <stdexcept>

#include "kernels/attention/delta.h"
#include "kernels/base/cuda_types.cuh"
#include "kernels/base/gpu_kind.h"
#include "kernels/distance_attention/fast_path.h"
#include "kernels/distance_attention/gpu/call.h"
#include "kernels/distance_attention/gpu/scratch.h"
#include "kernels/distance_attention/sm90/distance_sm90.h"

namespace longstride::kernels::cuda {
namespace {

using distance::Call;
using distance::PortableCall;
using distance::ScratchPieces;

// A copy of q with a bias, in scratch, or q itself.
HeadMatrix biased(const Tensor& q, void* copy) {
  return HeadMatrix(copy != nullptr ? Tensor(copy, q.dtype(), q.shape()) : q);
}

Call call_of(const DistanceScores& s, const Tensor& v, const ScratchPieces& pieces,
             std::initializer_list<const Tensor*> others) {
  Call call;
  call.q = HeadMatrix(s.q);
  call.k = HeadMatrix(s.k);
  call.v = HeadMatrix(v);
  call.content = biased(s.q, pieces.content);
  call.position = biased(s.q, pieces.position);
  call.aligned = rows_on_16_bytes(s.q) && rows_on_16_bytes(s.k) && rows_on_16_bytes(v) &&
                 (!s.table.given() || rows_on_16_bytes(s.table));
  for (const Tensor* t : others) call.aligned &= rows_on_16_bytes(*t);
  if (s.table.given()) {
    call.table = s.table.data();
    call.table_row = s.table.stride(0);
    call.table_head = s.table.size(1) > 1 ? s.table.stride(1) : 0;
    call.distances = static_cast<std::int32_t>(s.table.size(0));
  }
  call.content_bias = s.content_bias.as<const float>();
  call.position_bias = s.position_bias.as<const float>();
  call.span = s.span.as<const float>();
  call.first_key = s.first_key.as<const std::int32_t>();
  call.scale = static_cast<float>(s.scale);
  call.longest_span = static_cast<float>(s.longest_span);
  call.ramp = static_cast<float>(s.ramp);
  call.keep_scale = 1.0f / (1.0f - s.dropout.p);
  call.kept = KeptProbabilities(s);
  call.batch = static_cast<std::int32_t>(s.q.size(0));
  call.n_q = static_cast<std::int32_t>(s.q.size(1));
  call.heads = static_cast<std::int32_t>(s.q.size(2));
  call.size = static_cast<std::int32_t>(s.q.size(3));
  call.n_k = static_cast<std::int32_t>(s.k.size(1));
  call.value_size = static_cast<std::int32_t>(v.size(3));
  call.window = static_cast<std::int32_t>(s.window);
  call.self = s.self;
  call.query_tiles = pieces.query_tiles;
  call.chunks = pieces.chunks;
  call.bands = pieces.bands;
  for (std::int32_t h = 0; h < call.heads; ++h)
    call.step[h] = s.dilation.empty() ? 1 : std::min(s.dilation[static_cast<std::size_t>(h)], call.n_k);
  return call;
}

bool takes_hopper(const DistanceScores& s, const Call& call) {
  const bool takes = hopper_takes(s, call.value_size) && is_hopper() && distance::sm90::can_map(call);
  if (s.path == AttentionPath::sm90 && !takes)
    throw std::runtime_error("the sm90 kernels do not support this GPU or this attention");
  return takes;
}

template <class T>
void run_forward(const DistanceScores& s, const Call& call, bool hopper, const Launch& launch) {
  if constexpr (sizeof(T) == 2)
    if (hopper) return distance::sm90::forward<T>(call, launch);
  portable::forward<T>(PortableCall(call, BoundsView(s.bounds)), launch);
}

template <class T>
void run_backward(const DistanceScores& s, const Call& call, bool hopper, bool with_table, const Launch& launch) {
  if constexpr (sizeof(T) == 2)
    if (hopper) return distance::sm90::backward<T>(call, launch);
  const PortableCall clamped(call, BoundsView(s.bounds));
  portable::dq<T>(clamped, launch);
  portable::dkdv<T>(clamped, launch);
  if (with_table) distance::dtable<T>(clamped, launch);
}

}  // namespace

void distance_attention(const DistanceAttentionArgs& args, const Launch& launch) {
  const ScratchPieces pieces(args, args.scratch.data());
  Call call = call_of(args.scores, args.v, pieces, {&args.o});
  call.o = HeadMatrix(args.o);
  call.lse = args.lse.as<float>();
  with_gpu_type(args.v.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const bool hopper = takes_hopper(args.scores, call);
    if (hopper)
      call.content = call.position = call.q;  // the kernel adds the biases
    else
      distance::biased_queries<T>(call, launch);
    run_forward<T>(args.scores, call, hopper, launch);
  });
}

void distance_attention_backward(const DistanceAttentionBackwardArgs& args, const Launch& launch) {
  const ScratchPieces pieces(args, args.scratch.data());
  Call call = call_of(args.scores, args.v, pieces, {&args.o, &args.dout, &args.dq, &args.dk, &args.dv});
  call.o = HeadMatrix(args.o);
  call.dout = HeadMatrix(args.dout);
  call.dq = HeadMatrix(args.dq);
  call.dk = HeadMatrix(args.dk);
  call.dv = HeadMatrix(args.dv);
  call.lse = args.lse.as<float>();
  call.delta = pieces.delta;
  call.bias_sums = pieces.bias_sums;
  call.table_sums = pieces.table_sums;
  attention_delta(args.o, args.dout, pieces.delta, launch);
  const bool hopper = takes_hopper(args.scores, call);
  if (hopper) {
    call.score_gradients = pieces.score_gradients;
    call.probabilities = pieces.probabilities;
    call.saved_units = pieces.saved_units;
  }
  with_gpu_type(args.v.dtype(), [&](auto zero) {
    using T = decltype(zero);
    distance::biased_queries<T>(call, launch);
    run_backward<T>(args.scores, call, hopper, args.dtable.given(), launch);
  });
  distance::add_bias_sums(call, args.dcontent_bias.as<float>(), args.dposition_bias.as<float>(), args.dspan.as<float>(),
                          launch);
  if (args.dtable.given()) distance::add_table_sums(call, args.dtable, launch);
}

}  // namespace longstride::kernels::cuda
