#include "framework/comm/watchdog/watchdog_rules.h"

#include <fmt/format.h>

#include <algorithm>

namespace longstride {
namespace {

// All ranks waiting at one point may just be a long step. They may wait for `patience` times the hang time, or for
// `longest_steps` times the longest step so far; until the run has shown how long its steps are, for
// `patience_at_first` times the hang time.
constexpr double patience_at_first = 24, patience = 4, longest_steps = 10;
constexpr int moves_to_know = 16;

}  // namespace

std::string silent_peers(const std::vector<WatchdogPeer>& peers, double time, double hang) {
  const auto silence = [&](const WatchdogPeer& p) { return p.left ? 0.0 : time - p.heard; };
  const bool any = std::any_of(peers.begin(), peers.end(), [&](const WatchdogPeer& p) { return silence(p) > hang; });
  if (!any) return "";
  std::string names;
  int count = 0;
  double longest = 0;
  for (const WatchdogPeer& p : peers) {
    if (silence(p) < 0.8 * hang) continue;
    longest = std::max(longest, silence(p));
    if (++count <= 8) names += fmt::format("{}rank {} ({})", count == 1 ? "" : ", ", p.rank, p.host);
  }
  if (count > 8) names += fmt::format(" and {} more", count - 8);
  return fmt::format("{} {} not answered for {:.0f} s: stopped, or {} host or the network to it is down", names,
                     count == 1 ? "has" : "have", longest, count == 1 ? "its" : "their");
}

std::string Standstill::find(const WatchdogPeer& own, const std::vector<WatchdogPeer>& peers, double time, double hang,
                             bool expected) {
  std::vector<const WatchdogPeer*> all = {&own};
  for (const WatchdogPeer& p : peers) all.push_back(&p);
  moved_.resize(all.size());
  const auto ahead = *std::max_element(
      all.begin(), all.end(), [](const WatchdogPeer* a, const WatchdogPeer* b) { return a->entered < b->entered; });
  std::int64_t signs = 0;
  for (std::size_t r = 0; r < all.size(); ++r) {
    const WatchdogPeer& p = *all[r];
    signs += p.signs;
    if (p.signs != moved_[r].signs || p.entered == ahead->entered || !expected) moved_[r] = {p.signs, time};
    if (time - moved_[r].behind_since > hang)
      return fmt::format("rank {} ({}) hangs: rank {} ({}) and others have waited for it for {:.0f} s", p.rank, p.host,
                         ahead->rank, ahead->host, time - moved_[r].behind_since);
  }
  if (!expected) all_signs_ = -1;
  return expected ? of_all(signs, time, hang, own) : "";
}

std::string Standstill::of_all(std::int64_t signs, double time, double hang, const WatchdogPeer& own) {
  if (signs != all_signs_) {
    if (all_signs_ >= 0) longest_ = std::max(longest_, time - all_since_), ++moves_;
    all_signs_ = signs;
    all_since_ = time;
  }
  const double least = (moves_ < moves_to_know ? patience_at_first : patience) * hang;
  if (time - all_since_ <= std::max(least, longest_steps * longest_)) return "";
  return fmt::format("rank {} ({}) and all other ranks hang at the same point: no step has ended for {:.0f} s",
                     own.rank, own.host, time - all_since_);
}

}  // namespace longstride
