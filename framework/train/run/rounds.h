// Work between two steps that all ranks end together, in rounds: after each the ranks tell each other whether they have
// more to do and whether they were asked to stop.
//
//   Rounds rounds(comm, stop_requested);
//   do {
//     if (there is more here) work a little;
//   } while (rounds.another(there is more here));
//   if (rounds.stopped()) ...   // on every rank, or on none
#pragma once
#include <functional>
#include <utility>

#include "framework/comm/communicator.h"

namespace longstride {

class Rounds {
 public:
  // Without `stop`, which must then be absent on all ranks, they do not wait for each other.
  Rounds(Communicator& comm, std::function<bool()> stop) : comm_(comm), stop_(std::move(stop)) {}

  bool another(bool more_here) {
    if (!stop_) return more_here;
    float any[2] = {more_here ? 1.0f : 0.0f, stop_() ? 1.0f : 0.0f};
    comm_.all_reduce_sum(any, 2);
    const bool more = any[0] > 0;
    stopped_ = more && any[1] > 0;
    return more && !stopped_;
  }
  bool stopped() const { return stopped_; }  // before all was done

 private:
  Communicator& comm_;
  const std::function<bool()> stop_;
  bool stopped_ = false;
};

}  // namespace longstride
