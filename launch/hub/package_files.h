// The files that a folder in the layout of Hugging Face has copies of (launch/python/longstride/model): the code of the
// model, and the tokenizer of text. cmake/PackageFiles.cmake writes the .cpp.
#pragma once
#include <string_view>
#include <vector>

namespace longstride {

struct PackageFile {
  std::string_view name, content;
};
const std::vector<PackageFile>& package_files();

}  // namespace longstride
