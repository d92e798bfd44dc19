#include "framework/core/files/sha256.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "framework/core/files/files.h"
#include "tests/support/temporary_directory.h"

namespace longstride {
namespace {

std::string sha256_of(const std::string& text) {
  Sha256 sha;
  sha.update(text.data(), text.size());
  return sha.hex();
}

TEST(Sha256, GivesThePublishedAnswers) {  // FIPS 180-4 examples and NIST's long message
  EXPECT_EQ(sha256_of(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256_of(std::string(1'000'000, 'a')), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, DoesNotDependOnHowTheBytesArrive) {
  for (std::size_t length : {55, 56, 63, 64, 65, 119, 120, 128, 1000}) {
    const std::string text(length, 'x');
    for (std::size_t piece : {1, 3, 63, 64, 65}) {
      Sha256 sha;
      for (std::size_t at = 0; at < length; at += piece) sha.update(text.data() + at, std::min(piece, length - at));
      EXPECT_EQ(sha.hex(), sha256_of(text)) << length << " in pieces of " << piece;
    }
  }
}

TEST(Sha256, OfAFileIsThatOfItsContent) {
  const testing::TemporaryDirectory directory;
  const std::string content(3'000'001, 'b');
  write_file_atomically(directory / "x", content);
  EXPECT_EQ(sha256_of_file(directory / "x"), sha256_of(content));
}

}  // namespace
}  // namespace longstride
