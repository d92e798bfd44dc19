// Numbers in messages: one file, two files; few parameters are no 0.0 M.
#include "framework/core/text/numbers.h"

#include <gtest/gtest.h>

namespace longstride::testing {
namespace {

TEST(Numbers, OneOfAThingIsSingular) {
  EXPECT_EQ(counted(1, "picture"), "1 picture");
  EXPECT_EQ(counted(0, "picture"), "0 pictures");
  EXPECT_EQ(counted(2300, "picture"), "2,300 pictures");
  EXPECT_EQ(counted(2, "group of ranks", "groups of ranks"), "2 groups of ranks");
}

TEST(Numbers, FewParametersAreShownExactly) {
  EXPECT_EQ(in_millions(9), "9");
  EXPECT_EQ(in_millions(84224), "84,224");
  EXPECT_EQ(in_millions(999499), "999,499");
  EXPECT_EQ(in_millions(999500), "1.0 M");
  EXPECT_EQ(in_millions(1250000), "1.3 M");
  EXPECT_EQ(in_millions(152e6), "152.0 M");
}

}  // namespace
}  // namespace longstride::testing
