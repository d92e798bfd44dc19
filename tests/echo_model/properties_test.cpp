// The properties of every model, on one that remembers.
#include "tests/echo_model/toys.h"
#include "tests/support/model_properties.h"

namespace longstride::test {

INSTANTIATE_TYPED_TEST_SUITE_P(Echo, ModelProperties, EchoConfig);

}  // namespace longstride::test
