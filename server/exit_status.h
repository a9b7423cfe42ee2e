// How gemmd ends; options.cc's usage tells what each means.

#pragma once

namespace gemmd::server {

enum ExitStatus { kOk = 0, kFailed = 1, kBadConfig = 2, kCutShort = 3, kNoDevice = 4 };

}  // namespace gemmd::server
