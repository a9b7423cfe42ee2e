// Man pages, written from the command table.

#pragma once

#include <string>
#include <vector>

#include "client/cli/args/command.h"

namespace gemmd::cli {

struct ManPage {
  std::string name;  // "gemmctl-matmul"; its file is NAME.1
  std::string text;  // roff, with the macros of man(7)
};

// The program's page first, then one for each visible command. `version` stands at their foot.
std::vector<ManPage> ManPages(const CommandTable& table, absl::string_view version);

}  // namespace gemmd::cli
