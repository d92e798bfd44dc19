#include "framework/comm/collectives_nccl.h"

#include <cuda_runtime.h>
#include <nccl.h>

#include <exception>
#include <mutex>

#include "framework/core/errors.h"

namespace longstride {
namespace {

ncclDataType_t type_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::f32:
      return ncclFloat32;
    case Dtype::f64:
      return ncclFloat64;
    case Dtype::bf16:
      return ncclBfloat16;
    case Dtype::f16:
      return ncclFloat16;
    default:
      break;
  }
  LONGSTRIDE_CHECK(false, "NCCL cannot sum {}", kernels::name_of(dtype));
  return ncclFloat32;
}

class NcclCollectives final : public Collectives {
 public:
  explicit NcclCollectives(Communicator& group)
      : rank_(group.rank()), size_(group.size()), self_(fmt::format("rank {} ({})", rank_, group.host())) {
    ncclUniqueId id = {};
    ncclResult_t made = ncclSuccess;
    if (rank_ == 0) made = ncclGetUniqueId(&id);
    if (group.any(made != ncclSuccess))
      throw CommunicationError(self_ + ": NCCL cannot create an id: " + last_error(made));
    group.broadcast(&id, sizeof(id), 0);
    check_now(ncclCommInitRank(&comm_, size_, id, rank_), "ncclCommInitRank");
  }

  // Does not wait: either every rank has finished its work, or the job is ending.
  ~NcclCollectives() override {
    std::lock_guard lock(mutex_);
    if (comm_ == nullptr) return;
    if (std::uncaught_exceptions() > 0)
      ncclCommAbort(comm_);
    else
      ncclCommDestroy(comm_);
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  void all_reduce_sum(const Tensor& values, void* stream) override {
    check_now(ncclAllReduce(values.data(), values.data(), elements(values), type_of(values.dtype()), ncclSum, comm_,
                            of(stream)),
              "ncclAllReduce");
  }

  void reduce_scatter_sum(const Tensor& values, void* stream) override {
    const std::size_t each = piece(values);
    check_now(ncclReduceScatter(values.data(), mine(values), each, type_of(values.dtype()), ncclSum, comm_, of(stream)),
              "ncclReduceScatter");
  }

  void all_gather(const Tensor& values, void* stream) override {
    const std::size_t each = piece(values);
    check_now(ncclAllGather(mine(values), values.data(), each, type_of(values.dtype()), comm_, of(stream)),
              "ncclAllGather");
  }

  void all_to_all(const Tensor& from, const Tensor& to, void* stream) override {
    LONGSTRIDE_CHECK(from.bytes() == to.bytes() && from.contiguous() && to.contiguous(), "{} to {} between {} ranks",
                     from.shape().text(), to.shape().text(), size_);
    const std::size_t bytes = piece(from) * bytes_of(from.dtype());
    check_now(ncclGroupStart(), "ncclGroupStart");
    for (int r = 0; r < size_; ++r) {
      const std::size_t at = static_cast<std::size_t>(r) * bytes;
      check_now(ncclSend(from.as<char>() + at, bytes, ncclUint8, r, comm_, of(stream)), "ncclSend");
      check_now(ncclRecv(to.as<char>() + at, bytes, ncclUint8, r, comm_, of(stream)), "ncclRecv");
    }
    check_now(ncclGroupEnd(), "ncclGroupEnd");
  }

  void check() override {
    std::lock_guard lock(mutex_);
    if (comm_ == nullptr) return;
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = ncclCommGetAsyncError(comm_, &state);
    check_now(asked, "ncclCommGetAsyncError");
    check_now(state, "an exchange in progress");
  }

  void abort() override {
    std::lock_guard lock(mutex_);
    if (comm_ != nullptr) ncclCommAbort(comm_);
    comm_ = nullptr;
  }

 private:
  static cudaStream_t of(void* stream) { return static_cast<cudaStream_t>(stream); }
  static std::size_t elements(const Tensor& t) { return static_cast<std::size_t>(t.count()); }
  std::size_t piece(const Tensor& values) const {
    LONGSTRIDE_CHECK(values.count() % size_ == 0, "{} values for {} ranks", values.count(), size_);
    return elements(values) / static_cast<std::size_t>(size_);
  }
  char* mine(const Tensor& values) const {
    return values.as<char>() + static_cast<std::size_t>(rank_) * piece(values) * bytes_of(values.dtype());
  }

  std::string last_error(ncclResult_t result) const {
    const char* more = ncclGetLastError(comm_);
    return std::string(ncclGetErrorString(result)) + (more != nullptr && *more != '\0' ? std::string(": ") + more : "");
  }
  void check_now(ncclResult_t result, const char* what) const {
    if (result != ncclSuccess && result != ncclInProgress)
      throw CommunicationError(fmt::format("{}: {} failed: {}", self_, what, last_error(result)));
  }

  int rank_, size_;
  std::string self_;
  ncclComm_t comm_ = nullptr;
  std::mutex mutex_;  // check and abort come from another thread
};

}  // namespace

bool built_with_nccl() { return true; }

std::unique_ptr<Collectives> make_nccl_collectives(Communicator& group) {
  return std::make_unique<NcclCollectives>(group);
}

}  // namespace longstride
