// Escaping for log values: what goes in may come from a client, what comes out cannot end a line, a
// string or a JSON document, nor move a terminal's cursor.

#pragma once

#include <string>
#include <string_view>

namespace gemmd::server {

// Appends `value` in double quotes, as a JSON string: quotes, backslashes, control characters (C0,
// DEL, C1), line separators and bidirectional overrides become escapes; a byte that is not UTF-8
// becomes U+FFFD. At most 6 bytes out for a byte in.
void AppendQuoted(std::string_view value, std::string& out);

}  // namespace gemmd::server
