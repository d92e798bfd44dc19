#include "datasets/prepare/refusals.h"

#include "framework/core/errors.h"
#include "framework/core/text/numbers.h"

namespace longstride {
namespace {

constexpr std::size_t most_listed = 50;
constexpr std::int64_t most_refused = 1000;  // a missing option, such as --fit, refuses all: not worth decoding them

}  // namespace

Refusals::Refusals(const char* kind, bool skip, PrepareNote note) : kind_(kind), skip_(skip), note_(std::move(note)) {}

void Refusals::add(const std::string& why) {
  ++count_;
  if (first_.size() < most_listed) first_.push_back(why);
  if (!skip_ && count_ == 1 && total_ > 1 && note_)
    note_(why.substr(0, why.find(": ")) + ": cannot be used; looking for others before stopping");
  if (!skip_ && count_ == most_refused) finish();
}

std::string Refusals::list() const {
  std::string out;
  for (const std::string& why : first_) out += "\n  " + why;
  const auto more = count_ - static_cast<std::int64_t>(first_.size());
  return more > 0 ? fmt::format("{}\n  and {} more", out, thousands(more)) : out;
}

void Refusals::finish() const {
  if (count_ == 0) return;
  const std::string& first = first_[0];
  if (count_ == 1 && !skip_) throw user_error("{}{}", first, total_ > 1 ? ", or leave it out with --skip-others" : "");
  const std::string name = first.substr(0, first.find(": "));
  if (!skip_)
    throw user_error(
        "{}: is the first of {}{} {} (of {}) that cannot be used; convert or remove them, or leave them out with "
        "--skip-others:{}",
        name, count_ >= most_refused ? "at least " : "", thousands(count_), kind_, thousands(total_), list());
  if (count_ == total_)
    throw user_error("{}: cannot be used{}:{}", name,
                     total_ == 1 ? "" : fmt::format(", and neither can any other of {} {}", thousands(total_), kind_),
                     list());
  if (!note_) return;
  for (const std::string& why : first_) note_("left out: " + why);
  note_(fmt::format("{} of {} {} are left out{}", thousands(count_), thousands(total_), kind_,
                    count_ > static_cast<std::int64_t>(first_.size()) ? "; the first are listed above" : ""));
}

}  // namespace longstride
