#include "launch/console/standard_streams.h"

#include <gtest/gtest.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

namespace longstride {
namespace {

// The thread that writes checkpoints warns while the main thread reports.
TEST(StandardStreams, SeveralThreadsMayLog) {
  const auto before = spdlog::default_logger();
  log_to_standard_error();
  ASSERT_EQ(spdlog::default_logger()->sinks().size(), 1u);
  EXPECT_NE(dynamic_cast<spdlog::sinks::stderr_sink_mt*>(spdlog::default_logger()->sinks().front().get()), nullptr);
  spdlog::set_default_logger(before);
}

}  // namespace
}  // namespace longstride
