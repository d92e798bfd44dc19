#include "datasets/prepare/tokens/encode_split.h"

#include <algorithm>
#include <atomic>
#include <future>
#include <memory>
#include <vector>

#include "framework/core/device/host_limits.h"
#include "framework/core/text/utf8.h"

namespace longstride {
namespace {

constexpr std::int64_t piece_bytes = std::int64_t{1} << 20;

// A part of a document that is encoded by itself.
struct Part {
  std::string text;
  bool ends_document = false;
  std::vector<std::uint16_t> tokens = {};
};

bool continues_character(char byte) { return (static_cast<std::uint8_t>(byte) & 0xC0) == 0x80; }

// Splits may cut a character, whose bytes a model without bytes cannot have.
void cut_broken_ends(std::string& text) {
  std::size_t begin = 0;
  while (begin < std::min<std::size_t>(3, text.size()) && continues_character(text[begin])) ++begin;
  if (utf8_length(text, begin) > 0) text.erase(0, begin);
  for (std::size_t back = 1; back <= std::min<std::size_t>(3, text.size()); ++back) {
    const std::size_t at = text.size() - back;
    if (continues_character(text[at])) continue;
    if (utf8_length(text, at) == 0) text.resize(at);
    break;
  }
}

std::string read_text(const SequenceSet& set, std::int64_t begin, std::int64_t count) {
  std::string text(static_cast<std::size_t>(count), '\0');
  set.read(0, begin, count, reinterpret_cast<std::uint8_t*>(text.data()));
  return text;
}

// The parts of a split in order.
class Parts {
 public:
  Parts(const SequenceSet& set, const PieceTable& pieces) : set_(set), pieces_(pieces) {
    const auto ends = set.documents(0);
    ends_.assign(ends.begin(), ends.end());
    if (ends_.empty()) ends_ = {0, set.length(0)};
  }
  bool done() const { return at_ == ends_.back(); }
  Part next() {
    while (ends_[document_ + 1] == at_) ++document_;
    const std::int64_t end = ends_[document_ + 1];
    Part part{read_text(set_, at_, std::min(piece_bytes + 4, end - at_))};
    part.text.resize(place_to_cut(part.text, static_cast<std::size_t>(piece_bytes), pieces_.joins_words()));
    at_ += std::ssize(part.text);
    part.ends_document = at_ == end;
    const bool outer = at_ == ends_.back() || at_ == std::ssize(part.text);
    if (outer && !pieces_.has_bytes()) cut_broken_ends(part.text);
    return part;
  }

 private:
  const SequenceSet& set_;
  const PieceTable& pieces_;
  std::vector<std::int64_t> ends_;
  std::size_t document_ = 0;
  std::int64_t at_ = 0;
};

// Encodes some parts of a text in threads, while the caller reads the next ones and writes those before.
class Encoders {
 public:
  explicit Encoders(const TextIds& one) {
    for (int i = 0; i < std::min(usable_processors(), 32); ++i) encoders_.push_back(one.another());
  }
  // Bytes that keep all threads busy, even if some parts take longer.
  std::int64_t bytes() const { return 3 * piece_bytes * std::ssize(encoders_); }
  void start(std::vector<Part>& parts) {
    next_ = 0;
    for (const auto& encoder : encoders_)
      threads_.push_back(std::async(std::launch::async, [&, one = encoder.get()] {
        for (std::size_t i = next_++; i < parts.size(); i = next_++) one->encode(parts[i].text, parts[i].tokens);
      }));
  }
  void finish() {
    for (auto& thread : threads_) thread.wait();
    for (auto& thread : threads_) thread.get();  // if there are several errors, the first thread's
    threads_.clear();
  }

 private:
  std::vector<std::unique_ptr<TextIds>> encoders_;
  std::atomic<std::size_t> next_ = 0;
  std::vector<std::future<void>> threads_;  // the last, so that they end first
};

}  // namespace

void encode_split(const Dataset& text, SplitId split, const PieceTable& pieces, const TextIds& encoder,
                  DatasetWriter& writer, const std::function<void(std::int64_t)>& done) {
  DataConfig config;
  if (!text.info().documents.empty()) config.documents = Documents::separate;
  const auto set = text.split(split_names[static_cast<std::size_t>(split)], config);
  if (set->sequences() == 0 || set->length(0) == 0) return;
  Parts all(*set, pieces);
  std::vector<Part> parts;
  Encoders encoders(encoder);
  const auto read = [&] {
    std::vector<Part> some;
    for (std::int64_t left = encoders.bytes(); left > 0 && !all.done(); left -= std::ssize(some.back().text))
      some.push_back(all.next());
    return some;
  };
  parts = read();
  encoders.start(parts);
  while (!parts.empty()) {
    std::vector<Part> next = read();
    encoders.finish();
    std::swap(parts, next);
    encoders.start(parts);
    for (const Part& part : next) {
      writer.append_tokens(split, part.tokens, std::ssize(part.text));
      if (part.ends_document && config.documents == Documents::separate) writer.end_document(split);
      done(std::ssize(part.text));
    }
  }
}

std::function<bool(std::string&)> lines_to_train_on(const Dataset& text) {
  constexpr std::int64_t all = std::int64_t{4} << 20, each = std::int64_t{64} << 10;
  constexpr std::size_t longest = 2000;
  const auto set = text.split("train", true);  // documents, joined
  const std::int64_t length = set->length(0), blocks = std::max<std::int64_t>(1, std::min(all, length) / each);
  struct State {
    std::int64_t block = 0;
    std::string rest;
  };
  auto state = std::make_shared<State>();
  return [=](std::string& line) {
    line.clear();
    while (line.empty()) {
      if (state->rest.empty()) {
        if (state->block == blocks) return false;
        const std::int64_t begin = state->block++ * length / blocks;
        state->rest = read_text(*set, begin, std::min(length <= all ? length / blocks + blocks : each, length - begin));
      }
      const std::size_t end = std::min(state->rest.find('\n'), place_to_cut(state->rest, longest, false));
      for (std::size_t at = 0; at < end; ++at)
        if (const std::size_t bytes = utf8_length(state->rest, at); bytes > 0 && state->rest[at] != '\0')
          line.append(state->rest, at, bytes), at += bytes - 1;
      state->rest.erase(0, end + (end < state->rest.size() && state->rest[end] == '\n' ? 1 : 0));
    }
    return true;
  };
}

}  // namespace longstride
