// Decoders with layers that scan.
#include "tests/support/model_properties.h"
#include "tests/support/scan_toys.h"

namespace longstride::test {

INSTANTIATE_TYPED_TEST_SUITE_P(Scan, ModelProperties, ScanToy);

}  // namespace longstride::test
