// The spelling that messages suggest.
#include <gtest/gtest.h>

#include "launch/recipe/settings_tree.h"

namespace longstride {
namespace {

TEST(NearestSpelling, IsTheFewestEditsAway) {
  const std::vector<std::string> words = {"layers", "width", "heads", "dropout", "lr"};
  EXPECT_EQ(nearest("layer", words), "layers");
  EXPECT_EQ(nearest("layres", words), "layers");
  EXPECT_EQ(nearest("dropuot", words), "dropout");
  EXPECT_EQ(nearest("heads", words), "heads");
  EXPECT_EQ(nearest("wdth", words), "width");
}

TEST(NearestSpelling, IsNothingWhenNothingIsNear) {
  EXPECT_EQ(nearest("temperature", {"layers", "width"}), "");
  EXPECT_EQ(nearest("layers", {}), "");
  EXPECT_EQ(nearest("abcd", {"wxyz"}), "");
}

}  // namespace
}  // namespace longstride
