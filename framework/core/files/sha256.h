// SHA-256 through libcrypto, for the checksums of data files and checkpoints.
#pragma once
#include <cstddef>
#include <memory>
#include <string>

struct evp_md_ctx_st;

namespace longstride {

class Sha256 {
 public:
  Sha256();
  void update(const void* bytes, std::size_t count);
  // The digest of everything so far, as 64 lower-case hexadecimal digits. Ends the digest: do not update it afterwards.
  std::string hex();

 private:
  struct Free {
    void operator()(evp_md_ctx_st* state) const;
  };
  std::unique_ptr<evp_md_ctx_st, Free> state_;
};

// The checksum of a file's content. UserError when the file cannot be read.
std::string sha256_of_file(const std::string& path);

}  // namespace longstride
