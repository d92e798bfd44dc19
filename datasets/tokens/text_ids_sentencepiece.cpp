#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <span>
#include <tuple>
#include <unordered_map>

#include "datasets/tokens/text_ids.h"
#include "datasets/tokens/words.h"
#include "framework/core/errors.h"
#include "framework/core/text/printable.h"
#include "framework/core/text/utf8.h"

namespace longstride {
namespace {

using Processor = sentencepiece::SentencePieceProcessor;

// Bytes that SentencePiece can take: a run of UTF-8 without its own sign for a space; or those that it cannot take.
struct Run {
  std::size_t bytes = 0;
  bool plain = true;
};

Run first_run(std::string_view text) {
  Run run;
  const auto taken = [&](std::size_t at) {
    const std::size_t bytes = utf8_length(text, at);
    return bytes > 0 && !text.substr(at).starts_with(PieceTable::space) && text[at] != '\0' ? bytes : 0;
  };
  run.plain = taken(0) > 0;
  while (run.bytes < text.size()) {
    const std::size_t bytes = taken(run.bytes);
    if ((bytes > 0) != run.plain) break;
    run.bytes += std::max<std::size_t>(bytes, 1);
  }
  return run;
}

// The library's message, without its place in the source.
std::string reason(const sentencepiece::util::Status& status) {
  const std::string text = status.ToString();
  const std::size_t end = text.rfind("] ");
  return printable(end == std::string::npos ? text : text.substr(end + 2));
}

// A word and its ids in one cache line.
struct alignas(64) Known {
  std::uint8_t length = 0, count = 0;
  std::array<char, 36> word{};
  std::array<std::uint16_t, 13> ids{};

  bool is(std::string_view other) const { return std::string_view(word.data(), length) == other; }
  static bool holds(std::string_view other, std::span<const std::uint16_t> of_other) {
    return other.size() <= sizeof word && of_other.size() <= std::tuple_size_v<decltype(ids)>;
  }
  static Known of(std::string_view other, std::span<const std::uint16_t> of_other) {
    Known out;
    out.length = static_cast<std::uint8_t>(other.size()), out.count = static_cast<std::uint8_t>(of_other.size());
    std::copy(other.begin(), other.end(), out.word.begin());
    std::copy(of_other.begin(), of_other.end(), out.ids.begin());
    return out;
  }
};

// The words that occurred last, for all threads: each place has the last word of those whose hash leads to it. A text
// has few different words, and each takes the library some microseconds.
class KnownWords {
 public:
  bool find(std::string_view word, std::uint64_t hash, Known& out) {
    const std::size_t at = place(hash);
    const std::lock_guard lock(changing_[at % changing_.size()]);
    if (!words_[at].is(word)) return false;
    out = words_[at];
    return true;
  }
  void keep(const Known& word, std::uint64_t hash) {
    const std::size_t at = place(hash);
    const std::lock_guard lock(changing_[at % changing_.size()]);
    words_[at] = word;
  }

 private:
  static constexpr int bits = 18;
  static std::size_t place(std::uint64_t hash) { return hash >> (64 - bits); }

  std::array<std::mutex, 64> changing_;
  std::vector<Known> words_ = std::vector<Known>(std::size_t{1} << bits);
};

class PieceIds final : public TextIds {
 public:
  PieceIds(std::shared_ptr<const Processor> processor, const PieceTable& pieces, std::string where,
           std::shared_ptr<KnownWords> words)
      : processor_(std::move(processor)), pieces_(pieces), where_(std::move(where)), words_(std::move(words)) {
    puts_space_ = begins_with_space("a");
  }

  void encode(std::string_view text, std::vector<std::uint16_t>& out) override {
    while (!text.empty()) {
      const std::size_t length = pieces_.joins_words() ? first_line(text) : first_word(text);
      encode_known(text.substr(0, length), out);
      text.remove_prefix(length);
    }
  }
  std::unique_ptr<TextIds> another() const override {
    return std::make_unique<PieceIds>(processor_, pieces_, where_, words_);
  }

 private:
  void encode_known(std::string_view word, std::vector<std::uint16_t>& out) {
    if (!Known::holds(word, {})) return encode_anew(word, out);
    const std::uint64_t hash = std::hash<std::string_view>{}(word);
    Known& own = own_[hash % own_.size()];
    if (!own.is(word) && !words_->find(word, hash, own)) {
      const auto before = static_cast<std::ptrdiff_t>(out.size());
      encode_anew(word, out);
      const std::span<const std::uint16_t> ids(out.begin() + before, out.end());
      if (Known::holds(word, ids)) words_->keep(own = Known::of(word, ids), hash);
      return;
    }
    out.insert(out.end(), own.ids.data(), own.ids.data() + own.count);
  }

