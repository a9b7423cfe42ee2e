#include "tests/e2e/armed_wire.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace gemmd::e2e {
namespace {

void Check(const grpc::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "armed wire: %s\n", status.error_message().c_str());
  std::abort();
}

void Check(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "armed wire: %s\n", what);
  std::abort();
}

}  // namespace

int FetchDescriptor(const std::string& share_socket, const std::string& token) {
  const bool abstract = share_socket.starts_with("unix-abstract:");
  const std::string name =
      abstract ? std::string(1, '\0') + share_socket.substr(14) : share_socket.substr(5);
  sockaddr_un target = {};
  target.sun_family = AF_UNIX;
  std::memcpy(target.sun_path, name.data(), name.size());
  const int connection = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  Check(connect(connection, reinterpret_cast<sockaddr*>(&target),
                offsetof(sockaddr_un, sun_path) + name.size()) == 0,
        "connect");
  const std::string request = "G" + token;
  Check(send(connection, request.data(), request.size(), MSG_NOSIGNAL) ==
            static_cast<ssize_t>(request.size()),
        "send");
  char bytes[256];
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
  iovec data = {bytes, sizeof(bytes)};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  Check(recvmsg(connection, &message, MSG_CMSG_CLOEXEC) >= 1, "receive");
  close(connection);
  const cmsghdr* part = CMSG_FIRSTHDR(&message);
  Check(part != nullptr && part->cmsg_type == SCM_RIGHTS, "no descriptor came");
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(part), sizeof(fd));
  return fd;
}

ArmedWire::ArmedWire(Wire& wire, int slots, const std::string& session)
    : wire_(wire),
      session_(session.empty() ? wire.OpenSession("armed") : session),
      stub_(v1::ArmedService::NewStub(wire.channel())) {
  v1::GetArmedRegionRequest request;
  request.set_session_id(session_);
  request.set_slots(slots);
  v1::ArmedRegion region;
  grpc::ClientContext context;
  Check(stub_->GetArmedRegion(&context, request, &region));
  Check(region.layout_version() == GEMMD_ARMED_VERSION, "layout version");
  memfd_ = FetchDescriptor(region.share_socket(), region.region_token());
  wake_fd_ = FetchDescriptor(region.share_socket(), region.wake_token());
  caller_ = std::make_unique<ArmedCaller>(memfd_, wake_fd_, region.slots());
}

ArmedWire::~ArmedWire() {
  close(memfd_);
  close(wake_fd_);
}

std::string ArmedWire::Plan(const std::vector<v1::Op>& ops) {
  v1::CreatePlanRequest request;
  request.set_session_id(session_);
  request.mutable_ops()->Add(ops.begin(), ops.end());
  request.set_label("armed");
  v1::Plan plan;
  grpc::ClientContext context;
  Check(wire_.compute().CreatePlan(&context, request, &plan));
  return plan.plan_id();
}

grpc::Status ArmedWire::Arm(const v1::ArmPlanRequest& request, v1::ArmedPlan& armed) {
  grpc::ClientContext context;
  return stub_->ArmPlan(&context, request, &armed);
}

int ArmedWire::Arm(const std::string& plan, bool rung_by_stream) {
  v1::ArmPlanRequest request;
  request.set_session_id(session_);
  request.set_plan_id(plan);
  request.set_rung_by_stream(rung_by_stream);
  v1::ArmedPlan armed;
  Check(Arm(request, armed));
  return armed.slot();
}

grpc::Status ArmedWire::Disarm(const std::vector<int>& slots) {
  v1::DisarmPlanRequest request;
  request.set_session_id(session_);
  request.mutable_slots()->Add(slots.begin(), slots.end());
  v1::DisarmPlanResponse response;
  grpc::ClientContext context;
  return stub_->DisarmPlan(&context, request, &response);
}

v1::ListArmedResponse ArmedWire::List() {
  v1::ListArmedRequest request;
  request.set_session_id(session_);
  v1::ListArmedResponse response;
  grpc::ClientContext context;
  Check(stub_->ListArmed(&context, request, &response));
  return response;
}

ArmedMatmul::ArmedMatmul(Wire& wire, const std::string& owner, float value)
    : session(owner),
      a(wire.CreateBuffer(owner, 64)),
      b(wire.CreateBuffer(owner, 64)),
      d(wire.CreateBuffer(owner, 64)) {
  Check(wire.Execute(session, {FillOp(View(a, {4, 4}), 1), FillOp(View(b, {4, 4}), value)}));
}

std::vector<v1::Op> ArmedMatmul::ops() const {
  return {MatmulOp(View(a, {4, 4}), View(b, {4, 4}), View(d, {4, 4}))};
}

float ArmedMatmul::Result(Wire& wire) const {
  v1::ExecuteResponse response;
  Check(wire.Execute(session, {ReadOp(View(d, {4, 4}))}, &response));
  float first = 0;
  std::memcpy(&first, response.outputs(0).data(), sizeof(first));
  return first;
}

}  // namespace gemmd::e2e
