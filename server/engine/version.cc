#include "server/engine/version.h"

namespace gemmd::server {

const char kVersion[] = GEMMD_VERSION;

}  // namespace gemmd::server