  void encode_anew(std::string_view word, std::vector<std::uint16_t>& out) {
    if (!pieces_.has_bytes()) {
      for (std::size_t at = 0; at < word.size(); at += utf8_length(word, at))
        if (utf8_length(word, at) == 0)
          throw user_error(
              "{}: has bytes that are no UTF-8, near '{}', for which the model has no pieces; convert the "
              "text to UTF-8 first",
              where_, printable(std::string(word.substr(at > 20 ? at - 20 : 0, 40))));
      return encode_plain(word, out);
    }
    while (!word.empty()) {
      const Run run = first_run(word);
      const std::string_view part = word.substr(0, run.bytes);
      if (run.plain && part != "\n")
        encode_plain(part, out);
      else
        for (const char byte : part)
          out.push_back(static_cast<std::uint16_t>(std::max(pieces_.of_byte(static_cast<std::uint8_t>(byte)), 0)));
      word.remove_prefix(run.bytes);
    }
  }

  // Behind a line feed, which is a piece of its own, no space is put.
  void encode_plain(std::string_view part, std::vector<std::uint16_t>& out) const {
    std::size_t skipped = 0;
    std::vector<int> ids;
    if (puts_space_ && pieces_.has_bytes()) {
      std::string behind_feed(1, '\n');
      behind_feed.append(part);
      ids = ids_of(behind_feed);
      const auto feed =
          std::find(ids.begin(), ids.begin() + std::min<std::ptrdiff_t>(2, std::ssize(ids)), pieces_.of_byte('\n'));
      skipped = static_cast<std::size_t>(feed - ids.begin()) + 1;
      if (skipped > 2 || feed == ids.end()) skipped = 0, ids = ids_of(std::string(part));
    } else {
      ids = ids_of(std::string(part));
    }
    for (std::size_t i = skipped; i < ids.size(); ++i) out.push_back(static_cast<std::uint16_t>(ids[i]));
  }

  std::vector<int> ids_of(const std::string& text) const {
    std::vector<int> ids;
    if (const auto status = processor_->Encode(text, &ids); !status.ok())
      throw user_error("{}: SentencePiece cannot encode with it: {}", where_, reason(status));
    for (const int id : ids)
      if (id < 0 || id >= pieces_.size())
        throw user_error("{}: SentencePiece gives id {}, which the model does not have", where_, id);
    return ids;
  }

  bool begins_with_space(const char* text) const {
    const std::vector<int> ids = ids_of(text);
    return !ids.empty() && pieces_.text(ids.front()).starts_with(' ');
  }

  std::shared_ptr<const Processor> processor_;
  const PieceTable& pieces_;
  std::string where_;
  bool puts_space_ = false;
  std::shared_ptr<KnownWords> words_;
  std::vector<Known> own_ = std::vector<Known>(std::size_t{1} << 16);  // this thread's
};

// The lines of a text, as the trainer asks for them.
class Lines final : public sentencepiece::SentenceIterator {
 public:
  explicit Lines(const std::function<bool(std::string&)>& next) : next_(next) { Next(); }
  bool done() const override { return done_; }
  void Next() override { done_ = !next_(line_); }
  const std::string& value() const override { return line_; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  const std::function<bool(std::string&)>& next_;
  std::string line_;
  bool done_ = false;
};

}  // namespace

bool encodes_text() { return true; }

void check_encodes_text() {}

std::unique_ptr<TextIds> make_text_ids(const std::string& model, const PieceTable& pieces, const std::string& where) {
  auto processor = std::make_shared<Processor>();
  if (const auto status = processor->LoadFromSerializedProto(model); !status.ok())
    throw user_error("{}: SentencePiece refuses it: {}; choose the .model file that its training wrote", where,
                     reason(status));
  if (processor->GetPieceSize() != pieces.size())
    throw user_error("{}: SentencePiece finds {} pieces in it, but it has {}; choose another model", where,
                     processor->GetPieceSize(), pieces.size());
  return std::make_unique<PieceIds>(std::move(processor), pieces, where, std::make_shared<KnownWords>());
}

std::string train_pieces(std::int64_t vocabulary, const std::function<bool(std::string&)>& next) {
  Lines lines(next);
  std::string model;
  // The number of threads is part of the result, so it is no property of the machine.
  const auto status = sentencepiece::SentencePieceTrainer::Train(
      std::unordered_map<std::string, std::string>{{"model_type", "bpe"},
                                                   {"vocab_size", std::to_string(vocabulary)},
                                                   {"normalization_rule_name", "identity"},
                                                   {"add_dummy_prefix", "false"},
                                                   {"remove_extra_whitespaces", "false"},
                                                   {"byte_fallback", "true"},
                                                   {"bos_id", "-1"},
                                                   {"eos_id", "-1"},
                                                   {"num_threads", "4"},
                                                   {"max_sentence_length", "65536"},
                                                   {"minloglevel", "2"}},
      &lines, &model);
  if (!status.ok())
    throw user_error(
        "--train-vocabulary is {}, which SentencePiece cannot make of this text: {}; choose a smaller one, "
        "or give more text",
        vocabulary, reason(status));
  return model;
}

}  // namespace longstride
