#include "client/cli/args/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gemmd::cli {
namespace {

Page Devices() {
  Page page;
  page.Table({{"name", "note", "bytes"}, {"a", "Grüße aus Köln", "5"}, {"b", "", "12345"}},
             {0, 1, 0});
  return page;
}

TEST(PageTest, WithoutAWidthNothingIsLeftOut) {
  EXPECT_EQ(Devices().Shown({}),
            "name  note            bytes\n"
            "a     Grüße aus Köln      5\n"
            "b                     12345\n");
}

TEST(PageTest, AColumnWithoutRoomIsNamedBelow) {
  EXPECT_EQ(Devices().Shown({.width = 26}),
            "name  bytes\na         5\nb     12345\n(no room for note)\n");
}

TEST(PageTest, OfColumnsThatStayTheWidestIsCut) {
  Page page;
  page.Table({{"name", "note"}, {"a", "Grüße aus Köln"}});
  EXPECT_EQ(page.Shown({.width = 13}), "name  note\na     Grüße..\n");
}

TEST(PageTest, ALineGoesOnBelowItsText) {
  Page page;
  page.Line("limits  64 sessions, 4096 buffers", 8);
  EXPECT_EQ(page.Shown({.width = 20}), "limits  64 sessions,\n        4096 buffers\n");
  EXPECT_EQ(page.Shown({.width = 33}), "limits  64 sessions, 4096 buffers\n");
}

TEST(PageTest, NoWidthAndNoHeightIsTooSmall) {
  for (int width = 1; width < 40; ++width) {
    for (int height = 1; height < 6; ++height) {
      Page page = Devices();
      page.Line("a line of words");
      const std::string text = page.Shown({.width = width, .height = height});
      EXPECT_LE(std::count(text.begin(), text.end(), '\n'), height);
    }
  }
}

TEST(PageTest, WhatOthersWroteMovesNoCursor) {
  Page page;
  page.Line("tenant \x1b[2J");
  page.Table({{"name"}, {Cell("a\nb\x1b[31m", true)}});
  EXPECT_EQ(page.Shown({.colour = true}),
            "tenant \\x1b[2J\n\033[1mname\033[0m\n\033[31ma\\nb\\x1b[31m\033[0m\n");
}

}  // namespace
}  // namespace gemmd::cli
