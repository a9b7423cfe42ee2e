#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/cli/args/completion.h"
#include "client/cli/args/exit_code.h"
#include "client/cli/args/help.h"
#include "client/cli/args/nearest.h"
#include "client/cli/args/output.h"
#include "client/cli/args/parser.h"

namespace gemmd::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr absl::string_view kModes[] = {"fast", "slow"};
constexpr Flag kGlobal[] = {
    {.name = "server",
     .kind = ValueKind::kText,
     .value = "TARGET",
     .fallback = "here:1",
     .help = "where"},
    {.name = "json", .help = "JSON"},
    {.name = "help", .letter = 'h', .help = "explain"},
};
constexpr Flag kBrewFlags[] = {
    {.name = "output",
     .letter = 'o',
     .kind = ValueKind::kFile,
     .value = "FILE",
     .help = "result's file"},
    {.name = "cups",
     .kind = ValueKind::kCount,
     .value = "N",
     .fallback = "2",
     .help = "cups",
     .min = 1},
    {.name = "heat", .kind = ValueKind::kNumber, .value = "X", .help = "degrees"},
    {.name = "for", .kind = ValueKind::kDuration, .value = "TIME", .help = "time"},
    {.name = "mode", .kind = ValueKind::kChoice, .help = "how", .choices = kModes},
};
constexpr Positional kBrewPositionals[] = {
    {.name = "BEANS", .help = "what to brew", .kind = ValueKind::kFile},
    {.name = "MILK", .help = "if any", .required = false},
};
const Command kBrew = {
    .name = "brew", .summary = "make coffee", .positionals = kBrewPositionals, .flags = kBrewFlags};
const Command kDrain = {.name = "drain", .summary = "empty the pot"};
const Command kHidden = {.name = "self-destruct", .summary = "no", .hidden = true};
const Command* const kCommands[] = {&kBrew, &kDrain, &kHidden};
const CommandTable kTable = {kGlobal, kCommands};

absl::StatusOr<Args> Parse(std::vector<const char*> argv) { return ParseArgs(kTable, argv); }

std::string UsageErrorOf(std::vector<const char*> argv) {
  absl::StatusOr<Args> args = Parse(argv);
  EXPECT_FALSE(args.ok());
  EXPECT_EQ(ExitCodeOf(args.status()), ExitCode::kUsage);
  return std::string(args.status().message());
}

TEST(ParserTest, ReadsEveryKindOfValueInEveryNotation) {
  absl::StatusOr<Args> args = Parse({"--json", "brew", "a.npy", "--cups=3", "-o", "d.npy", "--heat",
                                     "-1.5", "--for", "250ms", "--mode", "slow", "oat"});
  ASSERT_TRUE(args.ok()) << args.status();
  EXPECT_EQ(args->command().name, "brew");
  EXPECT_TRUE(args->On("json"));
  EXPECT_EQ(args->Count("cups"), 3);
  EXPECT_EQ(args->Text("output"), "d.npy");
  EXPECT_EQ(args->Number("heat"), -1.5);
  EXPECT_EQ(args->Duration("for"), absl::Milliseconds(250));
  EXPECT_EQ(args->Text("mode"), "slow");
  EXPECT_EQ(args->Positional(0), "a.npy");
  EXPECT_EQ(args->Positional(1), "oat");
}

TEST(ParserTest, GivesDefaultsAndTellsThemFromWhatWasTyped) {
  absl::StatusOr<Args> args = Parse({"brew", "a.npy"});
  ASSERT_TRUE(args.ok()) << args.status();
  EXPECT_EQ(args->Count("cups"), 2);
  EXPECT_FALSE(args->Given("cups"));
  EXPECT_EQ(args->Text("server"), "here:1");
  EXPECT_EQ(args->Positional(1), "");
  EXPECT_EQ(args->Duration("for"), absl::InfiniteDuration());
}

