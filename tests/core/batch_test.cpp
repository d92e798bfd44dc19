#include "framework/core/batch.h"

#include <gtest/gtest.h>

#include <vector>

#include "framework/core/errors.h"

namespace longstride {
namespace {

constexpr BatchFields everything{.wide = true, .targets = true, .weights = true, .starts = true};

TEST(Batch, TokensAloneAreNothingButTheirBytes) {
  const BatchLayout layout({}, 3, 70);
  EXPECT_EQ(layout.bytes(), 210U);
  std::vector<std::byte> block(layout.bytes());
  const Batch batch = layout.at(block.data());
  EXPECT_EQ(batch.tokens.data(), block.data());
  EXPECT_EQ(batch.tokens.dtype(), Dtype::u8);
  EXPECT_FALSE(batch.targets.given() || batch.weights.given() || batch.starts.given());
  EXPECT_EQ(batch.predicted().data(), block.data());
}

TEST(Batch, FieldsAreAlignedAndDoNotOverlap) {
  const BatchLayout layout(everything, 3, 70);
  std::vector<std::byte> block(layout.bytes());
  const Batch batch = layout.at(block.data());
  const std::byte* end = block.data();
  for (const Tensor* field : {&batch.tokens, &batch.targets, &batch.weights, &batch.starts}) {
    ASSERT_TRUE(field->given());
    EXPECT_GE(field->as<std::byte>(), end);
    EXPECT_EQ(static_cast<std::size_t>(field->as<std::byte>() - block.data()) % BatchLayout::alignment, 0U);
    end = field->as<std::byte>() + field->bytes();
  }
  EXPECT_EQ(end, block.data() + block.size());
  EXPECT_EQ(batch.tokens.dtype(), Dtype::u16);
  EXPECT_EQ(batch.predicted().data(), batch.targets.data());
  EXPECT_EQ(layout.at(nullptr).starts.shape(), batch.starts.shape());
}

TEST(Batch, ARowPredictsItsBytesFromThoseBeforeThem) {
  const BatchLayout layout(everything, 2, 3);
  std::vector<std::byte> block(layout.bytes());
  const Batch batch = layout.at(block.data());
  const std::uint8_t bytes[] = {5, 6, 255};
  write_row(batch, 0, bytes, 9, true);
  write_row(batch, 1, bytes, 9, false);
  const auto* tokens = batch.tokens.as<const std::uint16_t>();
  const auto* targets = batch.targets.as<const std::uint16_t>();
  EXPECT_EQ(std::vector<int>(targets, targets + 6), (std::vector<int>{5, 6, 255, 5, 6, 255}));
  EXPECT_EQ(std::vector<int>(tokens + 1, tokens + 6), (std::vector<int>{5, 6, 9, 5, 6}));
  EXPECT_EQ(batch.starts.as<std::uint8_t>()[0], 1);
  EXPECT_EQ(batch.starts.as<std::uint8_t>()[1], 0);
  EXPECT_EQ(batch.weights.as<float>()[5], 1.0f);
}

TEST(Batch, ARowThatBeginsWithADocumentStarts) {
  const BatchLayout layout({.groups = true, .starts = true}, 1, 4);
  std::vector<std::byte> block(layout.bytes());
  const Batch batch = layout.at(block.data());
  const std::int64_t ends[] = {0, 3, 8, 8, 20};
  for (std::int64_t offset = 0; offset < 16; ++offset) {
    batch.starts.as<std::uint8_t>()[0] = 0;
    write_groups(batch, 0, {ends, offset}, 4);
    EXPECT_EQ(batch.starts.as<std::uint8_t>()[0], offset == 0 || offset == 3 || offset == 8) << offset;
    write_groups(batch, 0, {{}, offset}, 4);
    EXPECT_EQ(batch.groups.as<std::int32_t>()[3], 0);
  }
  batch.starts.as<std::uint8_t>()[0] = 1;
  write_groups(batch, 0, {ends, 1}, 4);
  EXPECT_EQ(batch.starts.as<std::uint8_t>()[0], 1);
}

TEST(Batch, ASliceHasTheSameRowsOfEveryField) {
  const BatchLayout layout(everything, 4, 6);
  std::vector<std::byte> block(layout.bytes());
  const Batch batch = layout.at(block.data()), part = batch.slice(1, 3);
  EXPECT_EQ(part.rows(), 2);
  EXPECT_EQ(part.weights.as<float>(), batch.weights.as<float>() + 6);
  EXPECT_EQ(part.starts.as<std::uint8_t>(), batch.starts.as<std::uint8_t>() + 1);
  EXPECT_THROW(batch.cut(2), InternalError);
  const Batch halves = BatchLayout({.weights = true}, 4, 6).at(block.data()).cut(2);
  EXPECT_EQ(halves.tokens.shape(), Shape({8, 3}));
  EXPECT_EQ(halves.weights.shape(), Shape({8, 3}));
}

// A row's class is one target, whatever the row's length.
TEST(Batch, RowsMayBeAskedAsAWhole) {
  const BatchFields fields{.targets = true, .weights = true, .asked = 1};
  EXPECT_EQ(fields.losses(6), 1);
  EXPECT_EQ(BatchFields{}.losses(6), 6);
  const BatchLayout layout(fields, 4, 6);
  std::vector<std::byte> block(layout.bytes());
  const Batch batch = layout.at(block.data());
  EXPECT_EQ(batch.tokens.shape(), Shape({4, 6}));
  EXPECT_EQ(batch.targets.shape(), Shape({4, 1}));
  EXPECT_EQ(batch.weights.shape(), Shape({4, 1}));
  EXPECT_EQ(batch.slice(1, 3).targets.shape(), Shape({2, 1}));
  EXPECT_THROW(batch.cut(2), InternalError);
}

}  // namespace
}  // namespace longstride
