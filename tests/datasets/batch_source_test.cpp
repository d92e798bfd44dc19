#include <numeric>
#include <set>

#include "datasets/permutation.h"
#include "tests/datasets/support.h"

namespace longstride {
namespace {

// Sequences whose windows begin with their own position: the sequence in one byte and the offset in two.
class Labelled final : public SequenceSet {
 public:
  explicit Labelled(std::vector<std::int64_t> lengths) : lengths_(std::move(lengths)) {}
  std::int64_t sequences() const override { return static_cast<std::int64_t>(lengths_.size()); }
  std::int64_t length(std::int64_t s) const override { return lengths_[static_cast<std::size_t>(s)]; }
  void read(std::int64_t s, std::int64_t offset, std::int64_t count, std::uint8_t* out) const override {
    ASSERT_GE(offset, 0);
    ASSERT_LE(offset + count, length(s)) << "a window crosses the end of file " << s;
    out[0] = static_cast<std::uint8_t>(s);
    out[1] = static_cast<std::uint8_t>(offset >> 8);
    out[2] = static_cast<std::uint8_t>(offset);
  }

 private:
  std::vector<std::int64_t> lengths_;
};

struct Window {
  std::int64_t sequence, offset;
  auto operator<=>(const Window&) const = default;
};

std::vector<Window> rows_of(const BatchSource& source, std::int64_t step, std::int64_t batch, std::int64_t first,
                            std::int64_t count) {
  const auto context = static_cast<std::size_t>(source.context());
  Bytes out(static_cast<std::size_t>(count) * context);
  source.read(step, batch, first, {Tensor(out.data(), Dtype::u8, {count, source.context()})});
  std::vector<Window> windows;
  for (std::size_t r = 0; r < static_cast<std::size_t>(count); ++r)
    windows.push_back({out[r * context], out[r * context + 1] << 8 | out[r * context + 2]});
  return windows;
}

TEST(Permutation, VisitsEveryIndexOnceForAnySize) {
  for (std::uint64_t size : {1, 2, 3, 4, 5, 15, 16, 17, 63, 64, 65, 1000, 4097}) {
    for (std::uint32_t round : {0u, 1u, 77u}) {
      const Permutation order(size, 9, round, kernels::Purpose::data_order);
      std::vector<int> seen(size, 0);
      for (std::uint64_t i = 0; i < size; ++i) {
        ASSERT_LT(order(i), size);
        ++seen[order(i)];
      }
      EXPECT_EQ(seen, std::vector<int>(size, 1)) << "size " << size;
    }
  }
}

TEST(Permutation, DiffersBySeedAndRoundAndPurpose) {
  const auto list = [](std::uint64_t seed, std::uint32_t round, kernels::Purpose purpose) {
    const Permutation order(500, seed, round, purpose);
    std::vector<std::uint64_t> out;
    for (std::uint64_t i = 0; i < 500; ++i) out.push_back(order(i));
    return out;
  };
  const auto data = kernels::Purpose::data_order, split = kernels::Purpose::split;
  EXPECT_EQ(list(1, 0, data), list(1, 0, data));
  const std::set<std::vector<std::uint64_t>> different = {list(1, 0, data), list(2, 0, data), list(1, 1, data),
                                                          list(1, 0, split)};
  EXPECT_EQ(different.size(), 4u);
}

// The image of index 4 is uniform over many rounds (chi-square; the bound is p = 0.001). The sizes need an even and an
// odd number of bits.
TEST(Permutation, MapsAnIndexUniformly) {
  for (const auto& [size, bound] : {std::pair<std::uint64_t, double>{10, 27.9}, {6, 20.5}}) {
    std::vector<int> counts(size, 0);
    for (std::uint32_t round = 0; round < 5000; ++round)
      ++counts[Permutation(size, 3, round, kernels::Purpose::data_order)(4)];
    const double expected = 5000.0 / static_cast<double>(size);
    double chi = 0;
    for (int count : counts) chi += (count - expected) * (count - expected) / expected;
    EXPECT_LT(chi, bound) << "size " << size;
  }
}

TEST(BatchSource, OrderDoesNotDependOnHowRanksDivideTheBatch) {
  const auto source = make_batch_source(std::make_shared<Labelled>(std::vector<std::int64_t>{5003}), 37, 5, "x");
  for (std::int64_t step : {0, 3, 1000}) {
    const auto whole = rows_of(*source, step, 12, 0, 12);
    for (std::int64_t ranks : {2, 3, 4, 12}) {
      std::vector<Window> joined;
      for (std::int64_t rank = 0; rank < ranks; ++rank)
        for (const Window& w : rows_of(*source, step, 12, rank * 12 / ranks, 12 / ranks)) joined.push_back(w);
      EXPECT_EQ(joined, whole) << ranks << " ranks at step " << step;
    }
  }
  // Twice the batch in half the steps reads the same rows.
  const auto wide = rows_of(*source, 5, 24, 0, 24), narrow = rows_of(*source, 11, 12, 0, 12);
  EXPECT_TRUE(std::equal(narrow.begin(), narrow.end(), wide.begin() + 12));
}

TEST(BatchSource, AnEpochReadsEveryWindowOnceAndWindowsDoNotOverlap) {
  const std::int64_t context = 10;
  const std::vector<std::int64_t> lengths = {205, 10, 9, 0, 57, 640};
  const auto source = make_batch_source(std::make_shared<Labelled>(lengths), context, 1, "x");
  ASSERT_EQ(source->epoch_rows(), 19 + 1 + 0 + 0 + 5 + 63);
  std::set<std::vector<Window>> orders;
  for (std::int64_t epoch = 0; epoch < 5; ++epoch) {
    std::vector<Window> rows = rows_of(*source, epoch, source->epoch_rows(), 0, source->epoch_rows());
    orders.insert(rows);
    std::sort(rows.begin(), rows.end());
    for (std::size_t i = 1; i < rows.size(); ++i)
      if (rows[i].sequence == rows[i - 1].sequence) {
        EXPECT_EQ(rows[i].offset, rows[i - 1].offset + context) << "epoch " << epoch;
      }
  }
  EXPECT_EQ(orders.size(), 5u) << "two epochs are alike";
}

// A long sequence drops a window, so that its offset ranges over one context plus the remainder, both ends included.
TEST(BatchSource, OffsetsOfALongSequenceTakeEveryValue) {
  const std::int64_t context = 16, rest = 3;
  const auto source =
      make_batch_source(std::make_shared<Labelled>(std::vector<std::int64_t>{16 * 40 + rest}), context, 4, "x");
  std::set<std::int64_t> offsets;
  for (std::int64_t epoch = 0; epoch < 300; ++epoch) {
    const std::vector<Window> rows = rows_of(*source, epoch, source->epoch_rows(), 0, source->epoch_rows());
    offsets.insert(std::min_element(rows.begin(), rows.end())->offset);
  }
  EXPECT_EQ(offsets.size(), 20u);
  EXPECT_EQ(*offsets.rbegin(), context + rest);
}

TEST(BatchSource, DropsAWindowFromSixteenWindowsUp) {
  const auto rows = [](std::int64_t length) {
    return make_batch_source(std::make_shared<Labelled>(std::vector<std::int64_t>{length}), 10, 1, "x")->epoch_rows();
  };
  EXPECT_EQ(rows(150), 15);
  EXPECT_EQ(rows(159), 15);
  EXPECT_EQ(rows(160), 15);
  EXPECT_EQ(rows(170), 16);
}

// Images have no offsets that would distinguish epochs.
TEST(BatchSource, EveryEpochAndSeedHasItsOwnOrder) {
  std::set<std::vector<Window>> orders;
  for (std::uint64_t seed : {1, 2}) {
    const auto images =
        make_batch_source(std::make_shared<Labelled>(std::vector<std::int64_t>(100, 12)), 12, seed, "x");
    for (std::int64_t epoch = 0; epoch < 4; ++epoch) orders.insert(rows_of(*images, epoch, 100, 0, 100));
  }
  EXPECT_EQ(orders.size(), 8u);
}

TEST(BatchSource, ImagesAreReadWholeEveryEpoch) {
  const auto source = make_batch_source(std::make_shared<Labelled>(std::vector<std::int64_t>(100, 12)), 12, 2, "x");
  ASSERT_EQ(source->epoch_rows(), 100);
  auto rows = rows_of(*source, 7, 100, 0, 100);
  std::sort(rows.begin(), rows.end());
  for (std::int64_t i = 0; i < 100; ++i) EXPECT_EQ(rows[static_cast<std::size_t>(i)], (Window{i, 0}));
}

TEST(BatchSource, SaysWhenASplitHoldsNoWindow) {
  const auto source = [](std::vector<std::int64_t> lengths) {
    make_batch_source(std::make_shared<Labelled>(std::move(lengths)), 12288, 1, "data/enwik8.h5: 'train'");
  };
  expect_user_error([&] { source({12287}); }, "holds 12,287 bytes, fewer than one context of 12,288");
  expect_user_error([&] { source({}); }, "holds 0 bytes");
  expect_user_error([&] { source({9000, 9000}); }, "data.cross_files: true");
}

// Every byte is its offset.
class Counting final : public SequenceSet {
 public:
  explicit Counting(std::int64_t length) : length_(length) {}
  std::int64_t sequences() const override { return 1; }
  std::int64_t length(std::int64_t) const override { return length_; }
  void read(std::int64_t, std::int64_t offset, std::int64_t length, std::uint8_t* out) const override {
    for (std::int64_t i = 0; i < length; ++i) out[i] = static_cast<std::uint8_t>(offset + i);
  }

