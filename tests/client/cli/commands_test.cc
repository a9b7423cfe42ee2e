#include "client/cli/commands.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "client/cli/args/completion.h"
#include "client/cli/args/help.h"
#include "client/cli/args/man.h"
#include "client/cli/args/parser.h"
#include "client/cli/quantize.h"

namespace gemmd::cli {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

TEST(CommandsTest, NoNameIsTakenTwice) {
  std::set<absl::string_view> commands;
  for (const Command* command : Commands().commands) {
    EXPECT_TRUE(commands.insert(command->name).second) << command->name;
    EXPECT_NE(command->run, nullptr) << command->name;
    std::set<absl::string_view> flags;
    std::set<char> letters;
    for (std::span<const Flag> some : {Commands().global_flags, command->flags}) {
      for (const Flag& flag : some) {
        EXPECT_TRUE(flags.insert(flag.name).second) << command->name << " --" << flag.name;
        EXPECT_TRUE(flag.letter == 0 || letters.insert(flag.letter).second) << flag.letter;
      }
    }
  }
}

TEST(CommandsTest, EveryFlagIsDescribedAndEveryDefaultIsAValueThatItTakes) {
  for (const Command* command : Commands().commands) {
    for (const Flag& flag : command->flags) {
      const std::string where = std::string(command->name) + " --" + std::string(flag.name);
      EXPECT_FALSE(flag.help.empty()) << where;
      EXPECT_EQ(flag.kind == ValueKind::kChoice, !flag.choices.empty()) << where;
      EXPECT_TRUE(flag.kind == ValueKind::kSwitch || flag.kind == ValueKind::kChoice ||
                  !flag.value.empty())
          << where;
      if (flag.fallback.empty()) continue;
      const std::string command_name(command->name);
      const std::string typed = "--" + std::string(flag.name) + "=" + std::string(flag.fallback);
      const char* argv[] = {command_name.c_str(), "--help", typed.c_str()};
      EXPECT_TRUE(ParseArgs(Commands(), argv).ok()) << where;
    }
  }
}

TEST(CommandsTest, RequiredArgumentsComeBeforeOptionalOnes) {
  for (const Command* command : Commands().commands) {
    bool optional = false;
    for (const Positional& positional : command->positionals) {
      EXPECT_FALSE(optional && positional.required) << command->name;
      optional |= !positional.required;
    }
  }
}

TEST(CommandsTest, EveryVisibleCommandAndFlagIsOffered) {
  const auto offered = [](std::vector<std::string> words) {
    std::vector<std::string> found;
    for (const auto& [word, help] : CompletionOf(Commands(), words).offers) found.push_back(word);
    return found;
  };
  const std::vector<std::string> commands = offered({""});
  for (const Command* command : Commands().commands) {
    const std::string name(command->name);
    EXPECT_THAT(commands, Contains(name).Times(command->hidden ? 0 : 1));
    if (command->hidden) continue;
    const std::vector<std::string> flags = offered({name, "--"});
    for (const Flag& flag : command->flags) {
      EXPECT_THAT(flags, Contains("--" + std::string(flag.name)));
    }
  }
}

TEST(CommandsTest, EveryVisibleCommandHasAManPageWithAllItsFlags) {
  const std::vector<ManPage> pages = ManPages(Commands(), "1.2.3");
  std::vector<const Command*> visible;
  for (const Command* command : Commands().commands) {
    if (!command->hidden) visible.push_back(command);
  }
  ASSERT_EQ(pages.size(), visible.size() + 1);
  EXPECT_EQ(pages[0].name, "gemmctl");
  for (size_t i = 0; i < visible.size(); ++i) {
    const ManPage& page = pages[i + 1];
    EXPECT_EQ(page.name, "gemmctl-" + std::string(visible[i]->name));
    EXPECT_THAT(page.text, HasSubstr("\"gemmd 1.2.3\""));
    EXPECT_THAT(pages[0].text, HasSubstr(std::string(visible[i]->summary.substr(0, 6))));
    for (std::span<const Flag> some : {Commands().global_flags, visible[i]->flags}) {
      for (const Flag& flag : some) {
        const std::string name = absl::StrReplaceAll(flag.name, {{"-", "\\-"}});
        EXPECT_THAT(page.text, HasSubstr("\\fB\\-\\-" + name + "\\fR")) << page.name;
      }
    }
  }
}

// roff takes a line that begins with one of these for a request, and drops it when it knows none.
TEST(CommandsTest, NoTextOfAManPageIsTakenForARequest) {
  const std::set<std::string> known = {"TH", "SH", "TP", "PP", "nf", "fi"};
  for (const ManPage& page : ManPages(Commands(), "1.2.3")) {
    for (absl::string_view line : absl::StrSplit(page.text, '\n')) {
      EXPECT_FALSE(absl::StartsWith(line, "'")) << page.name << ": " << line;
      if (!absl::StartsWith(line, ".")) continue;
      const std::vector<std::string> words = absl::StrSplit(line.substr(1), ' ');
      EXPECT_EQ(known.count(words[0]), 1u) << page.name << ": " << line;
    }
  }
}

TEST(CommandsTest, HelpKeepsToOneHundredColumns) {
  for (const Command* command : Commands().commands) {
    const std::string help = CommandHelp(Commands(), *command);
    size_t start = 0;
    for (size_t end = help.find('\n'); end != help.npos;
         start = end + 1, end = help.find('\n', start)) {
      EXPECT_LE(end - start, 100u) << help.substr(start, end - start);
    }
  }
}

TEST(QuantizeModeTest, EveryNameHasItsMode) {
  for (absl::string_view name : kQuantizeNames) EXPECT_EQ(QuantizeModeOf(name).name, name);
  EXPECT_EQ(QuantizeModeOf("fp8-block").a, client::ScaleGranularity::kBlock1x128);
  EXPECT_EQ(QuantizeModeOf("fp8-block").b, client::ScaleGranularity::kBlock128x128);
}

TEST(QuantizeModeTest, DTypesGoBothWays) {
  for (files::DType dtype : {files::DType::kF32, files::DType::kBf16, files::DType::kF16,
                             files::DType::kE4m3, files::DType::kI8}) {
    EXPECT_EQ(ToFile(ToClient(dtype)), dtype);
    EXPECT_EQ(client::Name(ToClient(dtype)), files::DTypeName(dtype));
    EXPECT_EQ(client::SizeBytes(ToClient(dtype)), files::ElementSize(dtype));
  }
}

}  // namespace
}  // namespace gemmd::cli
