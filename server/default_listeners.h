// Where a gemmd serves that was given neither a config nor an address. Clients look there too:
// client/cpp/default_target.h and
// client/python/src/gemmd/_connection/target.py.

#pragma once

#include <string>
#include <vector>

namespace gemmd::server {

// "127.0.0.1:8470", and a Unix socket in $XDG_RUNTIME_DIR/gemmd, or without that variable in
// /run/gemmd for root and in /tmp/gemmd-UID for others.
std::vector<std::string> DefaultListeners();

}  // namespace gemmd::server
