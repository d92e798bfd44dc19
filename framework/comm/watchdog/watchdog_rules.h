// When ranks count as lost: what the watchdog concludes from the heartbeats it has received. Times are seconds of one
// clock.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace longstride {

struct WatchdogPeer {
  explicit WatchdogPeer(int r) : rank(r) {}
  int rank;
  std::string host;
  double heard = 0;  // when its last message came
  std::int64_t entered = 0, signs = 0;
  bool left = false;
};

// A sentence that names the peers silent for `hang` seconds, and those lost in the same outage; empty: none.
std::string silent_peers(const std::vector<WatchdogPeer>& peers, double time, double hang);

// Ranks that answer but make no progress.
class Standstill {
 public:
  // `own` is rank 0, the caller. A sentence, or empty.
  std::string find(const WatchdogPeer& own, const std::vector<WatchdogPeer>& peers, double time, double hang,
                   bool expected);

 private:
  struct Moved {
    std::int64_t signs = -1;
    double behind_since = 0;  // without a sign of work, while another rank is ahead
  };
  std::string of_all(std::int64_t signs, double time, double hang, const WatchdogPeer& own);
  std::vector<Moved> moved_;
  std::int64_t all_signs_ = -1;
  double all_since_ = 0, longest_ = 0;
  int moves_ = 0;
};

}  // namespace longstride
