#include "framework/core/files/safetensors.h"

#include <cstring>

#include "framework/core/files/files.h"
#include "tests/support/temporary_directory.h"

namespace longstride {
namespace {

using testing::TemporaryDirectory;
using testing::user_error_of;

std::string file_of(const std::string& header, const std::string& data, std::uint64_t length) {
  std::string out(8, '\0');
  std::memcpy(out.data(), &length, 8);
  return out + header + data;
}
std::string file_of(const std::string& header, const std::string& data) { return file_of(header, data, header.size()); }

class Safetensors : public ::testing::Test {
 protected:
  // The message on opening a file of this content, without its path and the common words.
  std::string complaint(const std::string& content) {
    write_file_atomically(path_, content);
    const std::string message = user_error_of([&] { SafetensorsReader reader(path_); });
    const std::string common = path_ + ": not a valid safetensors file: ";
    EXPECT_EQ(message.substr(0, common.size()), common) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    return message.size() > common.size() ? message.substr(common.size()) : message;
  }

  FileDigest write_sample() {
    SafetensorsWriter writer(path_, {{"a", Dtype::f32, {2, 3}}, {"empty", Dtype::f32, {0, 4}}, {"b", Dtype::f64, {4}}},
                             {{"step", "7"}, {"who", "a \"quoted\" name"}});
    writer.write(Tensor(a_.data(), Dtype::f32, {2, 3}));
    writer.write(Tensor(nullptr, Dtype::f32, {0, 4}));
    writer.write(Tensor(b_.data(), Dtype::f64, {4}));
    return writer.finish();
  }

