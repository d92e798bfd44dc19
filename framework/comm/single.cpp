#include <unistd.h>

#include <cstring>

#include "framework/comm/communicator.h"

namespace longstride {
namespace {

class SingleCommunicator final : public Communicator {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::string host() const override {
    char name[256] = "localhost";
    ::gethostname(name, sizeof(name) - 1);
    return name;
  }
  int local_rank() const override { return 0; }
  int local_size() const override { return 1; }
  void all_reduce_sum(float*, std::int64_t) override {}
  void all_reduce_sum(double*, std::int64_t) override {}
  void reduce_scatter_sum(float*, std::int64_t) override {}
  void reduce_scatter_sum(double*, std::int64_t) override {}
  void all_gather(void*, std::int64_t) override {}
  void all_to_all(const void* from, void* to, std::int64_t each) override {
    if (each > 0) std::memcpy(to, from, static_cast<std::size_t>(each));
  }
  void broadcast(void*, std::int64_t, int) override {}
  void barrier() override {}
  bool any(bool mine) override { return mine; }
  std::unique_ptr<Communicator> split(int) override { return make_single_communicator(); }
};

}  // namespace

std::unique_ptr<Communicator> make_single_communicator() { return std::make_unique<SingleCommunicator>(); }

}  // namespace longstride
