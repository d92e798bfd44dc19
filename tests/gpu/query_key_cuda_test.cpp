#include "kernels/query_key/query_key.h"

#include "tests/gpu/against_cpu.h"

namespace longstride::test {
namespace {

using kernels::QueryKeyTransform;

struct Case {
  std::int64_t batch, seq, heads, size;
  QueryKeyTransform transform;
  std::int64_t first = 0;
};

constexpr QueryKeyTransform norm{true, 0}, rotary{false, 10000}, both{true, 10000};

const Case cases[] = {
    {1, 1, 1, 64, both},      {2, 333, 16, 64, both}, {2, 333, 16, 64, norm},
    {2, 333, 16, 64, rotary}, {3, 100, 4, 128, both}, {3, 101, 3, 96, both},
    {2, 77, 5, 32, both},     {2, 77, 6, 8, rotary},  {4, 40, 2, 6, both},  // rows that no pack divides
    {2, 50, 3, 126, both},    {2, 50, 3, 5, norm},    {1, 64, 8, 64, both, (1 << 24) - 64},
};

// Queries and keys as they stand in front of the values: (batch, seq, heads, size) in rows of 3 heads * size.
View in_front(Array& qkv, Side side, const Case& c) {
  View v = qkv.view(side);
  v.rank = 4;
  v.size[2] = c.heads;
  v.size[3] = c.size;
  v.stride[2] = c.size;
  v.stride[3] = 1;
  return v;
}

Array random_rows(const Case& c, Dtype dtype, std::uint32_t stream) {
  return Array::normal({c.batch, c.seq, 3 * c.heads * c.size}, dtype, stream, 0.7);
}

std::string name_of(const Case& c, Dtype dtype) {
  return std::to_string(c.heads) + " heads of " + std::to_string(c.size) + " in " + kernels::name_of(dtype);
}

// The GPU reads the position from its own memory, as while decoding; otherwise from the arguments.
TEST(QueryKeyCuda, EqualsTheCpu) {
  LONGSTRIDE_NEEDS_GPU();
  for (const Case& c : cases)
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f16})
      for (const bool on_gpu : {false, true}) {
        Array qkv = random_rows(c, dtype, 1), y({c.batch, c.seq, c.heads, c.size}, dtype);
        const DeviceArray<std::int64_t> first(std::vector<std::int64_t>{c.first});
        compare("query_key, " + name_of(c, dtype), kernels::cpu::query_key, kernels::cuda::query_key,
                [&](Side side) {
                  kernels::QueryKeyArgs args{c.transform, in_front(qkv, side, c), y.view(side), c.first, nullptr};
                  if (side != Side::gpu || !on_gpu) return args;
                  args.first = -1;
                  args.first_at = first.data();
                  return args;
                },
                {{"y", &y}});
      }
}

TEST(QueryKeyCuda, BackwardEqualsTheCpuInPlaceAndElsewhere) {
  LONGSTRIDE_NEEDS_GPU();
  for (const Case& c : cases)
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f16})
      for (const bool in_place : {false, true}) {
        Array qkv = random_rows(c, dtype, 1), dy = random_rows(c, dtype, 2);
        Array dx = random_rows(c, dtype, 3);  // what stands behind queries and keys must stay
        Array& out = in_place ? dy : dx;
        compare("query_key_backward, " + name_of(c, dtype), kernels::cpu::query_key_backward,
                kernels::cuda::query_key_backward,
                [&](Side side) {
                  return kernels::QueryKeyBackwardArgs{c.transform, in_front(dy, side, c), in_front(qkv, side, c),
                                                       in_front(out, side, c), c.first};
                },
                {{"dx", &out}});
      }
}

}  // namespace
}  // namespace longstride::test
