#include "client/cli/args/printable.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "client/cli/args/output.h"

namespace gemmd::cli {
namespace {

TEST(PrintableTest, LeavesPrintableTextAsItIs) {
  const std::string text = "w/layer.0 \\ 'quoted' \u00e9 \u6f22 \U0001f600";
  EXPECT_EQ(Printable(text), text);
  EXPECT_EQ(PrintableJson(text), text);
}

TEST(PrintableTest, EscapesWhatATerminalActsOn) {
  EXPECT_EQ(Printable("\x1b]0;title\x07"), "\\x1b]0;title\\x07");
  EXPECT_EQ(Printable("a\r\tb\x7f"), "a\\r\\tb\\x7f");
  EXPECT_EQ(Printable(std::string("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(Printable("\u009b31m"), "\\u009b31m");          // C1: CSI in one character
  EXPECT_EQ(Printable("\u202egnp.exe"), "\\u202egnp.exe");  // right-to-left override
  EXPECT_EQ(Printable("\u2066x\u2069\u200f\ufeff"), "\\u2066x\\u2069\\u200f\\ufeff");
  EXPECT_EQ(Printable("\U000e0041"), "\\U000e0041");
}

TEST(PrintableTest, EscapesBytesThatAreNotUtf8) {
  EXPECT_EQ(Printable("\x9b\xff"), "\\x9b\\xff");
  EXPECT_EQ(Printable("\xc3"), "\\xc3");                    // cut short
  EXPECT_EQ(Printable("\xc0\x9b"), "\\xc0\\x9b");           // overlong
  EXPECT_EQ(Printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");  // a surrogate
}

TEST(PrintableTest, ANewlineStaysInLinesAlone) {
  EXPECT_EQ(Printable("a\nb"), "a\\nb");
  EXPECT_EQ(PrintableLines("a\nb\x1b\n"), "a\nb\\x1b\n");
}

TEST(PrintableTest, AJsonDocumentMeansTheSame) {
  const nlohmann::json document = {{"name", "\x1b[1m\x7f\u009b\u202e\U000e0041\u00e9\n"}};
  const std::string text = PrintableJson(document.dump(2));
  for (unsigned char byte : text) EXPECT_TRUE(byte == '\n' || (byte >= 0x20 && byte != 0x7f));
  EXPECT_EQ(text.find("\u202e"), text.npos);
  EXPECT_EQ(text.find("\u009b"), text.npos);
  EXPECT_EQ(nlohmann::json::parse(text), document);
}

TEST(PrintableTest, ATablesCellIsOneLine) {
  EXPECT_EQ(Table({{"name"}, {"a\nforged  row\x1b[2J"}}), "name\na\\nforged  row\\x1b[2J\n");
}

}  // namespace
}  // namespace gemmd::cli
