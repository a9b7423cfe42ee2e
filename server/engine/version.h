// The version that --version, ServerInfo and gemmd_build_info show.

#ifndef GEMMD_SERVER_ENGINE_VERSION_H_
#define GEMMD_SERVER_ENGINE_VERSION_H_

namespace gemmd::server {

inline constexpr char kVersion[] = "0.1.0";

}  // namespace gemmd::server

#endif  // GEMMD_SERVER_ENGINE_VERSION_H_