TEST(ParserTest, FindsTheCommandBehindAGlobalFlagsValue) {
  absl::StatusOr<Args> args = Parse({"--server", "brew", "drain"});
  ASSERT_TRUE(args.ok()) << args.status();
  EXPECT_EQ(args->command().name, "drain");
  EXPECT_EQ(args->Text("server"), "brew");
}

TEST(ParserTest, TakesEverythingAfterTwoDashesAsArguments) {
  absl::StatusOr<Args> args = Parse({"brew", "--", "--cups"});
  ASSERT_TRUE(args.ok()) << args.status();
  EXPECT_EQ(args->Positional(0), "--cups");
}

TEST(ParserTest, SuggestsTheNearestCommandAndFlag) {
  EXPECT_THAT(UsageErrorOf({"bew"}), HasSubstr("did you mean 'brew'?"));
  EXPECT_THAT(UsageErrorOf({"brew", "a", "--cusp", "3"}), HasSubstr("did you mean '--cups'?"));
  EXPECT_THAT(UsageErrorOf({"xylophone"}), Not(HasSubstr("did you mean")));
}

TEST(ParserTest, RefusesValuesOutOfTheirKind) {
  EXPECT_THAT(UsageErrorOf({"brew", "a", "--cups", "0"}),
              HasSubstr("'0' is not a whole number of at least 1"));
  EXPECT_THAT(UsageErrorOf({"brew", "a", "--cups", "3.5"}), HasSubstr("'3.5'"));
  EXPECT_THAT(UsageErrorOf({"brew", "a", "--cups", "99999999999999999999"}),
              HasSubstr("whole number"));
  EXPECT_THAT(UsageErrorOf({"brew", "a", "--heat", "nan"}), HasSubstr("finite"));
  EXPECT_THAT(UsageErrorOf({"brew", "a", "--for", "soon"}), HasSubstr("250ms"));
  EXPECT_THAT(UsageErrorOf({"brew", "a", "--for", "-1s"}), HasSubstr("above 0"));
  EXPECT_THAT(UsageErrorOf({"brew", "a", "--mode", "medium"}), HasSubstr("fast, slow"));
}

TEST(ParserTest, RefusesMissingExtraAndRepeated) {
  EXPECT_THAT(UsageErrorOf({}), HasSubstr("no command"));
  EXPECT_THAT(UsageErrorOf({"brew"}), HasSubstr("needs BEANS"));
  EXPECT_THAT(UsageErrorOf({"brew", "a", "b", "c"}), HasSubstr("at most 2 arguments; see '"));
  EXPECT_THAT(UsageErrorOf({"brew", "a", "--cups"}), HasSubstr("needs a value"));
  EXPECT_THAT(UsageErrorOf({"brew", "a", "--cups=1", "--cups=2"}), HasSubstr("given twice"));
  EXPECT_THAT(UsageErrorOf({"drain", "--json=yes"}), HasSubstr("takes no value"));
}

TEST(ParserTest, HelpNeedsNoArguments) {
  absl::StatusOr<Args> args = Parse({"brew", "-h"});
  ASSERT_TRUE(args.ok()) << args.status();
  EXPECT_TRUE(args->On("help"));
}

TEST(DurationTest, TakesUnitsAndPlainSeconds) {
  EXPECT_EQ(*ParseDurationText("1.5"), absl::Milliseconds(1500));
  EXPECT_EQ(*ParseDurationText("2m"), absl::Minutes(2));
  EXPECT_EQ(*ParseDurationText("12h"), absl::Hours(12));
  EXPECT_EQ(*ParseDurationText("1.5d"), absl::Hours(36));
  EXPECT_FALSE(ParseDurationText("d").ok());
  EXPECT_FALSE(ParseDurationText("inf").ok());
  EXPECT_FALSE(ParseDurationText("").ok());
}

