#include "framework/train/evaluate/hidden_leak.h"

#include <algorithm>
#include <cmath>

namespace longstride {
namespace {

struct Place {
  std::int64_t position, target;
};

// Places whose byte the row does not show, with the bits of the byte by their scores.
std::vector<Place> hidden_in(const Batch& row) {
  std::vector<Place> out;
  const auto* tokens = row.tokens.as<const std::uint16_t>();
  const auto* targets = row.targets.as<const std::uint16_t>();
  for (std::int64_t p = 0; p < row.tokens.size(1); ++p)
    if (row.weights.as<const float>()[p] != 0 && tokens[p] != targets[p]) out.push_back({p, targets[p]});
  return out;
}

double bits_of(std::span<const float> scores, std::int64_t answers, const Place& place) {
  const float* own = scores.data() + place.position * answers;
  const double most = static_cast<double>(*std::max_element(own, own + answers));
  double sum = 0;
  for (std::int64_t a = 0; a < answers; ++a) sum += std::exp(static_cast<double>(own[a]) - most);
  return (std::log(sum) + most - static_cast<double>(own[place.target])) / std::log(2.0);
}

class Comparison {
 public:
  explicit Comparison(RowReader& reader) : reader_(reader) {}

  // The row as it is written, and its hidden places.
  void begin() {
    places_ = hidden_in(reader_.row());
    answers_ = 0;
    before_ = bits();
  }
  const std::vector<Place>& places() const { return places_; }
  // Adds the changes at places that pass, with the row as it is now.
  template <class Passes>
  void add(ReplacedFutures::Leak& leak, Passes passes) {
    const std::vector<double> now = bits();
    for (std::size_t i = 0; i < now.size(); ++i) {
      if (!passes(places_[i])) continue;
      const double change = std::abs(now[i] - before_[i]);
      leak.mean += change, ++leak.positions;
      leak.largest = std::max(leak.largest, change);
    }
  }

 private:
  std::vector<double> bits() {
    const std::span<const float> scores = reader_.scores();
    answers_ = std::ssize(scores) / reader_.row().tokens.size(1);
    std::vector<double> out;
    for (const Place& place : places_) out.push_back(bits_of(scores, answers_, place));
    return out;
  }

  RowReader& reader_;
  std::vector<Place> places_;
  std::int64_t answers_ = 0;
  std::vector<double> before_;
};

// Every id outside the group of the middle hidden place becomes another; false: it is the only group.
bool change_other_groups(const Batch& row, std::int32_t kept) {
  if (!row.groups.given()) return false;
  bool changed = false;
  for (std::int64_t p = 0; p < row.tokens.size(1); ++p) {
    if (row.groups.as<const std::int32_t>()[p] == kept) continue;
    auto& token = row.tokens.as<std::uint16_t>()[p];
    token = static_cast<std::uint16_t>((token + 1) % ids::bytes);
    changed = true;
  }
  return changed;
}

}  // namespace

ReplacedFutures::Leak leak_of_hidden(RowReader& reader, const Objective& objective, const SequenceSet& sequences,
                                     std::int64_t windows) {
  EvaluationConfig config;
  config.context = reader.row_bytes();
  config.max_windows = windows, config.spread = true;
  ReplacedFutures::Leak leak;
  const std::vector<EvaluationWindow> all = evaluation_windows(sequences, config);
  for (std::size_t w = 0; w < all.size(); ++w) {
    const EvaluationWindow& window = all[w];
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(window.length));
    sequences.read(window.sequence, window.start, window.length, bytes.data());
    const RowBytes of = sequences.row(window.sequence, window.start, window.length, bytes.data());
    const RowKey key{0, static_cast<std::int64_t>(w)};
    Comparison comparison(reader);
    reader.write(of, window.length, key);
    comparison.begin();
    if (comparison.places().empty()) continue;
    ++leak.windows;
    const Place middle = comparison.places()[comparison.places().size() / 2];
    const std::int32_t* const groups = reader.row().groups.as<const std::int32_t>();
    const std::int32_t kept = groups != nullptr ? groups[middle.position] : 0;
    if (change_other_groups(reader.row(), kept))
      comparison.add(leak, [&](const Place& place) { return groups[place.position] == kept; });
    for (const Place& place : comparison.places()) {
      auto& byte = bytes[static_cast<std::size_t>(place.position - objective.leading())];
      byte = objective.replaced(byte);
    }
    reader.write(of, window.length, key);
    comparison.add(leak, [](const Place&) { return true; });
  }
  if (leak.positions > 0) leak.mean /= static_cast<double>(leak.positions);
  return leak;
}

}  // namespace longstride
