// The embedding's kernels on emulated blocks, compared with the CPU's: sums of rows in fp32, in one order, and
// gradients of whole numbers, whose sums are exact in any.
#include "kernels/embedding/embedding.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/ids.h"
#include "kernels/base/philox.h"

namespace longstride::kernels {
namespace {

struct EmbeddingShape {
  std::int64_t batch, seq, width;
  std::vector<std::pair<std::int64_t, std::int64_t>> tables;  // divisor, size
  bool starts = false;
  std::int64_t first = 0;
  std::int64_t document = 0;  // slots of each; 0: rows have none
  bool restart = false;
  bool own = false;  // slots take their own tokens
  std::int64_t vocabulary = 50;
  std::int64_t band = -1;  // the table has the 20 ids from this one on
};

class Embedded {
 public:
  explicit Embedded(const EmbeddingShape& shape)
      : shape_(shape), tokens_(static_cast<std::size_t>(shape.batch * shape.seq)) {
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      const auto id = static_cast<int>(word(i, 0) % shape.vocabulary);
      tokens_[i] = static_cast<std::uint8_t>(id);
      wide_tokens_.push_back(static_cast<std::uint16_t>(id));
    }
    for (std::int64_t b = 0; b < shape.batch; ++b) starts_.push_back(static_cast<std::uint8_t>(b % 2));
    for (std::int64_t i = 0; i < shape.batch * shape.seq && shape.document > 0; ++i)
      begin_.push_back(static_cast<std::int32_t>(shape.first + i % shape.seq / shape.document * shape.document));
    add_rows(1);
    add_rows(ids());
    for (const auto& table : shape.tables) add_rows(table.second);
  }
  std::vector<float> run(void (*embedding)(const EmbeddingArgs&, const Launch&)) {
    std::vector<float> y(tokens_.size() * static_cast<std::size_t>(shape_.width), -1e30f);
    embedding(args(y), {});
    return y;
  }
  // Those of all tables, which begin with whole numbers.
  std::vector<float> gradients(void (*backward)(const EmbeddingBackwardArgs&, const Launch&)) {
    std::vector<float> dy, all;
    for (std::size_t i = 0; i < tokens_.size() * static_cast<std::size_t>(shape_.width); ++i)
      dy.push_back(static_cast<float>(word(i, 99) % 64) - 31);
    for (std::vector<float>& rows : rows_)
      for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<float>(i % 7);
    EmbeddingBackwardArgs call{args(dy), {}};
    std::vector<float> scratch(static_cast<std::size_t>(call.scratch_on(Device::cuda).count()), NAN);
    call.scratch = Tensor(scratch.data(), Dtype::f32, {std::ssize(scratch)});
    backward(call, {});
    for (const std::vector<float>& rows : rows_) all.insert(all.end(), rows.begin(), rows.end());
    return all;
  }

 private:
  std::int64_t ids() const { return shape_.band < 0 ? shape_.vocabulary : 20; }
  EmbeddingArgs args(std::vector<float>& y) {
    EmbeddingArgs args;
    const bool wide = shape_.vocabulary > 256;
    args.tokens = Tensor(wide ? static_cast<void*>(wide_tokens_.data()) : tokens_.data(), id_type(shape_.vocabulary),
                         {shape_.batch, shape_.seq});
    args.start = Tensor(rows_[0].data(), Dtype::f32, {shape_.width});
    args.token_table = Tensor(rows_[1].data(), Dtype::f32, {ids(), shape_.width});
    args.band = shape_.band;
    for (const auto& [divisor, size] : shape_.tables) {
      std::vector<float>& rows = rows_[static_cast<std::size_t>(args.tables) + 2];
      args.positions[args.tables] = {divisor, Tensor(rows.data(), Dtype::f32, {size, shape_.width})};
      ++args.tables;
    }
    args.scale = 2;
    args.own = shape_.own;
    if (shape_.own || shape_.band > 0) args.start = {};
    if (shape_.starts) args.starts = Tensor(starts_.data(), Dtype::u8, {shape_.batch});
    if (shape_.document > 0) args.begin = Tensor(begin_.data(), Dtype::i32, {shape_.batch, shape_.seq});
    args.restart = shape_.restart;
    args.first = shape_.first;
    args.y = Tensor(y.data(), Dtype::f32, {shape_.batch, shape_.seq, shape_.width});
    return args;
  }
  static std::uint32_t word(std::uint64_t i, std::uint32_t stream) {
    return philox(7, i, stream, domain_of(Purpose::test, 0)).word[0];
  }
  void add_rows(std::int64_t rows) {
    std::vector<float> values(static_cast<std::size_t>(rows * shape_.width));
    const auto stream = static_cast<std::uint32_t>(rows_.size()) + 1;
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(word(i, stream)) * 0x1p-32f;
    rows_.push_back(std::move(values));
  }

