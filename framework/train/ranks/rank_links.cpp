#include "framework/train/ranks/rank_links.h"

#include "framework/train/ranks/gradient_exchange.h"

namespace longstride {
namespace {

// Exchanges while planning.
class NothingMoves final : public Collectives {
 public:
  NothingMoves(int rank, int size) : rank_(rank), size_(size) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void all_reduce_sum(const Tensor&, void*) override {}
  void reduce_scatter_sum(const Tensor&, void*) override {}
  void all_gather(const Tensor&, void*) override {}
  void all_to_all(const Tensor&, const Tensor&, void*) override {}

 private:
  int rank_, size_;
};

}  // namespace

bool exchanges(const ParallelConfig& config, int ranks) { return ranks > 1 || config.exchange_alone; }

RankLinks::RankLinks(Communicator& comm, const ParallelConfig& config, const Batching& batching, Device device)
    : rank_(comm.rank()) {
  if (!exchanges(config, comm.size())) return;
  if (batching.sequence_ranks > 1) {
    near_ = comm.split(batching.group_of(rank_));
    group_ = make_collectives(*near_, device);
  }
  all_ = make_collectives(comm, device);
  overlapped_ = overlaps(config, comm, device);
}

RankLinks::RankLinks(int rank, int ranks, const ParallelConfig& config, const Batching& batching) : rank_(rank) {
  if (!exchanges(config, ranks)) return;
  if (batching.sequence_ranks > 1)
    group_ = std::make_unique<NothingMoves>(batching.index_of(rank), batching.sequence_ranks);
  all_ = std::make_unique<NothingMoves>(rank, ranks);
}

void RankLinks::check() const {
  for (Collectives* ranks : {all_.get(), group_.get()})
    if (ranks != nullptr) ranks->check();
}

void RankLinks::abort() const {
  for (Collectives* ranks : {all_.get(), group_.get()})
    if (ranks != nullptr) ranks->abort();
}

}  // namespace longstride
