// A job in which rank 1 fails, in the way that the argument says, while the others wait in a sum.
#include <signal.h>

#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

#include "framework/comm/communicator.h"

namespace {

using namespace longstride;

void train(Communicator& comm, const std::string& way) {
  std::vector<float> gradients(1000, 1.0f);
  comm.all_reduce_sum(gradients.data(), 1000);
  if (comm.rank() == 1 && way == "kill") ::raise(SIGKILL);
  if (comm.rank() == 1) throw std::runtime_error("the reason");
  comm.all_reduce_sum(gradients.data(), 1000);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string way = argc > 1 ? argv[1] : "throw";
  try {
    const auto comm = make_communicator(&argc, &argv);
    if (way == "unwind") {
      train(*comm, way);  // the exception destroys the communicator
      return 0;
    }
    try {
      train(*comm, way);
    } catch (const std::exception& error) {  // as main does
      std::fprintf(stderr, "rank %d (%s): %s\n", comm->rank(), comm->host().c_str(), error.what());
      abort_all_ranks(2);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
