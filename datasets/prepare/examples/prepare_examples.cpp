// Datasets of generated examples, each a document with its class.
#include <algorithm>
#include <future>
#include <unordered_set>

#include "datasets/prepare/dataset_writer.h"
#include "datasets/prepare/examples/task.h"
#include "datasets/prepare/prepare.h"
#include "datasets/prepare/split_rule.h"
#include "framework/core/device/host_limits.h"
#include "framework/core/errors.h"
#include "framework/core/files/sha256.h"
#include "framework/core/text/numbers.h"

namespace longstride {
namespace {

constexpr std::int64_t most_examples = 10'000'000;

struct Made {
  Example example;
  std::uint32_t attempt = 0;
};

// The first attempt from `attempt` on that makes one.
Made make(const Task& task, std::uint64_t seed, std::int64_t number, std::uint32_t attempt = 0) {
  for (;; ++attempt) {
    Draws draws(seed, number, attempt);
    if (std::optional<Example> example = task.make(draws)) return {*std::move(example), attempt};
  }
}

// `count` examples from number `first` on, in threads.
std::vector<Made> make_several(const Task& task, std::uint64_t seed, std::int64_t first, std::int64_t count,
                               std::int64_t threads) {
  std::vector<Made> out(static_cast<std::size_t>(count));
  std::vector<std::future<void>> running;
  for (std::int64_t t = 0; t < threads; ++t)
    running.push_back(std::async(std::launch::async, [&, t] {
      for (std::int64_t i = t; i < count; i += threads) out[static_cast<std::size_t>(i)] = make(task, seed, first + i);
    }));
  for (std::future<void>& thread : running) thread.get();
  return out;
}

// Examples in order. One that was made before is made anew: twice it would leak from train into test.
class Examples {
 public:
  Examples(const PrepareExamplesConfig& config, std::int64_t count)
      : task_(*config.task), seed_(config.seed), count_(count) {}

  Example next() {
    if (at_ == waiting_.size()) {
      constexpr std::int64_t each = 64;  // per thread: starting one takes as long as some examples
      const std::int64_t threads = std::min(8, usable_processors());
      first_ += std::ssize(waiting_);
      waiting_ = make_several(task_, seed_, first_, std::min(count_ - first_, each * threads), threads);
      at_ = 0;
    }
    Made& made = waiting_[at_];
    const std::int64_t number = first_ + static_cast<std::int64_t>(at_++);
    while (!made_.insert(sha256_of(made.example)).second) made = make(task_, seed_, number, made.attempt + 1);
    return std::move(made.example);
  }

 private:
  static std::string sha256_of(const Example& example) {
    Sha256 sha;
    sha.update(example.bytes.data(), example.bytes.size());
    return sha.hex();
  }

  const Task& task_;
  std::uint64_t seed_;
  std::int64_t count_, first_ = 0;
  std::vector<Made> waiting_;
  std::size_t at_ = 0;
  std::unordered_set<std::string> made_;
};

SplitCounts counts_of(const PrepareExamplesConfig& config, const Task& task) {
  const SplitRule rule = SplitRule::parse(config.split.empty() ? task.split : config.split);
  if (!rule.counted())
    throw user_error("--split is {}, but must be numbers of examples, such as {}", rule.text(), task.split);
  const SplitCounts counts = rule.counts();
  const std::int64_t sum = counts[0] + counts[1] + counts[2];
  if (sum < 1 || sum > most_examples)
    throw user_error("--split is {}, {} examples, but there must be 1 to {}", rule.text(), thousands(sum),
                     thousands(most_examples));
  return counts;
}

}  // namespace

const std::vector<Task>& tasks() {
  static const std::vector<Task> all = {
      {"listops",
       "ListOps: nested operations on digits; the class is the result",
       {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"},
       "96000,2000,2000",
       make_listops},
      {"pathfinder",
       "Pathfinder: pictures of 32 x 32 bytes; the class says if dots end one contour",
       {"two contours", "one contour"},
       "160000,20000,20000",
       make_pathfinder},
  };
  return all;
}

void prepare_examples(const PrepareExamplesConfig& config, const PrepareOutput& output) {
  check_output(output.path, output.replace, {});
  const Task& task = *config.task;
  const SplitCounts counts = counts_of(config, task);
  const FoldersOf folders(output.path);
  DatasetInfo info;
  info.kind = DataKind::bytes;
  info.documents = fmt::format("examples of {}", task.name);
  info.label_names = task.classes;
  DatasetWriter writer(output.path, info, output.replace);
  const std::int64_t sum = counts[0] + counts[1] + counts[2];
  Examples examples(config, sum);
  std::int64_t number = 0, bytes = 0;
  for (const SplitId split : {SplitId::train, SplitId::valid, SplitId::test})
    for (std::int64_t i = 0; i < counts[static_cast<std::size_t>(split)]; ++i, ++number) {
      const Example example = examples.next();
      writer.append(split, example.bytes.data(), std::ssize(example.bytes));
      writer.end_document(split);
      writer.append_labels(split, {&example.label, 1});
      bytes += std::ssize(example.bytes);
      if (output.progress) output.progress(bytes, bytes / (number + 1) * sum);
    }
  writer.commit(fmt::format("{},{},{}: examples drawn by the seed {}", counts[0], counts[1], counts[2], config.seed));
}

}  // namespace longstride
