#include "kernels/span_projection/span_projection.h"

#include <algorithm>

#include "kernels/base/row_chunks.h"
#include "kernels/base/tensor_checks.h"
#include "kernels/span_projection/read_rows.h"

namespace longstride::kernels {
namespace {

// Everything but the weights. `y` is y or dy.
void check_rows_of(Device device, const DistanceScores& read, const Tensor& x, const Tensor& y) {
  read.check(device);
  check_computes(device, x, "x");
  LONGSTRIDE_CHECK(x.rank() == 3 && y.rank() == 3, "x is {} and y {}, but both must be (batch, n_k, width)",
                   x.shape().text(), y.shape().text());
  const std::int64_t batch = read.k.size(0), n_k = read.k.size(1), heads = read.k.size(2),
                     keys = heads * read.k.size(3);
  check_rows(x, {batch, n_k, x.size(2)}, x.dtype(), "x");
  check_rows(y, {batch, n_k, y.size(2)}, x.dtype(), "y");
  LONGSTRIDE_CHECK(y.size(2) > keys && (y.size(2) - keys) % heads == 0,
                   "{} columns for {} heads with keys of {} elements", y.size(2), heads, read.k.size(3));
}

}  // namespace

void SpanProjectionArgs::check(Device device) const {
  check_rows_of(device, read, x, y);
  check_rows(weight, {y.size(2), x.size(2)}, x.dtype(), "weight");
  if (bias.given()) check_vector(bias, y.size(2), x.dtype(), "bias");
}

void SpanProjectionBackwardArgs::check(Device device) const {
  check_rows_of(device, read, x, dy);
  check_rows(dweight, {dy.size(2), x.size(2)}, exact_type(device, x.dtype()), "dweight");
  if (dbias.given()) check_vector(dbias, dy.size(2), exact_type(device, x.dtype()), "dbias");
}

// Sums of dbias by chunks of rows, of the longest product, which is that of all sequences at once where a head reads
// every row; or the partial sums of dweight.
Tensor SpanProjectionBackwardArgs::scratch_on(Device device) const {
  const std::int64_t rows = x.size(0) * x.size(1);
  if (dbias.given()) return {nullptr, dbias.dtype(), {row_chunks(device, rows).chunks, dbias.count()}};
  if (device == Device::cpu || !cuda::takes_panels(read, x, dy)) return {};
  return {nullptr, Dtype::f32, {ReadRows::most_gradient_blocks, ReadRows::columns * ReadRows::gradient_columns}};
}

std::int64_t first_row(const DistanceScores& read, std::int64_t head) {
  const SeenEntries seen = read.seen_by(head);
  return first_read_row(read.k.size(1) - read.q.size(1), (seen.end - 1) * seen.step);
}

namespace cuda {
namespace {

bool is_matrix_of_tiles(const Tensor& t, std::int64_t n_k) {
  const bool dense = t.stride(2) == 1 && (t.size(0) == 1 || t.stride(0) == n_k * t.stride(1));
  return dense && t.stride(1) % 8 == 0 && reinterpret_cast<std::uintptr_t>(t.data()) % 16 == 0;
}

}  // namespace

bool takes_panels(const DistanceScores& read, const Tensor& x, const Tensor& y) {
  const std::int64_t n_k = x.size(1), in = x.size(2), out = y.size(2);
  if (!read.span.given() || !read.dilation.empty() || x.dtype() == Dtype::f32) return false;
  if (n_k % ReadRows::tile_rows != 0 || in % 64 != 0 || in > 512 || out % ReadRows::columns != 0) return false;
  if (out / ReadRows::columns > ReadRows::most_panels || x.size(0) * n_k >= (std::int64_t{1} << 31)) return false;
  return is_matrix_of_tiles(x, n_k) && is_matrix_of_tiles(y, n_k);
}

}  // namespace cuda
}  // namespace longstride::kernels
