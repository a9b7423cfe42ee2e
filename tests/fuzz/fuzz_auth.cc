// What a call says of itself: bearer tokens, trace contexts, and headers that would like to be
// heard. Nobody gets in without the token, and whatever the headers say, the tenant is the token's.

#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gemmd/v1/device_service.grpc.pb.h"
#include "server/config/load.h"
#include "server/engine/sessions/token_file.h"
#include "server/server.h"
#include "server/service/compute/trace_context.h"

namespace {

namespace v1 = gemmd::v1;
using gemmd::server::Server;

constexpr char kToken[] = "a-token-of-more-than-32-characters";
// The first is the one that counts.
constexpr const char* kKeys[] = {"authorization", "traceparent", "x-tenant",   "gemmd-tenant",
                                 "tracestate",    "cookie",      "x-user-bin", "gemmd-role"};

[[noreturn]] void Die(const std::string& what) {
  std::fprintf(stderr, "fuzz_auth: %s\n", what.c_str());
  std::abort();
}

// A server whose one listener asks for a token, and a channel to it.
class Guarded {
 public:
  static Guarded& Get() {
    static Guarded* guarded = new Guarded();  // its threads run to the end of the process
    return *guarded;
  }

  using Metadata = std::vector<std::pair<std::string, std::string>>;
  grpc::Status Call(const Metadata& metadata, v1::ServerInfo* info) {
    grpc::ClientContext context;
    for (const auto& [key, value] : metadata) context.AddMetadata(key, value);
    context.set_wait_for_ready(true);
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
    return stub_->GetServerInfo(&context, v1::GetServerInfoRequest(), info);
  }

 private:
  Guarded() {
    const std::string file = absl::StrCat("/tmp/gemmd-fuzz-tokens-", getpid());
    const auto hash = gemmd::server::HashToken(kToken);
    std::ofstream(file) << "sha256:"
                        << absl::BytesToHexString(std::string(hash.begin(), hash.end()))
                        << " fuzz red user\n";
    const std::string address = absl::StrCat("unix-abstract:gemmd-fuzz-auth-", getpid());
    auto config = gemmd::server::ParseConfig(absl::StrCat(
        "listeners { address: \"", address, "\" credentials: CREDENTIAL_TOKEN }",
        "tenants { name: \"default\" } tenants { name: \"red\" }", "auth { token_file: \"", file,
        "\" } share { disabled: true } log { level: LEVEL_ERROR }",
        "devices { name: \"cpu:0\" threads: 1 memory_bytes: 16777216 }"));
    if (!config.ok()) Die(config.status().ToString());
    auto started = Server::Start(*config);
    unlink(file.c_str());  // was read at the start; that it is gone later changes nothing
    if (!started.ok()) Die(started.status().ToString());
    server_ = *std::move(started);
    stub_ = v1::DeviceService::NewStub(
        grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
  }

  std::unique_ptr<Server> server_;
  std::unique_ptr<v1::DeviceService::Stub> stub_;
};

// What gRPC's own client lets through; bytes that it would refuse are the parsers' turn above.
std::string Printable(std::string_view value) {
  std::string text;
  for (const char c : value) text += static_cast<char>(' ' + static_cast<unsigned char>(c) % 95);
  return text;
}

}  // namespace

// Records of {key, length, that many bytes of value}. A value that begins with 'T' gets the token
// in the place of the 'T'.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view raw(reinterpret_cast<const char*>(data), size);
  if (const auto trace = gemmd::server::TraceContext::Parse(raw)) {
    if (trace->trace_id.size() != 32 || trace->flags.size() != 2) Die("a trace id that is none");
  }
  Guarded::Metadata metadata;
  bool shows_token = false;
  for (size_t at = 0; at + 2 <= size && at < 4096;) {
    const std::string key = kKeys[raw[at] % std::size(kKeys)];
    const size_t bytes = static_cast<unsigned char>(raw[at + 1]);
    std::string value(raw.substr(at + 2, bytes));
    at += 2 + bytes;
    if (!key.ends_with("-bin")) value = Printable(value);
    const size_t place = value.find('T');
    if (place != std::string::npos) value.replace(place, 1, kToken);
    shows_token |= key == kKeys[0] && value.find(kToken) != std::string::npos;
    metadata.emplace_back(key, value);
  }
  v1::ServerInfo info;
  grpc::Status status = Guarded::Get().Call(metadata, &info);
  // The fuzzer stops all threads to look for leaks, on a busy machine for longer than keepalive
  // waits for an answer; the channel then needs a moment to see that its connection is gone.
  for (int i = 0; i < 5 && status.error_code() == grpc::StatusCode::UNAVAILABLE; ++i) {
    absl::SleepFor(absl::Milliseconds(50));
    status = Guarded::Get().Call(metadata, &info);
  }
  if (status.ok()) {
    if (!shows_token) Die("let somebody in without the token");
    if (info.tenant() != "red") Die("the tenant is " + info.tenant());
    return 0;
  }
  // Headers beyond 8 KiB never reach a service.
  if (status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED) return 0;
  if (status.error_code() != grpc::StatusCode::UNAUTHENTICATED || status.error_message().empty()) {
    Die(absl::StrCat("code ", status.error_code(), ": ", status.error_message()));
  }
  return 0;
}
