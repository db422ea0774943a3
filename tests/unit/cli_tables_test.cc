#include "gtest/gtest.h"
#include "src/cli/metrics_text.h"
#include "src/cli/tables.h"

namespace parkade {
namespace {

TEST(CliTable, AlignsAndTrims) {
  Table table({"NAME", ">COUNT", "LAST"});
  table.AddRow({"caf\xc3\xa9", "1,000", ""});
  table.AddRow({"a", "7", "x"});
  EXPECT_EQ(table.Text(),
            "NAME  COUNT  LAST\n"
            "caf\xc3\xa9  1,000\n"
            "a         7  x\n");
}

TEST(CliTable, DoesNotDriveTheTerminal) {
  Table table({"A"});
  table.AddRow({"\x1b[2J\n\x7f"});
  EXPECT_EQ(table.Text(), "A\n?[2J??\n");
  // Controls of two bytes, and marks that turn what follows around.
  Table names({"A"});
  names.AddRow(
      {"a\xc2\x9b"
       "b\xe2\x80\xae"
       "c\xe2\x81\xa6"
       "d\xe2\x82\xac"});
  EXPECT_EQ(names.Text(), "A\na?b?c?d\xe2\x82\xac\n");
}

TEST(CliTable, Bytes) {
  EXPECT_EQ(FormatBytes(0), "0 B");
  EXPECT_EQ(FormatBytes(1023), "1023 B");
  EXPECT_EQ(FormatBytes(1024), "1.0 KiB");
  EXPECT_EQ(FormatBytes(21233664), "20.2 MiB");
  EXPECT_EQ(FormatBytes(1048575), "1.0 MiB");
  EXPECT_EQ(FormatBytes(64.0 * (1ull << 30)), "64.0 GiB");
  EXPECT_EQ(FormatBytes(5000.0 * (1ull << 50)), "5000.0 PiB");
}

TEST(CliTable, Times) {
  EXPECT_EQ(FormatSeconds(0.0004), "0.4 ms");
  EXPECT_EQ(FormatSeconds(12.14), "12.1 s");
  EXPECT_EQ(FormatSeconds(200.9), "3 min 20 s");
  EXPECT_EQ(FormatAge(-5), "now");
  EXPECT_EQ(FormatAge(59.9), "59 s ago");
  EXPECT_EQ(FormatAge(60), "1 min ago");
  EXPECT_EQ(FormatAge(7200), "2 h ago");
  EXPECT_EQ(FormatAge(86400 * 3), "3 d ago");
}

TEST(CliTable, Counts) {
  EXPECT_EQ(FormatCount(0), "0");
  EXPECT_EQ(FormatCount(999), "999");
  EXPECT_EQ(FormatCount(1000), "1,000");
  EXPECT_EQ(FormatCount(1234567), "1,234,567");
  EXPECT_EQ(FormatCount(-123456), "-123,456");
}

TEST(CliMetrics, ReadsOurSamplesOnly) {
  const auto samples = ParseMetrics(
      "# HELP parkade_x_total x\n# TYPE parkade_x_total counter\n"
      "parkade_x_total{reason=\"a\",tier=\"ram\"} 5\n"
      "parkade_x_total{reason=\"b\",tier=\"ram\"} 2\n"
      "parkade_x_total{tier=\"disk\"} 1.5e3\n"
      "parkade_y 7\nparkade_bad x\nparkade_bad\nother 9",
      "parkade_");
  EXPECT_EQ(samples.size(), 4u);
  EXPECT_EQ(samples.at("parkade_y"), 7);
  const std::map<std::string, double> expected = {{"ram", 7}, {"disk", 1500}};
  EXPECT_EQ(ByLabel(samples, "parkade_x_total", "tier"), expected);
  EXPECT_TRUE(ByLabel(samples, "parkade_x", "tier").empty());
}

}  // namespace
}  // namespace parkade
