#include "tests/e2e/declared_rpcs.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>

#include <cstdio>
#include <cstdlib>

#include "tests/e2e/process.h"

namespace gemmd::e2e {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

// The wire format of field number (at most 15) `= "\xff"`: a tag, a length, a byte.
std::string NotUtf8(const Descriptor& message) {
  for (int i = 0; i < message.field_count(); ++i) {
    const FieldDescriptor& field = *message.field(i);
    if (field.type() != FieldDescriptor::TYPE_STRING) continue;
    return {static_cast<char>(field.number() << 3 | 2), 1, '\xff'};
  }
  return "";
}

}  // namespace

std::vector<DeclaredRpc> DeclaredRpcs() {
  google::protobuf::FileDescriptorSet files;
  if (!files.ParseFromString(ReadFile(GEMMD_SERVICES))) {
    std::fprintf(stderr, "%s holds no descriptors\n", GEMMD_SERVICES);
    std::abort();
  }
  google::protobuf::DescriptorPool pool;
  std::vector<DeclaredRpc> rpcs;
  for (const auto& proto : files.file()) {
    const google::protobuf::FileDescriptor* file = pool.BuildFile(proto);
    for (int s = 0; s < file->service_count(); ++s) {
      for (int m = 0; m < file->service(s)->method_count(); ++m) {
        const auto& method = *file->service(s)->method(m);
        rpcs.push_back({.name = file->service(s)->name() + "/" + method.name(),
                        .not_utf8 = NotUtf8(*method.input_type())});
      }
    }
  }
  return rpcs;
}

}  // namespace gemmd::e2e
