// Any bytes as a table of labels: an error, or labels of a document that have the numbers of their names.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "datasets/prepare/documents/labels.h"
#include "framework/core/errors.h"

namespace {

void read(std::string_view text, bool groups) {
  using namespace longstride;
  DocumentLabels labels = groups ? DocumentLabels::of_groups(text, "fuzz") : DocumentLabels::of_table(text, "fuzz", "");
  const auto found = labels.of(std::string(text.substr(0, text.find('\t'))), "here");
  if (groups != (labels.kind() == LabelsAre::groups)) std::abort();
  if (labels.kind() == LabelsAre::classes && (found.size() != 1 || found[0] >= labels.names().size())) std::abort();
  if (labels.kind() == LabelsAre::labels && found.size() != labels.names().size()) std::abort();
  if (labels.kind() == LabelsAre::spans && (found.size() != 2 || found[0] > found[1])) std::abort();
  labels.finish();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  for (const bool groups : {false, true}) try {
      read({reinterpret_cast<const char*>(data), size}, groups);
    } catch (const longstride::UserError&) {
    }
  return 0;
}
