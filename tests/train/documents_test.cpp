// Training on documents that do not mix: resuming and micro-batches change nothing, and padding has no part in the
// loss.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/stream_run.h"
#include "tests/support/temporary_directory.h"

namespace longstride::test::documents_test {
namespace {

// Each document is a sequence.
class Pieces final : public SequenceSet {
 public:
  std::int64_t sequences() const override { return std::ssize(documents_.documents(0)) - 1; }
  std::int64_t length(std::int64_t s) const override { return at(s + 1) - at(s); }
  void read(std::int64_t s, std::int64_t offset, std::int64_t length, std::uint8_t* out) const override {
    documents_.read(0, at(s) + offset, length, out);
  }

 private:
  std::int64_t at(std::int64_t s) const { return documents_.documents(0)[static_cast<std::size_t>(s)]; }
  Text documents_{3000, true};
};

struct DocumentRun {
  DocumentRun(std::int64_t micro, bool padded, const std::string& resumed = "")
      : train(stream_training(micro)),
        model(std::make_unique<Decoder>(config(padded))),
        comm(make_single_communicator()),
        source(make_batch_source(padded ? std::shared_ptr<const SequenceSet>(std::make_shared<Pieces>())
                                        : std::make_shared<Text>(3000, true),
                                 config(padded).context, train.seed, "text", default_objective(), padded)),
        step(*model, train, *comm, Device::cpu) {
    if (resumed.empty())
      step.start();
    else
      step.resume(resumed);
  }
  static DecoderConfig config(bool padded) {
    DecoderConfig c = toy_config();
    c.recompute = Recompute::none;
    c.dropout = 0.2;
    c.documents = {true, true, padded};
    return c;
  }
  double go(std::int64_t steps) {
    const BatchLayout& layout = step.state().layout();
    std::vector<std::uint8_t> block(layout.bytes());
    for (const std::int64_t end = step.step() + steps; step.step() < end;) {
      source->read(step.step(), train.global_batch, 0, layout.at(block.data()));
      step.run(block.data());
    }
    return step.report().loss;
  }
  void save(const std::string& run) {
    CheckpointState state;
    step.describe(step.report(), state);
    step.with_host_tensors([&](const TrainingTensors& t) { save_checkpoint(run, state, t, 0); });
  }
  std::string bits() {
    std::string all;
    step.with_host_tensors([&](const TrainingTensors& t) {
      for (const Tensor& flat : {t.masters, t.m, t.v}) all.append(flat.as<char>(), flat.bytes());
    });
    return all;
  }

  TrainConfig train;
  std::unique_ptr<Model> model;
  std::unique_ptr<Communicator> comm;
  std::unique_ptr<BatchSource> source;
  TrainingStep step;
};

TEST(DocumentTraining, ResumesWithTheSameBits) {
  for (const bool padded : {false, true}) {
    const testing::TemporaryDirectory folder;
    DocumentRun whole(2, padded), first(2, padded);
    whole.go(6);
    first.go(3);
    first.save(folder.path());
    DocumentRun second(2, padded, folder.path());
    second.go(3);
    EXPECT_TRUE(whole.bits() == second.bits()) << padded;
  }
}

TEST(DocumentTraining, MicroBatchesGiveTheLossOfTheWholeBatch) {
  for (const bool padded : {false, true}) {
    DocumentRun whole(4, padded), parts(1, padded);
    for (int s = 0; s < 4; ++s) {
      const double loss = whole.go(1);
      EXPECT_TRUE(std::isfinite(loss) && loss > 1);
      EXPECT_NEAR(parts.go(1), loss, 1e-5 * loss) << padded << " at " << s;
    }
  }
}

}  // namespace
}  // namespace longstride::test::documents_test
