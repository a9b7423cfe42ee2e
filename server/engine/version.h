// The version that --version, ServerInfo and gemmd_build_info show. CMake's project() has it.

#ifndef GEMMD_SERVER_ENGINE_VERSION_H_
#define GEMMD_SERVER_ENGINE_VERSION_H_

namespace gemmd::server {

extern const char kVersion[];

}  // namespace gemmd::server

#endif  // GEMMD_SERVER_ENGINE_VERSION_H_
