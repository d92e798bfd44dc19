// Matrix products of an emulated warpgroup: started by all its threads, done in order at random times, awaited by
// groups.
#pragma once
#include <cstdint>
#include <functional>

namespace longstride::emulated {

// One thread's share of a product: its accumulator, and its part of the left operand or that operand's descriptor.
struct Share {
  float* d;
  std::uint32_t a[4];
  std::uint64_t descriptor;
};
using Product = std::function<void(const Share (&)[128])>;

// By the running thread: its next product, the end of a group, and the wait for all but the last groups.
void product(const Share& share, Product compute);
void products_committed();
void products_await(unsigned pending_groups);
// Forgets all that was started. Between blocks.
void forget_products();

}  // namespace longstride::emulated
