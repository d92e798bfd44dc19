#include "datasets/prepare/document_cutter.h"

#include <algorithm>
#include <cstring>

namespace longstride {

void DocumentCutter::append(SplitId split, const std::uint8_t* bytes, std::int64_t count) {
  if (rule_.documents == DocumentsAre::marks)
    append_before_marks(split, bytes, count);
  else if (rule_.documents == DocumentsAre::lines)
    append_lines(split, bytes, count);
  else
    write(split, bytes, count);
}

void DocumentCutter::end_file() {
  give_up(held_.size());
  end_document();
}

// As Knuth, Morris and Pratt (1977) do.
void DocumentCutter::find_borders() {
  borders_.assign(rule_.mark.size() + 1, 0);
  for (std::size_t n = 2; n <= rule_.mark.size(); ++n) {
    std::size_t border = borders_[n - 1];
    while (border > 0 && rule_.mark[border] != rule_.mark[n - 1]) border = borders_[border];
    borders_[n] = rule_.mark[border] == rule_.mark[n - 1] ? border + 1 : 0;
  }
}

void DocumentCutter::append_before_marks(SplitId split, const std::uint8_t* bytes, std::int64_t count) {
  const std::string& mark = rule_.mark;
  for (std::int64_t i = 0; i < count;) {
    if (held_.empty()) {
      const void* const found = std::memchr(bytes + i, mark.front(), static_cast<std::size_t>(count - i));
      const std::int64_t next = found == nullptr ? count : static_cast<const std::uint8_t*>(found) - bytes;
      write(split, bytes + i, next - i);
      i = next;
      if (i == count) return;
    }
    while (!held_.empty() && bytes[i] != static_cast<std::uint8_t>(mark[held_.size()]))
      give_up(held_.size() - borders_[held_.size()]);
    if (bytes[i] != static_cast<std::uint8_t>(mark[held_.size()])) continue;  // the same byte again, as text
    held_.push_back(split);
    ++i;
    if (held_.size() < mark.size()) continue;
    held_.clear();
    ++marks_;
    end_document();
  }
}

void DocumentCutter::append_lines(SplitId split, const std::uint8_t* bytes, std::int64_t count) {
  while (count > 0) {
    const void* const found = std::memchr(bytes, '\n', static_cast<std::size_t>(count));
    const std::int64_t line = found == nullptr ? count : static_cast<const std::uint8_t*>(found) - bytes + 1;
    write(split, bytes, line);
    if (found != nullptr) end_document();
    bytes += line, count -= line;
  }
}

void DocumentCutter::give_up(std::size_t held) {
  const auto* const mark = reinterpret_cast<const std::uint8_t*>(rule_.mark.data());
  for (std::size_t i = 0; i < held; ++i) write(held_[i], mark + i, 1);
  held_.erase(held_.begin(), held_.begin() + static_cast<std::ptrdiff_t>(held));
}

void DocumentCutter::write(SplitId split, const std::uint8_t* bytes, std::int64_t count) {
  if (count == 0) return;
  if (split != split_) end_document();
  split_ = split;
  if (rule_.groups != GroupsAre::none)
    groups_.read(bytes, count, writer_.bytes(split_), [&](std::int64_t end) { writer_.end_group(split_, end); });
  writer_.append(split, bytes, count);
}

void DocumentCutter::end_document() {
  if (rule_.documents == DocumentsAre::joined) return;
  if (rule_.groups != GroupsAre::none) writer_.end_group(split_, writer_.bytes(split_));
  writer_.end_document(split_);
  groups_.end_document(writer_.bytes(split_));
}

}  // namespace longstride
