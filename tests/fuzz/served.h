// A whole Server in the fuzzer's process, behind a Unix socket: requests take the way they take in
// the daemon, from gRPC's parser to the CPU backend.
//
//   Served& served = Served::Get();
//   served.Bind(request);                       // "3" in a buffer_id becomes a real handle
//   served.compute().Execute(...);
//   served.Check();                             // still serves, nothing is left behind

#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>
#include <vector>

#include "gemmd/v1/admin_service.grpc.pb.h"
#include "gemmd/v1/buffer_service.grpc.pb.h"
#include "gemmd/v1/compute_service.grpc.pb.h"
#include "gemmd/v1/device_service.grpc.pb.h"
#include "gemmd/v1/session_service.grpc.pb.h"
#include "server/server.h"

namespace gemmd::fuzz {

class Served {
 public:
  static Served& Get();  // started by the first call, ends with the process

  // Every bytes field of one digit that names a session, buffer or plan becomes the handle of that
  // number; an empty session_id becomes the session. Everything else stays as the fuzzer made it.
  void Bind(google::protobuf::Message& message) const;

  // Ends the program unless `status` is a verdict on the request: INTERNAL and UNKNOWN are the
  // server's fault, UNAVAILABLE means it is gone, and a refusal without words helps nobody.
  void Judge(const grpc::Status& status) const;

  // A small matmul still gives the right product. Every 64th call, to keep the fuzzer fast.
  void Check();

  // A fresh session with its buffers and plan when the fuzzer has closed or emptied the last one.
  void Restore();

  // A context with a deadline: what a fuzzer starts must end.
  static std::unique_ptr<grpc::ClientContext> Context();

  const std::string& session() const { return session_; }
  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }
  v1::SessionService::Stub& sessions() { return *sessions_; }
  v1::BufferService::Stub& buffers() { return *buffers_; }
  v1::ComputeService::Stub& compute() { return *compute_; }
  v1::DeviceService::Stub& devices() { return *devices_; }
  v1::AdminService::Stub& admin() { return *admin_; }

 private:
  Served();
  void OpenSession();

  std::unique_ptr<server::Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::SessionService::Stub> sessions_;
  std::unique_ptr<v1::BufferService::Stub> buffers_;
  std::unique_ptr<v1::ComputeService::Stub> compute_;
  std::unique_ptr<v1::DeviceService::Stub> devices_;
  std::unique_ptr<v1::AdminService::Stub> admin_;
  std::string session_;
  // 0 to 2: 64 KiB untyped. 3: F32 [64, 64]. 4: E4M3 [64, 256]. 5: BF16 [3, 32, 32]. 6: 4 bytes.
  // 7: 64 KiB of shared memory. 8: published. 9: of a session that has ended.
  std::vector<std::string> buffers_by_digit_;
  std::string plan_;
  int checks_ = 0;
};

}  // namespace gemmd::fuzz