  EmbeddingShape shape_;
  std::vector<std::uint8_t> tokens_, starts_;
  std::vector<std::uint16_t> wide_tokens_;
  std::vector<std::int32_t> begin_;
  std::vector<std::vector<float>> rows_;  // the start vector, rows of tokens and of positions
};

// Two multiprocessors have enough with 512 slots for eight slots per warp.
const std::vector<EmbeddingShape>& shapes() {
  static const std::vector<EmbeddingShape> all = {
      {1, 1024, 8, {{1, 32}, {32, 32}}},                     // a warp's slots read one row of the first table
      {3, 231, 20, {{1, 40}, {40, 6}}},                      // and end within a group of them
      {2, 577, 260, {{64, 9}, {4, 16}, {1, 3}}},             // the second table's period is the shortest of 32 or more
      {1, 600, 6, {{5, 7}}},                                 // no packs of four
      {1, 700, 16, {{1, 3}, {200, 4}}},                      // no table is read again in time
      {4, 160, 12, {}},                                      // none at all
      {5, 130, 4, {{1, 33}}, true},                          // rows of a stream
      {1, 800, 8, {{1, 50}, {50, 30}}, false, 77},           // a part of a longer sequence
      {1, 100, 8, {{1, 10}, {10, 10}}},                      // too few slots
      {3, 231, 20, {{1, 231}}, false, 0, 0, false, true},    // own tokens
      {3, 231, 20, {{1, 231}}, false, 0, 70, true, true},    // and documents
      {3, 231, 20, {{1, 40}, {40, 6}}, false, 0, 70, true},  // documents, whose positions restart
      {3, 231, 20, {{1, 40}, {40, 6}}, false, 0, 1},         // or continue
      {1, 800, 8, {{1, 50}, {50, 30}}, false, 77, 33, true},
      {1, 1500, 4, {{1, 1300}}, false, 0, 1400, true},           // more rows than are sorted at a time
      {3, 231, 20, {{1, 40}, {40, 6}}, true, 0, 70, true},       // documents in rows of a stream
      {2, 300, 8, {{1, 40}}, false, 0, 0, false, false, 1300},   // more tokens than are sorted at a time
      {3, 231, 20, {{1, 40}}, true, 0, 0, false, false, 50, 0},  // the first band of a vocabulary, with a start
      {1, 1024, 6, {}, false, 0, 70, false, false, 300, 280},    // and the last, of documents
      {1, 800, 8, {{1, 50}}, false, 77, 0, false, false, 50, 11},
      {3, 231, 20, {}, false, 0, 0, false, true, 50, 30},
  };
  return all;
}

TEST(EmulatedEmbedding, SumsTheRowsThatTheCpuSums) {
  cuda::emulation = {1, 2};
  for (const EmbeddingShape& shape : shapes()) {
    Embedded call(shape);
    EXPECT_EQ(call.run(cuda::embedding), call.run(cpu::embedding)) << shape.batch << " x " << shape.seq;
  }
}

TEST(EmulatedEmbedding, GradientsAreThoseOfTheCpu) {
  for (const EmbeddingShape& shape : shapes()) {
    cuda::emulation = {shape.seq % 2 == 0 ? 1u : 2u, 2};
    Embedded call(shape);
    EXPECT_EQ(call.gradients(cuda::embedding_backward), call.gradients(cpu::embedding_backward))
        << shape.batch << " x " << shape.seq;
  }
}

}  // namespace
}  // namespace longstride::kernels
