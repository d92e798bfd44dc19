// Every rank runs the same tests in the same order. Ranks other than 0 print only what fails.
#include <gtest/gtest.h>

#include "tests/distributed/world.h"

namespace longstride::testing {

Communicator& world() {
  static const std::unique_ptr<Communicator> comm = make_communicator(nullptr, nullptr);
  return *comm;
}

}  // namespace longstride::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  auto& comm = longstride::testing::world();
  const bool failed = RUN_ALL_TESTS() != 0;
  return comm.any(failed) ? 1 : 0;
}
