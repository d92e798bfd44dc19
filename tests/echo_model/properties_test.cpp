// The properties of every model, on one that remembers.
#include "tests/echo_model/toys.h"

namespace longstride::test {

INSTANTIATE_TYPED_TEST_SUITE_P(Echo, ModelProperties, EchoConfig);

}  // namespace longstride::test
