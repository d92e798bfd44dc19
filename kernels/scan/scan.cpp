#include "kernels/scan/scan.h"

#include "kernels/base/tensor_checks.h"
#include "kernels/scan/scan_scratch.h"

namespace longstride::kernels {
namespace {

void check_state(const Tensor& state, const Shape& shape, Dtype dtype, const char* name) {
  if (!state.given()) return;
  LONGSTRIDE_CHECK(state.shape() == shape, "the scan's {} is {}, but must be {}", name, state.shape().text(),
                   shape.text());
  check_vector(state, shape.count(), dtype, name);
}

template <class Args>
void check_form(const Args& args) {
  const bool delta = args.form == ScanForm::delta;
  LONGSTRIDE_CHECK(args.beta.given() == delta, "the scan's form delta needs beta, which other forms do not take");
  LONGSTRIDE_CHECK(!delta || !args.denominator.given(), "the scan's form delta cannot be normalised");
  LONGSTRIDE_CHECK(args.form != ScanForm::gated || args.decay.given(), "the scan's form gated needs a decay");
  LONGSTRIDE_CHECK(args.form != ScanForm::sum || !args.decay.given(),
                   "the scan's form sum takes no decay: form gated does");
  LONGSTRIDE_CHECK(args.direction == Direction::past || args.form == ScanForm::sum,
                   "only the scan's form sum has both directions");
}

template <class Args>
void check_scan(Device device, const Args& args) {
  check_form(args);
  const Tensor &q = args.q, &v = args.v;
  check_computes(device, q, "the scan's q");
  LONGSTRIDE_CHECK(q.rank() == 4 && v.rank() == 4 && q.count() > 0 && v.count() > 0,
                   "the scan's q is {} and v {}, but both must be (batch, seq, heads, size) with no size 0",
                   q.shape().text(), v.shape().text());
  const Dtype type = q.dtype(), exact = exact_type(device, type);
  const std::int64_t batch = q.size(0), n = q.size(1), heads = q.size(2);
  check_rows(q, q.shape(), type, "the scan's q");
  check_rows(args.k, q.shape(), type, "the scan's k");
  check_rows(v, {batch, n, heads, v.size(3)}, type, "the scan's v");
  const std::int64_t per_head = batch * n * heads;
  LONGSTRIDE_CHECK(
      !args.decay.given() || args.decay.shape() == q.shape() || args.decay.shape() == Shape({batch, n, heads}),
      "the scan's decay is {}, but must be {}, or without its last dimension", args.decay.shape().text(),
      q.shape().text());
  if (args.decay.given()) check_vector(args.decay, args.decay.count(), exact, "the scan's decay");
  if (args.beta.given()) check_vector(args.beta, per_head, exact, "the scan's beta");
  if (args.begin.given()) check_vector(args.begin, batch * n, Dtype::i32, "the scan's begin");
  if (args.denominator.given()) check_vector(args.denominator, per_head, exact, "the scan's denominator");
  const Shape states{batch * heads, scan_states(device, problem_of(args)), q.size(3),
                     v.size(3) + (args.denominator.given() ? 1 : 0)};
  check_state(args.chunk_states, states, exact, "chunk_states");
}

template <class Args>
void check_ends(Device device, const Args& args, const Tensor& first, const Tensor& last, const char* name_of_first,
                const char* name_of_last) {
  const Shape shape{args.q.size(0), args.q.size(2), args.q.size(3),
                    args.v.size(3) + (args.denominator.given() ? 1 : 0)};
  const Dtype exact = exact_type(device, args.q.dtype());
  check_state(first, shape, exact, name_of_first);
  check_state(last, shape, exact, name_of_last);
  LONGSTRIDE_CHECK(args.direction == Direction::past || (!first.given() && !last.given() && !args.chunk_states.given()),
                   "a scan in both directions has no states");
}

// The gradient is asked for exactly if the tensor is given; that of a decay per head may be left out.
void check_gradient(const Tensor& gradient, const Tensor& of, const char* name) {
  LONGSTRIDE_CHECK(gradient.given() == of.given(), "the scan's {} is given without its tensor, or lacks", name);
  if (of.given()) check_vector(gradient, of.count(), of.dtype(), name);
}

}  // namespace

namespace cpu {
std::size_t scan_scratch_bytes(const ScanArgs&);
std::size_t scan_scratch_bytes(const ScanBackwardArgs&);
}  // namespace cpu

void ScanArgs::check(Device device) const {
  check_scan(device, *this);
  check_rows(o, v.shape(), v.dtype(), "the scan's o");
  check_ends(device, *this, first_state, last_state, "first_state", "last_state");
}

void ScanBackwardArgs::check(Device device) const {
  check_scan(device, *this);
  if (denominator.given()) check_rows(o, v.shape(), v.dtype(), "the scan's o");
  check_rows(dout, v.shape(), v.dtype(), "the scan's dout");
  check_rows(dq, q.shape(), q.dtype(), "the scan's dq");
  check_rows(dk, q.shape(), q.dtype(), "the scan's dk");
  check_rows(dv, v.shape(), v.dtype(), "the scan's dv");
  if (ddecay.given() || decay.rank() == 4) check_gradient(ddecay, decay, "ddecay");
  check_gradient(dbeta, beta, "dbeta");
  check_ends(device, *this, dfirst_state, dlast_state, "dfirst_state", "dlast_state");
  LONGSTRIDE_CHECK(direction == Direction::both || chunk_states.given(), "the scan's backward needs chunk_states");
}

Tensor ScanArgs::scratch_on(Device device) const {
  if (device == Device::cuda) return cuda::ScanScratch(*this).tensor();
  return {nullptr, Dtype::u8, {static_cast<std::int64_t>(cpu::scan_scratch_bytes(*this))}};
}
Tensor ScanBackwardArgs::scratch_on(Device device) const {
  if (device == Device::cuda) return cuda::ScanScratch(*this).tensor();
  return {nullptr, Dtype::u8, {static_cast<std::int64_t>(cpu::scan_scratch_bytes(*this))}};
}

}  // namespace longstride::kernels
