#include "kernels/embedding/embedding.h"

#include "tests/gpu/against_cpu.h"

namespace longstride::test {
namespace {

struct Case {
  std::int64_t batch, seq, width, vocabulary;
  std::vector<std::pair<std::int64_t, std::int64_t>> tables;  // divisor, size
};

const Case cases[] = {
    {1, 1, 64, 256, {{1, 1}}},
    {3, 700, 130, 256, {{64, 11}, {1, 64}}},
    {2, 3072, 256, 256, {{96, 32}, {3, 32}, {1, 3}}},
    {5, 333, 33, 17, {{1, 500}}},  // more rows than positions
    {4, 4096, 512, 256, {{128, 32}, {1, 128}}},
    {2, 100, 96, 256, {}},
    {3, 999, 260, 256, {{37, 27}, {1, 37}}},  // no chunk, piece or warp is full
    {1, 5000, 64, 2, {{1, 5000}}},            // tokens of many pieces
};

// The embedding's tables, or the gradients in them.
struct Tables {
  Array start, token;
  std::vector<Array> positions;
  Tables(const Case& c, std::uint32_t stream)
      : start(Array::normal({c.width}, Dtype::f32, stream)),
        token(Array::normal({c.vocabulary, c.width}, Dtype::f32, stream + 1)) {
    for (const auto& [divisor, size] : c.tables)
      positions.push_back(
          Array::normal({size, c.width}, Dtype::f32, stream + 2 + static_cast<std::uint32_t>(positions.size())));
  }
  void fill(const Case& c, Side side, kernels::EmbeddingArgs& args) {
    args.start = start.view(side);
    args.token_table = token.view(side);
    for (std::size_t i = 0; i < positions.size(); ++i) args.positions[i] = {c.tables[i].first, positions[i].view(side)};
    args.tables = static_cast<int>(positions.size());
  }
};

TEST(EmbeddingCuda, EqualsTheCpu) {
  LONGSTRIDE_NEEDS_GPU();
  for (const Case& c : cases)
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16})
      for (const std::int64_t first : {0, 5}) {
        Tables tables(c, 1);
        Array tokens = Array::bytes_below({c.batch, c.seq}, static_cast<std::uint32_t>(c.vocabulary), 1);
        Array y({c.batch, c.seq, c.width}, dtype);
        compare("embedding", kernels::cpu::embedding, kernels::cuda::embedding,
                [&](Side side) {
                  kernels::EmbeddingArgs args;
                  tables.fill(c, side, args);
                  args.tokens = tokens.view(side);
                  args.first = first;
                  args.y = y.view(side);
                  return args;
                },
                {{"y", &y}});
      }
}

TEST(EmbeddingCuda, BackwardEqualsTheCpuAndAccumulates) {
  LONGSTRIDE_NEEDS_GPU();
  for (const Case& c : cases)
    for (const auto& [dtype, first] :
         {std::pair{Dtype::f32, 0}, std::pair{Dtype::bf16, 0}, std::pair{Dtype::f32, 5}, std::pair{Dtype::f32, 1000}}) {
      Tables gradients(c, 1);
      Array tokens = Array::bytes_below({c.batch, c.seq}, static_cast<std::uint32_t>(c.vocabulary), 1);
      Array dy = Array::normal({c.batch, c.seq, c.width}, dtype, 20);
      const auto bare = [&](Side side) {
        kernels::EmbeddingBackwardArgs args;
        gradients.fill(c, side, args);
        args.tokens = tokens.view(side);
        args.first = first;
        args.y = dy.view(side);
        return args;
      };
      const DeviceArray<float> partials(static_cast<std::size_t>(kernels::cuda::embedding_partials(bare(Side::gpu))));
      std::vector<Named> outputs{{"start", &gradients.start}, {"token", &gradients.token}};
      for (Array& p : gradients.positions) outputs.push_back({"position", &p});
      compare(
          "embedding_backward " + std::to_string(c.width), kernels::cpu::embedding_backward,
          kernels::cuda::embedding_backward,
          [&](Side side) {
            kernels::EmbeddingBackwardArgs args = bare(side);
            args.partials.data = partials.data();
            return args;
          },
          outputs);
    }
}

// One token only, and tokens that come in runs: the slots of a token are ordered, and summed in pieces, in one way.
TEST(EmbeddingCuda, BackwardGivesTheSameBitsTwiceHoweverTokensRepeat) {
  LONGSTRIDE_NEEDS_GPU();
  const Case c{2, 3000, 256, 256, {{50, 60}, {1, 50}}};
  for (const std::uint32_t below : {1u, 3u, 256u}) {
    Array tokens = Array::bytes_below({c.batch, c.seq}, below, 1),
          dy = Array::normal({c.batch, c.seq, c.width}, Dtype::bf16, 20);
    Tables once(c, 1), again(c, 1);
    for (Tables* gradients : {&once, &again}) {
      kernels::EmbeddingBackwardArgs args;
      gradients->fill(c, Side::gpu, args);
      args.tokens = tokens.view(Side::gpu);
      args.y = dy.view(Side::gpu);
      const DeviceArray<float> partials(static_cast<std::size_t>(kernels::cuda::embedding_partials(args)));
      args.partials.data = partials.data();
      kernels::cuda::embedding_backward(args, {});
      kernels::cuda::check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    }
    EXPECT_EQ(once.token.raw(), again.token.raw()) << below;
    for (std::size_t i = 0; i < once.positions.size(); ++i)
      EXPECT_EQ(once.positions[i].raw(), again.positions[i].raw()) << below;
  }
}

}  // namespace
}  // namespace longstride::test
