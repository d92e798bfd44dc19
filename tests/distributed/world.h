// All ranks of the test; see main.cpp.
#pragma once
#include "framework/comm/communicator.h"

namespace longstride::testing {

Communicator& world();

}  // namespace longstride::testing
