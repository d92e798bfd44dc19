#include "datasets/prepare/copies.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <unordered_map>

#include "datasets/formats/byte_input.h"
#include "framework/core/errors.h"
#include "framework/core/text/numbers.h"

namespace longstride {
namespace {

// Groups of files that may have the same content: their numbers, rising. Files of their own size are in none.
std::vector<std::int64_t> alike(const std::vector<Fingerprint>& files) {
  std::unordered_map<std::uint64_t, std::int64_t> count;
  const auto key = [](const Fingerprint& f) {
    return f.head ^ (static_cast<std::uint64_t>(f.bytes) * 0x9E3779B97F4A7C15u);
  };
  count.reserve(files.size());
  for (const Fingerprint& f : files) ++count[key(f)];
  std::vector<std::int64_t> out;
  for (std::size_t i = 0; i < files.size(); ++i)
    if (files[i].bytes > 0 && count[key(files[i])] > 1) out.push_back(static_cast<std::int64_t>(i));
  return out;
}

}  // namespace

std::uint64_t head_of(std::string_view first) {
  return std::hash<std::string_view>()(first.substr(0, Fingerprint::head_bytes));
}

Fingerprint fingerprint_of(const std::string& path) {
  const FileBlob blob(path);
  std::string head(static_cast<std::size_t>(std::min<std::uint64_t>(Fingerprint::head_bytes, blob.size())), '\0');
  blob.read(0, head.data(), head.size());
  return {static_cast<std::int64_t>(blob.size()), head_of(head)};
}

Copies::Copies(const std::vector<Fingerprint>& files, Duplicates rule,
               const std::function<std::vector<std::string>(const std::vector<std::int64_t>&)>& sha256_of,
               const std::function<std::string(std::int64_t)>& name_of)
    : rule_(rule), first_(files.size()), taken_(files.size(), 1) {
  std::iota(first_.begin(), first_.end(), std::int64_t{0});
  const std::vector<std::int64_t> candidates = alike(files);
  if (candidates.empty()) return;
  const std::vector<std::string> sums = sha256_of(candidates);
  std::unordered_map<std::string, std::int64_t> seen;
  for (std::size_t c = 0; c < candidates.size(); ++c) {
    const std::int64_t i = candidates[c];
    const auto [at, fresh] = seen.emplace(sums[c], i);
    if (fresh) continue;
    if (copies_++ == 0) example_ = fmt::format("{} is a copy of {}", name_of(i), name_of(at->second));
    first_[static_cast<std::size_t>(i)] = at->second;
    taken_[static_cast<std::size_t>(i)] = 0;
    if (rule != Duplicates::drop) ++taken_[static_cast<std::size_t>(at->second)];
  }
  if (copies_ > 0 && rule == Duplicates::refuse)
    throw user_error("{}{}; remove it, or allow copies with --duplicates keep or drop", example_,
                     copies_ > 1 ? fmt::format(", and there {} {}", copies_ == 2 ? "is" : "are",
                                               counted(copies_ - 1, "more copy", "more copies"))
                                 : "");
}

std::string Copies::note(const char* what) const {
  if (copies_ == 0) return "";
  return fmt::format("copies: {} of {} {}, as {}; {}", thousands(copies_), thousands(files()), what, example_,
                     rule_ == Duplicates::drop
                         ? "they are left out"
                         : "they go into the split of the first (--duplicates drop leaves them out)");
}

std::string Copies::record() const {
  if (copies_ == 0) return "";
  return fmt::format("; copies: {}, {}", thousands(copies_),
                     rule_ == Duplicates::drop ? "left out" : "in the split of the first");
}

UserError counts_split_copies(const Copies& copies, const std::string& where, const std::string& split,
                              const std::array<std::int64_t, 3>& nearest) {
  return user_error(
      "{}: --split {} divides copies from each other ({}); give {},{},{}, fractions, or leave copies out with "
      "--duplicates drop",
      where, split, copies.example(), nearest[0], nearest[1], nearest[2]);
}

void warn_of_shared(const Copies& copies, std::int64_t across, const char* what, Duplicates rule,
                    const PrepareOutput& output) {
  if (rule == Duplicates::drop) return output.say(copies.note(what));
  if (across == 0 || !output.warn) return;
  output.warn(fmt::format(
      "copies in another of the splits that are given: {} of {} {}, as {}, so scores are too good; leave them out with "
      "--duplicates drop",
      thousands(across), thousands(copies.files()), what, copies.example()));
}

}  // namespace longstride
