// gemmctl before a server, and files, that put control characters into all that they say. What it
// prints moves no cursor, sets no title and reorders no text.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/client/cli/lying_server.h"
#include "tests/e2e/process.h"

namespace gemmd::cli {
namespace {

using e2e::Finished;
using e2e::RunToEnd;
using e2e::TempDir;
using e2e::WriteFile;
using ::testing::HasSubstr;

// A title, a colour by C1, a right-to-left override, an isolate, a forged line, DEL.
constexpr char kLie[] = "\x1b]0;owned\x07 \u009b31m \u202egnp \u2066x \r\nforged line\x7f";

// The first byte or character that a terminal would act on, with what surrounds it; "" if there is
// none.
std::string Active(const std::string& text) {
  const auto around = [&](size_t at) {
    return absl::StrCat("at byte ", at, ": ", testing::PrintToString(text.substr(at, 40)));
  };
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if ((byte < 0x20 && byte != '\n') || byte == 0x7f) return around(i);
  }
  for (const char* sign : {"\u009b", "\u202e", "\u2066"}) {
    if (const size_t at = text.find(sign); at != text.npos) return around(at);
  }
  return "";
}

Finished Ctl(std::vector<std::string> args, const LyingServer& server) {
  args.insert(args.begin(), GEMMCTL_PATH);
  args.insert(args.end(), {"--server", server.target(), "--timeout", "20s"});
  return RunToEnd(args);
}

const std::vector<std::vector<std::string>>& Looks() {
  static const auto* looks = new std::vector<std::vector<std::string>>{
      {"info"},
      {"sessions"},
      {"kernels"},
      {"buffers"},
      {"explain"},
      {"log"},
      {"top", "--once", "--interval", "10ms"},
  };
  return *looks;
}

class LyingTest : public testing::TestWithParam<bool> {};

TEST_P(LyingTest, NothingThatAServerSaysReachesATerminalAsItIs) {
  const LyingServer server(kLie, /*refuses=*/GetParam());
  for (const std::vector<std::string>& look : Looks()) {
    const Finished text = Ctl(look, server);
    EXPECT_EQ(Active(text.out + text.err), "") << look[0];
    EXPECT_EQ((text.out + "\n" + text.err).find("\nforged line"), std::string::npos) << look[0];
    EXPECT_THAT(text.out + text.err, HasSubstr("\\x1b]0;owned\\x07")) << look[0];
    EXPECT_EQ(text.status, GetParam() ? 5 : 0) << look[0] << text.err;

    std::vector<std::string> as_json = look;
    as_json.push_back("--json");
    const Finished document = Ctl(as_json, server);
    EXPECT_EQ(Active(document.out + document.err), "") << look[0];
    // Escaped, not changed.
    EXPECT_THAT(nlohmann::json::parse(document.out, nullptr, false).dump(),
                HasSubstr(nlohmann::json(kLie).dump().substr(1, 40)))
        << look[0];
  }
}

TEST_P(LyingTest, NorDoesItInCommandsThatChangeThings) {
  const LyingServer server(kLie, /*refuses=*/GetParam());
  TempDir dir;
  for (const std::vector<std::string>& args : std::vector<std::vector<std::string>>{
           {"trace", "-o", "-", "--for", "10ms"},
           {"end", "s-1"},
           {"unpublish", "w"},
           {"buffers", "w"},
           {"download", "w", dir.File("w.npy")},
           {"health", "cpu:0"},
       }) {
    const Finished done = Ctl(args, server);
    EXPECT_EQ(Active(done.out + done.err), "") << args[0];
  }
}

INSTANTIATE_TEST_SUITE_P(AnswersAndErrors, LyingTest, testing::Bool());

TEST(LyingFileTest, NamesAndTypesOfAFileAreEscaped) {
  TempDir dir;
  const auto save = [&](const std::string& name, const nlohmann::json& header,
                        const std::string& data) {
    const std::string json = header.dump();
    WriteFile(dir.File(name), std::string(1, static_cast<char>(json.size() & 255)) +
                                  static_cast<char>(json.size() >> 8) + std::string(6, '\0') +
                                  json + data);
    return dir.File(name);
  };
  const nlohmann::json tensor = {{"dtype", "F32"}, {"shape", {1, 1}}, {"data_offsets", {0, 4}}};
  nlohmann::json typed = tensor;
  typed["dtype"] = kLie;
  const std::string files[] = {
      save("name.safetensors", {{kLie, tensor}}, "xx"),   // cut short
      save("dtype.safetensors", {{"w", typed}}, "xxxx"),  // of no known type
      save("both.safetensors", {{kLie, typed}, {"w", tensor}}, "xxxx"),
      save("key.safetensors", {{"w", {{kLie, 1}}}}, ""),
  };
  for (const std::string& file : files) {
    for (const char* json : {"--quiet", "--json"}) {
      const Finished done = RunToEnd({GEMMCTL_PATH, "matmul", file, file, json});
      EXPECT_EQ(done.status, 3) << file << done.err;
      EXPECT_EQ(Active(done.out + done.err), "") << file;
      EXPECT_EQ(done.err.find("\nforged line"), std::string::npos) << file;
    }
  }
}

}  // namespace
}  // namespace gemmd::cli
