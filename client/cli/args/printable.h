// Text of others as a terminal may show it. Servers, their other users and files choose names,
// labels and messages; a control character in one would move the cursor, set the window's title or
// reorder what stands beside it.

#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace gemmd::cli {

// One line of it. Control characters (C0, DEL, C1), line separators, bidirectional controls,
// invisible format characters and bytes that are not UTF-8 become escapes: "\n", "\x1b", "\u202e".
// All else stays, backslashes included, so that printable text comes out as it went in.
std::string Printable(absl::string_view text);

// The same, but a newline stays one: for text whose lines are ours. What others wrote within a line
// has to go through Printable before.
std::string PrintableLines(absl::string_view text);

// A JSON document with such characters as \u escapes; it means the same. `json` must be valid
// UTF-8.
std::string PrintableJson(absl::string_view json);

}  // namespace gemmd::cli