TEST(ExitCodeTest, ComesFromTheMarkOrElseFromTheStatus) {
  EXPECT_EQ(ExitCodeOf(absl::OkStatus()), ExitCode::kOk);
  EXPECT_EQ(ExitCodeOf(absl::UnavailableError("x")), ExitCode::kUnreachable);
  EXPECT_EQ(ExitCodeOf(absl::DeadlineExceededError("x")), ExitCode::kUnreachable);
  EXPECT_EQ(ExitCodeOf(absl::ResourceExhaustedError("x")), ExitCode::kRefused);
  EXPECT_EQ(ExitCodeOf(absl::InternalError("x")), ExitCode::kInternal);
  EXPECT_EQ(ExitCodeOf(WithExit(ExitCode::kBadFile, absl::UnavailableError("x"))),
            ExitCode::kBadFile);
}

TEST(HelpTest, ListsVisibleCommandsAndTheirFlags) {
  EXPECT_THAT(OverviewHelp(kTable), HasSubstr("make coffee"));
  EXPECT_THAT(OverviewHelp(kTable), Not(HasSubstr("self-destruct")));
  const std::string help = CommandHelp(kTable, kBrew);
  EXPECT_THAT(help, HasSubstr("usage: gemmctl brew BEANS [MILK] [FLAGS]"));
  EXPECT_THAT(help, HasSubstr("-o, --output FILE"));
  EXPECT_THAT(help, HasSubstr("--mode fast|slow"));
  EXPECT_THAT(help, HasSubstr("(default 2)"));
  EXPECT_THAT(ExitCodeHelp(kTable), HasSubstr("130  interrupted"));
}

// What may stand for the last word, "/" behind them where paths may, too.
std::string Offers(const std::vector<std::string>& words) {
  const Completion found = CompletionOf(kTable, words);
  std::string offers;
  for (const Completion::Offer& offer : found.offers) offers += offer.word + " ";
  return offers + (found.files ? "/" : "");
}

TEST(CompletionTest, OffersWhatFits) {
  EXPECT_EQ(Offers({}), "brew drain ");
  EXPECT_EQ(Offers({"br"}), "brew ");
  EXPECT_EQ(Offers({"self"}), "");
  EXPECT_EQ(Offers({"brew", "--cu"}), "--cups ");
  EXPECT_EQ(Offers({"--j"}), "--json ");
  EXPECT_EQ(Offers({"brew", "--mode", ""}), "fast slow ");
  EXPECT_EQ(Offers({"brew", "--mode", "s"}), "slow ");
  EXPECT_EQ(Offers({"brew", "--mode=s"}), "--mode=slow ");
  EXPECT_EQ(Offers({"brew", "--cups", ""}), "");
  EXPECT_EQ(Offers({"brew", "-o", ""}), "/");
  EXPECT_EQ(Offers({"brew", "--json", ""}), "/");
  EXPECT_EQ(Offers({"--server", "x", "drain", ""}), "");
}

TEST(CompletionTest, OfferedWordsComeWithTheirHelp) {
  const Completion found = CompletionOf(kTable, std::vector<std::string>{"brew", "--out"});
  ASSERT_EQ(found.offers.size(), 1);
  EXPECT_EQ(found.offers[0].help, "result's file");
}

TEST(NearestTest, PrefersTheFewestEdits) {
  EXPECT_EQ(Nearest("uplod", {"download", "upload"}), "upload");
  EXPECT_EQ(Nearest("zzzzzz", {"download", "upload"}), "");
  EXPECT_EQ(Nearest("", {"info"}), "");
}

TEST(OutputTest, TablePadsTextLeftAndNumbersRight) {
  EXPECT_EQ(Table({{"name", "bytes"}, {"a", "5"}, {"long", "12345678"}}),
            "name  bytes\na            5\nlong  12345678\n");
}

TEST(OutputTest, HumanUnits) {
  EXPECT_EQ(HumanBytes(512), "512 B");
  EXPECT_EQ(HumanBytes(1.5 * 1024 * 1024 * 1024), "1.50 GiB");
  EXPECT_EQ(HumanSeconds(85e-6), "85.0 us");
  EXPECT_EQ(HumanSeconds(0.0032), "3.20 ms");
  EXPECT_EQ(HumanSeconds(2), "2.000 s");
}

}  // namespace
}  // namespace gemmd::cli
