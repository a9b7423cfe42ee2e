// Every RPC that the proto files declare, for tests that must miss none.

#pragma once

#include <string>
#include <vector>

namespace gemmd::e2e {

struct DeclaredRpc {
  std::string name;  // "SessionService/OpenSession"
  // A request with a string of one byte that is not UTF-8; empty where no field is a string.
  std::string not_utf8;

  std::string method() const { return name.substr(name.find('/') + 1); }
};

// In the files' order. Ends the test program when they cannot be read.
std::vector<DeclaredRpc> DeclaredRpcs();

}  // namespace gemmd::e2e
