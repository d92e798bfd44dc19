// Draws of large vocabularies by a block, compared with the CPU's.
#include "kernels/draw/draw.h"

#include <gtest/gtest.h>

#include <vector>

#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/philox.h"

namespace longstride::kernels {
namespace {

struct DrawnTokens {
  std::vector<std::uint16_t> ids, previous;
  std::vector<float> logs;
};

DrawnTokens drawn_tokens(void (*draw)(const DrawArgs&, const Launch&), std::vector<float>& logits, std::int64_t batch,
                         const Sampling& sampling) {
  DrawnTokens out{std::vector<std::uint16_t>(static_cast<std::size_t>(3 * batch), 7),
                  std::vector<std::uint16_t>(static_cast<std::size_t>(batch)),
                  std::vector<float>(static_cast<std::size_t>(3 * batch))};
  for (std::int64_t position = 0; position < 3; ++position) {
    DrawArgs args;
    args.logits = {logits.data(), Dtype::f32, {batch, std::ssize(logits) / batch}};
    args.bytes = {out.ids.data(), Dtype::u16, {batch, 3}};
    args.previous = {out.previous.data(), Dtype::u16, {batch, 1}};
    args.log_probabilities = {out.logs.data(), Dtype::f32, {batch, 3}};
    args.prompted = 1;
    args.sampling = sampling;
    args.first_sequence = 5;
    args.position = position;
    draw(args, {});
  }
  return out;
}

TEST(EmulatedDraw, OfLargeVocabulariesIsTheCpus) {
  cuda::emulation = {1, 2};
  constexpr std::int64_t batch = 4;
  for (const std::int64_t vocabulary : {257, 1500}) {
    std::vector<float> logits;
    for (std::int64_t i = 0; i < batch * vocabulary; ++i)
      logits.push_back(
          static_cast<float>(philox(3, static_cast<std::uint64_t>(i), 0, domain_of(Purpose::test, 0)).word[0] >> 22) /
              64 -
          8);
    for (const Sampling& sampling : {Sampling{}, Sampling{0}, Sampling{0.7, 0, 1, 5}, Sampling{1, 7}, Sampling{1, 1},
                                     Sampling{1, 0, 0.6}, Sampling{1, 0, 0}, Sampling{1.3, 50, 0.9, 4}}) {
      const DrawnTokens found = drawn_tokens(cuda::draw, logits, batch, sampling),
                        expected = drawn_tokens(cpu::draw, logits, batch, sampling);
      const auto where = ::testing::Message() << vocabulary << ", " << sampling.temperature << " " << sampling.top_k
                                              << " " << sampling.top_p;
      EXPECT_EQ(found.ids, expected.ids) << where;
      EXPECT_EQ(found.previous, expected.previous) << where;
      for (std::size_t i = 0; i < found.logs.size(); ++i) ASSERT_NEAR(found.logs[i], expected.logs[i], 1e-4) << where;
    }
  }
}

}  // namespace
}  // namespace longstride::kernels
