#include <gtest/gtest.h>

#include "framework/comm/communicator.h"

namespace longstride {
namespace {

TEST(SingleCommunicator, IsTheOnlyRank) {
  const auto comm = make_single_communicator();
  EXPECT_EQ(comm->rank(), 0);
  EXPECT_EQ(comm->size(), 1);
  EXPECT_FALSE(comm->host().empty());
}

TEST(SingleCommunicator, SumsAndBroadcastsChangeNothing) {
  const auto comm = make_single_communicator();
  float values[2] = {1.5f, -2};
  comm->all_reduce_sum(values, 2);
  comm->broadcast(values, sizeof(values), 0);
  comm->barrier();
  EXPECT_EQ(values[0], 1.5f);
  EXPECT_EQ(values[1], -2);
  EXPECT_TRUE(comm->any(true));
  EXPECT_FALSE(comm->any(false));
}

TEST(SingleCommunicator, NeedsNoWorkspace) { EXPECT_EQ(communicator_workspace_bytes(1), 0u); }

TEST(MakeCommunicator, WithoutALauncherIsSingle) {
  const auto comm = make_communicator(nullptr, nullptr);
  EXPECT_EQ(comm->size(), 1);
  abort_all_ranks(3);  // returns: there are no other ranks to end
}

}  // namespace
}  // namespace longstride
