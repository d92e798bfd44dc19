#include "framework/train/evaluate/replaced_futures.h"

#include <algorithm>
#include <cmath>

#include "framework/core/errors.h"

namespace longstride {

ReplacedFutures::ReplacedFutures(std::shared_ptr<const SequenceSet> sequences, std::int64_t context,
                                 std::int64_t windows)
    : from_(std::move(sequences)), context_(context) {
  EvaluationConfig config;
  config.context = context;
  std::vector<EvaluationWindow> whole = evaluation_windows(*from_, config);
  std::erase_if(whole, [&](const EvaluationWindow& window) { return window.length < context; });
  const std::int64_t all = std::ssize(whole), count = std::min(windows, all);
  if (count < 2)
    throw user_error(
        "two windows of {} bytes are needed to replace one's future, but the split has {} and {} may be read", context,
        all, windows);
  for (std::int64_t i = 0; i < count; ++i)
    windows_.push_back(whole[static_cast<std::size_t>((2 * i + 1) * all / (2 * count))]);
}

void ReplacedFutures::read(std::int64_t sequence, std::int64_t offset, std::int64_t length, std::uint8_t* out) const {
  const std::int64_t number = sequence / (1 + positions()), changed = sequence % (1 + positions()),
                     kept = changed == 0 ? context_ : position(changed - 1) + 1;
  const auto copy = [&](std::int64_t of, std::int64_t begin, std::int64_t end) {
    const EvaluationWindow& window = windows_[static_cast<std::size_t>(of % windows())];
    if (begin < end)
      from_->read(window.sequence, window.start + begin, end - begin, out + (begin - offset) * token_bytes());
  };
  copy(number, offset, std::min(offset + length, kept));
  copy(number + 1, std::max(offset, kept), offset + length);
}

ReplacedFutures::Leak ReplacedFutures::leak(const std::vector<float>& losses) const {
  Leak leak{windows(), positions()};
  for (std::int64_t sequence = 0; sequence < sequences(); ++sequence) {
    const std::int64_t changed = sequence % (1 + positions());
    if (changed == 0) continue;
    const auto loss = [&](std::int64_t of) {
      return static_cast<double>(losses[static_cast<std::size_t>(of * context_ + position(changed - 1))]);
    };
    const double change = std::abs(loss(sequence) - loss(sequence - changed)) / std::log(2.0);
    leak.mean += change / static_cast<double>(windows() * positions());
    leak.largest = std::max(leak.largest, change);
  }
  return leak;
}

}  // namespace longstride
