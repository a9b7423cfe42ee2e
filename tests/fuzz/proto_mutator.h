// Mutates protobuf messages field by field, through reflection, so that a fuzzer spends its time
// behind the parser. Inputs are text format: a finding can be read, and committed, as it is.
//
//   GEMMD_PROTO_FUZZER(gemmd::v1::ExecuteRequest, request) { Run(request); }

#pragma once

#include <cstddef>
#include <cstdint>

#include "google/protobuf/message.h"

namespace gemmd::fuzz {

// False for text that is not a message of this type; what parsed before the error is dropped.
bool ParseText(const uint8_t* data, size_t size, google::protobuf::Message& message);

// LLVMFuzzerCustomMutator's job for inputs of `message`'s type: one to four changes, deterministic
// in `seed`. Returns the new size, at most `max_size`.
size_t MutateText(uint8_t* data, size_t size, size_t max_size, unsigned int seed,
                  google::protobuf::Message& message);

// LLVMFuzzerCustomCrossOver's: `other`'s repeated fields and messages merged into one.
size_t CrossOverText(const uint8_t* one, size_t one_size, const uint8_t* other, size_t other_size,
                     uint8_t* out, size_t max_size, google::protobuf::Message& message);

}  // namespace gemmd::fuzz

#define GEMMD_PROTO_FUZZER(Type, name)                                                           \
  static void TestOneMessage(const Type& name);                                                  \
  extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,         \
                                            unsigned int seed) {                                 \
    Type message;                                                                                \
    return gemmd::fuzz::MutateText(data, size, max_size, seed, message);                         \
  }                                                                                              \
  extern "C" size_t LLVMFuzzerCustomCrossOver(const uint8_t* one, size_t one_size,               \
                                              const uint8_t* other, size_t other_size,           \
                                              uint8_t* out, size_t max_size, unsigned int) {     \
    Type message;                                                                                \
    return gemmd::fuzz::CrossOverText(one, one_size, other, other_size, out, max_size, message); \
  }                                                                                              \
  extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {                      \
    Type message;                                                                                \
    if (!gemmd::fuzz::ParseText(data, size, message)) return -1;                                 \
    TestOneMessage(message);                                                                     \
    return 0;                                                                                    \
  }                                                                                              \
  static void TestOneMessage(const Type& name)
