// Any bytes as a table of labels: an error, or labels of a document that have the numbers of their names.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "datasets/prepare/documents/labels.h"
#include "framework/core/errors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace longstride;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    DocumentLabels labels = DocumentLabels::of_table(text, "fuzz", "");
    const std::string name(text.substr(0, text.find('\t')));
    const auto found = labels.of(name, "here");
    if (labels.kind() == LabelsAre::classes && (found.size() != 1 || found[0] >= labels.names().size())) std::abort();
    if (labels.kind() == LabelsAre::labels && found.size() != labels.names().size()) std::abort();
    if (labels.kind() == LabelsAre::spans && (found.size() != 2 || found[0] > found[1])) std::abort();
    labels.finish();
  } catch (const UserError&) {
  }
  return 0;
}
