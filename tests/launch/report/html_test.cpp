// The pieces of a report's page.
#include "launch/report/html.h"

#include <gtest/gtest.h>

namespace longstride {
namespace {

// The examples of RFC 4648, section 10.
TEST(DataUri, HoldsTheContentInBase64) {
  const std::pair<const char*, const char*> examples[] = {{"", ""},
                                                          {"f", "Zg=="},
                                                          {"fo", "Zm8="},
                                                          {"foo", "Zm9v"},
                                                          {"foob", "Zm9vYg=="},
                                                          {"fooba", "Zm9vYmE="},
                                                          {"foobar", "Zm9vYmFy"},
                                                          {"\xff\xfe", "//4="}};
  for (const auto& [content, expected] : examples)
    EXPECT_EQ(data_uri("image/png", content), std::string("data:image/png;base64,") + expected);
}

TEST(HtmlText, EscapesMarkupAndReplacesWhatIsNotText) {
  EXPECT_EQ(html_text("a < b && \"c\" > d"), "a &lt; b &amp;&amp; &quot;c&quot; &gt; d");
  EXPECT_EQ(html_text("Gr\xC3\xBC\xC3\x9F"), "Gr\xC3\xBC\xC3\x9F");
  EXPECT_EQ(html_text("\xFF"), "\xEF\xBF\xBD");
}

}  // namespace
}  // namespace longstride
