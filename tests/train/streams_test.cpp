// The properties of training with what rows remember, of decoders with a memory.
#include "tests/support/distance_toys.h"
#include "tests/support/stream_properties.h"

namespace longstride::test {

INSTANTIATE_TYPED_TEST_SUITE_P(DistanceDecoder, StreamProperties, OnDevices<DistanceToy>, DeviceNames);

}  // namespace longstride::test
