// Training of a model that remembers, on rows that are read in order.
#pragma once
#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "datasets/dataset.h"
#include "framework/models/model_config.h"
#include "framework/train/step/training_step.h"
#include "tests/support/rounding.h"
#include "tests/support/save_checkpoint.h"
#include "tests/support/toy_model.h"

namespace longstride::test {

class Text : public SequenceSet {
 public:
  explicit Text(std::int64_t bytes, bool has_documents = false) : bytes_(toy_tokens(bytes)) {
    if (!has_documents) return;
    for (std::int64_t end = 0; end < bytes; end += 1 + end % 31) ends_.push_back(end);
    ends_.push_back(bytes);
  }
  std::int64_t sequences() const override { return 1; }
  std::int64_t length(std::int64_t) const override { return static_cast<std::int64_t>(bytes_.size()); }
  void read(std::int64_t, std::int64_t offset, std::int64_t length, std::uint8_t* out) const override {
    std::copy_n(bytes_.begin() + offset, length, out);
  }
  std::span<const std::int64_t> documents(std::int64_t) const override { return ends_; }

 private:
  std::vector<std::uint8_t> bytes_;
  std::vector<std::int64_t> ends_;
};

constexpr std::int64_t windows_of_stream = 5;  // windows of a row; its part of the text has some bytes more

// With a learning rate of `still` no weight changes, so what rows remember follows from the data alone.
constexpr double still = 1e-37;

inline TrainConfig stream_training(std::int64_t micro = 0, double lr = 1e-2, std::int64_t rows = 4) {
  TrainConfig c;
  c.steps = 20;
  c.global_batch = rows;
  c.micro_batch = micro;
  c.lr = lr;
  c.weight_decay = 0;
  c.warmup = 2;
  return c;
}

class StreamRun {
 public:
  // This rank's part of the run; by itself without `ranks`.
  StreamRun(const TrainConfig& settings, const ModelConfig& config, Device device = Device::cpu,
            Communicator* ranks = nullptr)
      : train(settings),
        model(config.make_model()),
        alone_(make_single_communicator()),
        comm(ranks != nullptr ? *ranks : *alone_),
        source(make_stream_source(std::make_shared<Text>(train.global_batch * (windows_of_stream * config.context + 7),
                                                         config.documents.separate),
                                  config.context, train.global_batch, "text")),
        step(*model, train, comm, device) {}

  void go(std::int64_t steps) {
    const BatchLayout& layout = step.state().layout();
    std::vector<std::uint8_t> block(layout.bytes());
    for (const std::int64_t end = step.step() + steps; step.step() < end;) {
      source->read(step.step(), train.global_batch, first_row(), layout.at(block.data()));
      step.run(block.data());
    }
  }
  // The states of this rank's rows, in host memory.
  class States {
   public:
    States(const RowStates& states, std::string bytes) : states_(states), bytes_(std::move(bytes)) {}
    RowStates rows() {
      const Tensor host(bytes_.data(), Dtype::u8, {std::ssize(bytes_)});
      return states_.at(host, host);
    }
    std::string bytes_of(const State& state) {
      const Tensor now = rows().now(state);
      return {now.as<const char>(), now.bytes()};
    }

   private:
    RowStates states_;
    std::string bytes_;
  };
  States states() { return {step.state().states, remembered()}; }
  std::string remembered() { return to_host(step.state().states.all_now()); }
  // State by state.
  std::vector<double> values() {
    States all = states();
    std::vector<double> out;
    for (const State& state : model->states().all()) {
      const std::string bytes = all.bytes_of(state);
      const auto* begin = reinterpret_cast<const std::byte*>(bytes.data());
      for (const double x : testing::decoded({begin, begin + bytes.size()}, all.rows().now(state).dtype()))
        out.push_back(x);
    }
    return out;
  }
  // The states of this rank's rows [begin, end), one after another.
  std::string remembered(std::int64_t begin, std::int64_t end) {
    States all = states();
    std::string out;
    for (const State& state : model->states().all()) {
      const Tensor t = all.rows().slice(begin, end).now(state);
      out.append(t.as<const char>(), t.bytes());
    }
    return out;
  }
  // And every bit of what a checkpoint would hold besides.
  std::string bits() {
    std::string all = remembered();
    step.with_host_tensors([&](const TrainingTensors& t) {
      for (const Tensor& flat : {t.masters, t.m, t.v}) all.append(flat.as<char>(), flat.bytes());
    });
    return all;
  }
  std::vector<float> gradients() {
    const std::string bytes = to_host(step.state().gradients);
    std::vector<float> out(bytes.size() / sizeof(float));
    std::memcpy(out.data(), bytes.data(), bytes.size());
    return out;
  }
  void save(const std::string& run) {
    CheckpointState state;
    step.describe(step.report(), state);
    step.with_host_tensors([&](const TrainingTensors& t) { save_checkpoint(run, state, t, 0); });
  }
  std::int64_t first_row() const { return step.batching().group_of(comm.rank()) * step.batching().per_rank; }

  TrainConfig train;
  std::unique_ptr<Model> model;

 private:
  std::string to_host(const Tensor& flat) {
    std::string host(flat.bytes(), '\0');
    step.report();
    step.queue().copy_to_host(host.data(), flat.data(), flat.bytes());
    step.queue().synchronize();
    return host;
  }

  std::unique_ptr<Communicator> alone_;

 public:
  Communicator& comm;
  std::unique_ptr<BatchSource> source;
  TrainingStep step;
};

}  // namespace longstride::test
