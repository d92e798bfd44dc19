#include "framework/comm/collectives.h"

#include "framework/comm/collectives_nccl.h"
#include "framework/core/errors.h"

namespace longstride {
namespace {

class HostCollectives final : public Collectives {
 public:
  explicit HostCollectives(Communicator& group) : group_(group) {}
  int rank() const override { return group_.rank(); }
  int size() const override { return group_.size(); }

  void all_reduce_sum(const Tensor& values, void*) override {
    kernels::with_float_type(values.dtype(), [&](auto zero) {
      using T = decltype(zero);
      group_.all_reduce_sum(values.as<T>(), values.count());
    });
  }
  void reduce_scatter_sum(const Tensor& values, void*) override {
    LONGSTRIDE_CHECK(values.count() % size() == 0, "{} values for {} ranks", values.count(), size());
    kernels::with_float_type(values.dtype(), [&](auto zero) {
      using T = decltype(zero);
      group_.reduce_scatter_sum(values.as<T>(), values.count() / size());
    });
  }
  void all_gather(const Tensor& values, void*) override {
    LONGSTRIDE_CHECK(values.count() % size() == 0, "{} values of {} ranks", values.count(), size());
    group_.all_gather(values.data(), static_cast<std::int64_t>(values.bytes()) / size());
  }
  void all_to_all(const Tensor& from, const Tensor& to, void*) override {
    LONGSTRIDE_CHECK(from.bytes() == to.bytes() && from.count() % size() == 0, "{} bytes to {} between {} ranks",
                     from.bytes(), to.bytes(), size());
    group_.all_to_all(from.data(), to.data(), static_cast<std::int64_t>(from.bytes()) / size());
  }

 private:
  Communicator& group_;
};

}  // namespace

std::unique_ptr<Collectives> make_collectives(Communicator& group, Device device) {
  if (device == Device::cuda) return make_nccl_collectives(group);
  return std::make_unique<HostCollectives>(group);
}

}  // namespace longstride