  TemporaryDirectory directory_;
  std::string path_ = directory_ / "x.safetensors";
  std::vector<float> a_ = {1, 2, 3, 4, 5, 6};
  std::vector<double> b_ = {1e-300, -0.0, 3, 4};
};

TEST_F(Safetensors, ReadsBackWhatWasWritten) {
  write_sample();
  const SafetensorsReader reader(path_);
  EXPECT_EQ(reader.metadata(), (Metadata{{"step", "7"}, {"who", "a \"quoted\" name"}}));
  ASSERT_EQ(reader.entries().size(), 3u);
  ASSERT_NE(reader.find("b"), nullptr);
  EXPECT_EQ(reader.find("c"), nullptr);
  std::vector<float> a(6);
  std::vector<double> b(4);
  reader.read("a", Tensor(a.data(), Dtype::f32, {2, 3}));
  reader.read("b", Tensor(b.data(), Dtype::f64, {4}));
  EXPECT_EQ(a, a_);
  EXPECT_EQ(std::memcmp(b.data(), b_.data(), 32), 0);
}

TEST_F(Safetensors, DataStartsAligned) {
  write_sample();
  std::uint64_t length = 0;
  InputFile(path_).read(0, &length, 8);
  EXPECT_EQ((8 + length) % 64, 0u);
}

TEST_F(Safetensors, DigestIsThatOfTheFile) {
  const FileDigest digest = write_sample();
  EXPECT_EQ(digest.bytes, std::filesystem::file_size(path_));
  EXPECT_EQ(digest.sha256, sha256_of_file(path_));
}

TEST_F(Safetensors, AnUnfinishedFileDoesNotAppear) {
  {
    SafetensorsWriter writer(path_, {{"a", Dtype::f32, {2}}});
    EXPECT_THROW(writer.finish(), InternalError);
    EXPECT_THROW(writer.write(Tensor(a_.data(), Dtype::f32, {3})), InternalError);
  }
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(Safetensors, AScalarReadsAsOneElement) {
  write_file_atomically(path_, file_of(R"({"s":{"dtype":"U8","shape":[],"data_offsets":[0,1]}})", "\x07"));
  std::uint8_t value = 0;
  SafetensorsReader(path_).read("s", Tensor(&value, Dtype::u8, {1}));
  EXPECT_EQ(value, 7);
}

TEST_F(Safetensors, AskingForTheWrongTensorSaysWhatThereIs) {
  write_sample();
  const SafetensorsReader reader(path_);
  EXPECT_EQ(user_error_of([&] { reader.read("c", Tensor(a_.data(), Dtype::f32, {6})); }),
            path_ + ": holds no tensor 'c'");
  EXPECT_EQ(user_error_of([&] {
              reader.read("a", Tensor(a_.data(), Dtype::f32, {3, 2}));
            }),
            path_ + ": tensor 'a' is F32 (2, 3), but F32 (3, 2) is needed");
  EXPECT_EQ(user_error_of([&] { reader.read("b", Tensor(b_.data(), Dtype::f32, {4})); }),
            path_ + ": tensor 'b' is F64 (4), but F32 (4) is needed");
}

TEST_F(Safetensors, TruncationAtEverySixteenthIsNoticed) {
  write_sample();
  const std::string whole = read_file(path_);
  for (std::size_t part = 0; part < 16; ++part) complaint(whole.substr(0, whole.size() * part / 16));
}

TEST_F(Safetensors, RefusesHeadersThatLieAboutTheirLength) {
  EXPECT_EQ(complaint("1234567"), "it holds 7 bytes, fewer than the 8 of a header length");
  EXPECT_EQ(complaint(file_of("{}", "", 3)), "the header claims 3 bytes, but the file holds 10");
  EXPECT_EQ(complaint(file_of("{}", "", UINT64_MAX)),
            "the header claims 18446744073709551615 bytes, but the file holds 10");
  EXPECT_EQ(complaint(file_of("{}", "", 0)), "the header of 0 bytes is not JSON");
}

TEST_F(Safetensors, RefusesHeadersThatAreNotATableOfTensors) {
  EXPECT_EQ(complaint(file_of("garbage!", "")), "the header of 8 bytes is not JSON");
  EXPECT_EQ(complaint(file_of("[1, 2]", "")), "the header is not a JSON object");
  EXPECT_EQ(complaint(file_of("{\"\xff\":1}", "")), "the header of 7 bytes is not JSON");
  EXPECT_EQ(complaint(file_of(R"({"a":1})", "")), "tensor 'a' must have exactly dtype, shape and data_offsets");
  EXPECT_EQ(complaint(file_of(R"({"a":{"dtype":"U8","shape":[1]}})", "1")),
            "tensor 'a' must have exactly dtype, shape and data_offsets");
  EXPECT_EQ(complaint(file_of(R"({"__metadata__":{"a":1}})", "")), "__metadata__ must map names to text");
  EXPECT_EQ(complaint(file_of(R"({"__metadata__":"a"})", "")), "__metadata__ must map names to text");
  EXPECT_EQ(complaint(file_of(std::string(100'000, '['), "")), "the header of 100000 bytes is not JSON");
}

TEST_F(Safetensors, RefusesUnknownTypes) {
  EXPECT_EQ(complaint(file_of(R"({"a":{"dtype":"F8_E4M3","shape":[1],"data_offsets":[0,1]}})", "1")),
            "tensor 'a' has dtype F8_E4M3, but must have F64, F32, BF16, F16, I64, I32, U16 or U8");
  EXPECT_EQ(complaint(file_of(R"({"a":{"dtype":7,"shape":[1],"data_offsets":[0,1]}})", "1")),
            "tensor 'a' has dtype (not text), but must have F64, F32, BF16, F16, I64, I32, U16 or U8");
}

TEST_F(Safetensors, RefusesShapesThatDoNotFillTheirBytes) {
  const auto with = [&](const std::string& shape, const std::string& offsets) {
    return complaint(file_of(R"({"a":{"dtype":"F32","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}",
                             std::string(8, 'x')));
  };
  EXPECT_EQ(with("[1]", "[0,8]"), "tensor 'a' has 8 bytes, but its shape and dtype need 4");
  EXPECT_EQ(with("[3]", "[0,8]"), "tensor 'a' has a shape larger than the file");
  EXPECT_EQ(with("[4611686018427387904,4]", "[0,8]"), "tensor 'a' has a shape larger than the file");
  EXPECT_EQ(with("[0,4611686018427387904,8]", "[0,8]"), "tensor 'a' has 8 bytes, but its shape and dtype need 0");
  EXPECT_EQ(with("[0,18446744073709551615]", "[0,0]"), "tensor 'a' has a shape larger than the file");
  EXPECT_EQ(with("[-2]", "[0,8]"), "tensor 'a' has a shape that is not a list of sizes");
  EXPECT_EQ(with("[2.0]", "[0,8]"), "tensor 'a' has a shape that is not a list of sizes");
  EXPECT_EQ(with("2", "[0,8]"), "tensor 'a' must have a shape of at most 4 dimensions");
  EXPECT_EQ(with("[1,1,1,1,2]", "[0,8]"), "tensor 'a' must have a shape of at most 4 dimensions");
  EXPECT_EQ(with("[2]", "[0,8,8]"), "tensor 'a' must have two data_offsets");
  EXPECT_EQ(with("[2]", "[0,-8]"), "tensor 'a' must have two data_offsets");
  EXPECT_EQ(with("[2]", "[8,0]"), "tensor 'a' claims bytes 8 to 0 of 8; the file is truncated or damaged");
  EXPECT_EQ(with("[2]", "[1,9]"), "tensor 'a' claims bytes 1 to 9 of 8; the file is truncated or damaged");
}

TEST_F(Safetensors, RefusesOverlapsGapsAndDuplicateNames) {
  const auto with = [&](const std::string& second) {
    return complaint(file_of(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)" + second + "}", "12345678"));
  };
  EXPECT_EQ(with(R"("b":{"dtype":"U8","shape":[5],"data_offsets":[3,8]})"),
            "tensor 'b' starts at byte 3 of the data, but the one before it ends at 4");
  EXPECT_EQ(with(R"("b":{"dtype":"U8","shape":[3],"data_offsets":[5,8]})"),
            "tensor 'b' starts at byte 5 of the data, but the one before it ends at 4");
  EXPECT_EQ(with(R"("b":{"dtype":"U8","shape":[3],"data_offsets":[4,7]})"), "1 bytes of data belong to no tensor");
  EXPECT_EQ(with(R"("a":{"dtype":"U8","shape":[4],"data_offsets":[4,8]})"), "tensor 'a' occurs twice");
}

TEST_F(Safetensors, NamesFromUntrustedFilesStayOneShortLine) {
  const std::string message = complaint(file_of("{\"a\\n\\u001b[31m" + std::string(500, 'n') + "\":1}", ""));
  EXPECT_LT(message.size(), 200u);
  EXPECT_EQ(message.find("tensor 'a\\n\\x1b[31mnnn"), 0u) << message;
  EXPECT_EQ(message.find('\x1b'), std::string::npos);
}

}  // namespace
}  // namespace longstride
