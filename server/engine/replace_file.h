// Writing files that others read: whole or not at all.

#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

namespace gemmd::server {

// errno, or 0.
int WriteAll(int fd, std::string_view text);

struct ReplaceOptions {
  mode_t mode = 0666;   // of a new file, less the umask
  bool synced = false;  // on the disk before it takes the old one's place
};

// Writes a draft beside `path` and renames it; a draft that comes to nothing is removed. errno, or
// 0.
int ReplaceFile(const std::string& path, std::string_view text, const ReplaceOptions& options);

}  // namespace gemmd::server
