#include "framework/core/files/sha256.h"

#include <openssl/evp.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "framework/core/errors.h"
#include "framework/core/files/files.h"

namespace longstride {

void Sha256::Free::operator()(evp_md_ctx_st* state) const { EVP_MD_CTX_free(state); }

Sha256::Sha256() : state_(EVP_MD_CTX_new()) {
  LONGSTRIDE_CHECK(state_ != nullptr && EVP_DigestInit_ex(state_.get(), EVP_sha256(), nullptr) == 1,
                   "libcrypto does not provide SHA-256");
}

void Sha256::update(const void* bytes, std::size_t count) {
  LONGSTRIDE_CHECK(EVP_DigestUpdate(state_.get(), bytes, count) == 1, "SHA-256 updated after hex()");
}

std::string Sha256::hex() {
  std::uint8_t digest[32];
  LONGSTRIDE_CHECK(EVP_DigestFinal_ex(state_.get(), digest, nullptr) == 1, "SHA-256: hex() called twice");
  return fmt::format("{:02x}", fmt::join(digest, ""));
}

std::string sha256_of_file(const std::string& path) {
  const InputFile file(path);
  Sha256 sha;
  std::vector<char> buffer(std::size_t{1} << 20);
  for (std::uint64_t at = 0; at < file.size(); at += buffer.size()) {
    const std::size_t count = std::min<std::uint64_t>(buffer.size(), file.size() - at);
    file.read(at, buffer.data(), count);
    sha.update(buffer.data(), count);
  }
  return sha.hex();
}

}  // namespace longstride
