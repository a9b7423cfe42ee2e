// The version that --version, ServerInfo and gemmd_build_info show. CMake's project() has it.

#pragma once

namespace gemmd::server {

extern const char kVersion[];

}  // namespace gemmd::server
