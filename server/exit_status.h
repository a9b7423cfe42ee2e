// How gemmd ends; options.cc's usage tells what each means.

#ifndef GEMMD_SERVER_EXIT_STATUS_H_
#define GEMMD_SERVER_EXIT_STATUS_H_

namespace gemmd::server {

enum ExitStatus { kOk = 0, kFailed = 1, kBadConfig = 2, kCutShort = 3, kNoDevice = 4 };

}  // namespace gemmd::server

#endif  // GEMMD_SERVER_EXIT_STATUS_H_
