// What to write instead, where protobuf's parser says only what is wrong with a config's text.

#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace gemmd::server {

// "; give .." behind the parser's words for an unknown field or value, "; .." behind those for
// syntax that is another format's; "" behind others.
std::string RemedyFor(absl::string_view parser_error);

}  // namespace gemmd::server
