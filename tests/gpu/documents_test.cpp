// Training on a GPU keeps documents apart to the bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <span>
#include <vector>

#include "datasets/dataset.h"
#include "tests/gpu/trained.h"

namespace longstride::test::documents_test {
namespace {

constexpr std::int64_t document_count = 60, longest = 41;

// Each document has four tokens of its own.
class OwnTokens final : public SequenceSet {
 public:
  explicit OwnTokens(std::int64_t changed) {
    for (std::int64_t d = 0; d < document_count; ++d) {
      ends_.push_back(std::ssize(bytes_));
      for (std::int64_t i = 0; i < 1 + 7 * d % longest; ++i)
        bytes_.push_back(static_cast<std::uint8_t>(4 * d + i * i % 4));
    }
    ends_.push_back(std::ssize(bytes_));
    if (changed >= 0) bytes_[static_cast<std::size_t>(changed)] ^= 1;
  }
  std::int64_t sequences() const override { return 1; }
  std::int64_t length(std::int64_t) const override { return std::ssize(bytes_); }
  void read(std::int64_t, std::int64_t offset, std::int64_t count, std::uint8_t* out) const override {
    std::copy_n(bytes_.begin() + offset, count, out);
  }
  std::span<const std::int64_t> documents(std::int64_t) const override { return ends_; }

 private:
  std::vector<std::uint8_t> bytes_;
  std::vector<std::int64_t> ends_;
};

// The gradient of the token table, whose rows are sums at the inputs that the token has, at a step behind others: at
// the first one the output's weights are 0.
std::vector<float> table_gradient(const DecoderConfig& config, std::int64_t changed) {
  const TrainConfig train = train_config(Precision::bf16);
  Trained run(train, Device::cuda, config);
  const BatchLayout& layout = run.step.state().layout();
  std::vector<std::uint8_t> block(layout.bytes());
  run.step.start();
  for (std::int64_t step = 0; step < 4; ++step) {
    const auto text = std::make_shared<OwnTokens>(step == 3 ? changed : -1);
    make_batch_source(text, config.context, train.seed, "text")
        ->read(step, train.global_batch, 0, layout.at(block.data()));
    run.step.run(block.data());
  }
  const std::vector<float> all = run.gradients();
  for (const Parameter& p : run.model.parameters().all())
    if (p.name == "embedding.token.weight") return {all.begin() + p.offset, all.begin() + p.offset + p.shape.count()};
  return {};
}

TEST(DocumentsOnTheGpu, AChangedByteLeavesEveryBitOfOtherDocuments) {
  LONGSTRIDE_NEEDS_GPU();
  DecoderConfig fixed = small_config(), windows = small_config(), dense = small_config();
  windows.attention.parts = {kernels::PartKind::local};
  windows.attention.window = 40;
  dense.attention.parts = {kernels::PartKind::dense};
  for (DecoderConfig config : {fixed, windows, dense}) {
    config.context = 300;
    config.dropout = 0;
    config.documents = {true, true};
    const std::vector<float> before = table_gradient(config, -1);
    int read = 0;
    for (const std::int64_t changed : {250, 611, 700, 1010}) {
      const std::vector<float> after = table_gradient(config, changed);
      ASSERT_EQ(before.size(), after.size());
      std::int64_t touched = -1;
      for (std::size_t row = 0; row < 256; ++row) {
        const auto begin = static_cast<std::ptrdiff_t>(row * 64);
        if (std::equal(before.begin() + begin, before.begin() + begin + 64, after.begin() + begin)) continue;
        const auto document = static_cast<std::int64_t>(row / 4);
        EXPECT_TRUE(touched < 0 || touched == document) << "documents " << touched << " and " << document;
        touched = document;
      }
      read += touched >= 0 ? 1 : 0;
    }
    EXPECT_GT(read, 0) << "no row of the batch has a changed byte";
  }
}

}  // namespace
}  // namespace longstride::test::documents_test