 private:
  std::int64_t length_;
};

// The first bytes of rows [first, first + count).
Bytes first_bytes_of(const BatchSource& source, std::int64_t step, std::int64_t first, std::int64_t count) {
  const BatchLayout layout({}, count, source.context());
  Bytes block(layout.bytes()), bytes;
  source.read(step, 4, first, layout.at(block.data()));
  for (std::int64_t r = 0; r < count; ++r) bytes.push_back(block[static_cast<std::size_t>(r * source.context())]);
  return bytes;
}

TEST(StreamSource, ARowReadsItsPartOfTheSplitInOrderAndStartsAgain) {
  // 4 rows of 60 bytes each, of which 5 windows of 11 are whole.
  const auto source = make_stream_source(std::make_shared<Counting>(243), 11, 4, "x");
  EXPECT_EQ(source->steps_of_stream(), 5);
  EXPECT_EQ(source->epoch_rows(), 20);
  for (const int step : {0, 1, 4, 5, 13}) {
    const int at = step % 5 * 11;
    const auto byte = [&](int row) { return static_cast<std::uint8_t>(60 * row + at); };
    EXPECT_EQ(first_bytes_of(*source, step, 0, 4), (Bytes{byte(0), byte(1), byte(2), byte(3)})) << step;
    EXPECT_EQ(first_bytes_of(*source, step, 2, 1), (Bytes{byte(2)})) << "another rank";
  }
}

TEST(StreamSource, AWindowThatContinuesItsRowIsReadBehindTheByteBeforeIt) {
  const auto source = make_stream_source(std::make_shared<Counting>(100), 8, 2, "x");
  const BatchLayout layout({.wide = true, .targets = true, .starts = true}, 2, 8);
  std::vector<std::uint8_t> block(layout.bytes());
  const Batch batch = layout.at(block.data());
  for (const std::int64_t step : {0, 1, 6}) {
    source->read(step, 2, 0, batch);
    for (std::int64_t r = 0; r < 2; ++r) {
      EXPECT_EQ(batch.starts.as<std::uint8_t>()[r], step % 6 == 0 ? 1 : 0);
      for (std::int64_t i = 0; i < 8; ++i) {
        const std::int64_t offset = 50 * r + step % 6 * 8 + i;
        EXPECT_EQ(batch.targets.as<std::uint16_t>()[8 * r + i], offset);
        if (i > 0 || step % 6 > 0) {
          EXPECT_EQ(batch.tokens.as<std::uint16_t>()[8 * r + i], offset - 1);
        }
      }
    }
  }
}

TEST(StreamSource, SaysWhatIsNoStream) {
  const auto message = [](std::vector<std::int64_t> lengths, std::int64_t rows) {
    try {
      make_stream_source(std::make_shared<Labelled>(std::move(lengths)), 16, rows, "x.h5: 'train'");
    } catch (const UserError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(
      message({100, 200}, 1),
      "x.h5: 'train': holds 2 files, but data.order: streams reads one stream; set data.cross_files: true to join "
      "them");
  EXPECT_EQ(message({100}, 7),
            "x.h5: 'train': holds 100 bytes, fewer than one context of 16 for each of 7 rows; prepare it with a larger "
            "split, or lower train.global_batch");
  EXPECT_EQ(message({100}, 6), "");
}

// A batch of another size continues with the next row.
TEST(StagedSource, OfOneLengthReadsEveryRowOnceInOrder) {
  const auto sequences = std::make_shared<Labelled>(std::vector<std::int64_t>{60 * 20 + 7});
  const auto make = [&](std::int64_t context) { return make_batch_source(sequences, context, 5, "x"); };
  const auto plain = make(20), staged = make_staged_source({{2, 7, 20}, {5, 3, 20}}, 4, 20, make);
  std::vector<Window> all;
  for (std::int64_t step = 0; step < 30; ++step) {
    const std::int64_t rows = step < 2 ? 7 : step < 5 ? 3 : 4;
    for (const Window& w : rows_of(*staged, step, rows, 0, rows)) all.push_back(w);
  }
  const auto count = static_cast<std::int64_t>(all.size());
  EXPECT_EQ(all, rows_of(*plain, 0, count, 0, count));
  EXPECT_EQ(rows_of(*staged, 3, 3, 1, 2), (std::vector<Window>{all[18], all[19]}));  // in any order
}

// A stage of another length begins at the row that as many bytes reach.
TEST(StagedSource, OfOtherLengthsContinuesAtThePlaceInTheData) {
  const auto sequences = std::make_shared<Labelled>(std::vector<std::int64_t>{5000, 3000});
  const auto make = [&](std::int64_t context) { return make_batch_source(sequences, context, 5, "x"); };
  const auto staged = make_staged_source({{3, 10, 12}}, 2, 40, make);
  const auto read = [](const BatchSource& source, std::int64_t step, std::int64_t rows, std::int64_t context,
                       std::int64_t batch, std::int64_t first) {
    Bytes out(static_cast<std::size_t>(rows * context));
    source.read(step, batch, first, {Tensor(out.data(), Dtype::u8, {rows, context})});
    return out;
  };
  EXPECT_EQ(read(*staged, 2, 10, 12, 10, 0), read(*make(12), 2, 10, 12, 10, 0));
  EXPECT_EQ(read(*staged, 3, 2, 40, 2, 0), read(*make(40), 0, 2, 40, 1000, 360 / 40));
  EXPECT_EQ(read(*staged, 5, 1, 40, 2, 1), read(*make(40), 0, 1, 40, 1000, 360 / 40 + 5));
  EXPECT_EQ(staged->context(), 40);
  Bytes out(1000);
  EXPECT_THROW(staged->read(3, 10, 0, {Tensor(out.data(), Dtype::u8, {10, 12})}), InternalError);
}

}  // namespace
}  // namespace longstride
