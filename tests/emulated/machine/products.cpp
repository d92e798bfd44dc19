#include "tests/emulated/machine/products.h"

#include <array>
#include <deque>
#include <map>
#include <memory>
#include <utility>

#include "tests/emulated/machine/block.h"

namespace longstride::emulated {
namespace {

struct Pending {
  Share shares[128];
  unsigned arrived = 0;
  Product compute;
};
struct Warpgroup {
  std::map<std::uint64_t, Pending> products;  // by number
  std::uint64_t done = 0;
};
struct Thread {
  std::uint64_t started = 0;
  std::deque<std::uint64_t> groups;  // for each open group, the number of products started by its end
};
std::map<unsigned, Warpgroup> warpgroups;
std::map<unsigned, Thread> threads;

}  // namespace

void product(const Share& share, Product compute) {
  const unsigned thread = thread_index().x;
  Warpgroup& group = warpgroups[thread / 128];
  const std::uint64_t number = threads[thread].started++;
  Pending& pending = group.products[number];
  pending.shares[thread % 128] = share;
  if (thread % 128 == 0) pending.compute = std::move(compute);
  if (++pending.arrived < 128) return;
  later(&group, [&group, number] {
    const auto found = group.products.find(number);
    found->second.compute(found->second.shares);
    group.products.erase(found);
    ++group.done;
    announce(&group);
  });
}
void products_committed() {
  Thread& thread = threads[thread_index().x];
  thread.groups.push_back(thread.started);
}
void products_await(unsigned pending_groups) {
  const unsigned index = thread_index().x;
  Thread& thread = threads[index];
  Warpgroup& group = warpgroups[index / 128];
  while (thread.groups.size() > pending_groups) {
    const std::uint64_t number = thread.groups.front();
    wait_for(&group, [&] { return group.done >= number; });
    thread.groups.pop_front();
  }
}
void forget_products() {
  warpgroups.clear();
  threads.clear();
}

}  // namespace longstride::emulated
