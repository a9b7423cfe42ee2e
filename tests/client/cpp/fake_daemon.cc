#include "tests/client/cpp/fake_daemon.h"

#include <grpcpp/health_check_service_interface.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cpp/errors.h"
#include "tests/client/cpp/fake_state.h"

namespace gemmd::client {

grpc::Status ToGrpc(const absl::Status& status, grpc::ServerContextBase* context) {
  if (status.ok()) return grpc::Status::OK;
  const std::string reason = ReasonOf(status);
  if (!reason.empty()) {
    context->AddTrailingMetadata("gemmd-reason", reason);
    context->AddTrailingMetadata("gemmd-request-id", "r-1");
  }
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), std::string(status.message()));
}

std::string FakeState::NewId() { return absl::StrFormat("id%014d", next_id++); }

FakeBuffer* FakeState::Find(const std::string& id) {
  for (auto& [name, buffer] : buffers) {
    if (name == id) return &buffer;
  }
  return nullptr;
}

std::optional<Failure> FakeState::Begin(const std::string& method,
                                        grpc::ServerContextBase* context) {
  ++calls[method];
  for (const auto& [key, value] : context->client_metadata()) {
    metadata[std::string(key.data(), key.size())] = std::string(value.data(), value.size());
  }
  std::deque<Failure>& list = failures[method];
  if (list.empty()) return std::nullopt;
  const Failure failure = list.front();
  list.pop_front();
  return failure;
}

FakeDaemon::FakeDaemon() : FakeDaemon(Options()) {}

FakeDaemon::FakeDaemon(const Options& options) : state_(std::make_unique<FakeState>(options)) {
  static std::atomic<int> count = 0;
  const std::string name =
      options.name.empty() ? absl::StrCat("gemmd-fake-", getpid(), "-", count++) : options.name;
  if (options.share) state_->share = std::make_unique<FakeShare>(*state_);
  state_->services.push_back(MakeFakeSessions(*state_));
  state_->services.push_back(MakeFakeBuffers(*state_));
  state_->services.push_back(MakeFakeCompute(*state_));
  state_->services.push_back(MakeFakeDevices(*state_));
  grpc::EnableDefaultHealthCheckService(true);
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(
      options.loopback ? "127.0.0.1:0" : absl::StrCat("unix-abstract:", name),
      options.credentials != nullptr ? options.credentials : grpc::InsecureServerCredentials(),
      &port);
  for (const auto& service : state_->services) builder.RegisterService(service.get());
  state_->server = builder.BuildAndStart();
  if (state_->server == nullptr) {
    std::fprintf(stderr, "the fake daemon cannot listen\n");
    std::abort();
  }
  state_->server->GetHealthCheckService()->SetServingStatus("cpu:0", false);
  target_ =
      options.loopback ? absl::StrCat("127.0.0.1:", port) : absl::StrCat("unix-abstract:", name);
}

FakeDaemon::~FakeDaemon() {
  {
    absl::MutexLock lock(&state_->mu);
    state_->stopping = true;
  }
  state_->server->Shutdown(std::chrono::system_clock::now());
  state_->server->Wait();
  state_->share.reset();
}

void FakeDaemon::Fail(absl::string_view method, absl::Status status, int times, bool after) {
  absl::MutexLock lock(&state_->mu);
  for (int i = 0; i < times; ++i) {
    state_->failures[std::string(method)].push_back({status, after, /*stall=*/false});
  }
}

void FakeDaemon::Stall(absl::string_view method, int times) {
  absl::MutexLock lock(&state_->mu);
  for (int i = 0; i < times; ++i) {
    state_->failures[std::string(method)].push_back({{}, /*after=*/false, /*stall=*/true});
  }
}

int FakeDaemon::Calls(absl::string_view method) const {
  absl::MutexLock lock(&state_->mu);
  return state_->calls[std::string(method)];
}

std::string FakeDaemon::LastMetadata(absl::string_view key) const {
  absl::MutexLock lock(&state_->mu);
  return state_->metadata[std::string(key)];
}

int FakeDaemon::ProgramsRun() const {
  absl::MutexLock lock(&state_->mu);
  return state_->programs;
}

int FakeDaemon::OpenSessions() const {
  absl::MutexLock lock(&state_->mu);
  return static_cast<int>(state_->sessions.size());
}

int FakeDaemon::HeldSessions() const {
  absl::MutexLock lock(&state_->mu);
  return state_->holds;
}

std::vector<std::string> FakeDaemon::Buffers() const {
  absl::MutexLock lock(&state_->mu);
  std::vector<std::string> ids;
  for (const auto& [id, buffer] : state_->buffers) ids.push_back(id);
  return ids;
}

int FakeDaemon::Plans() const {
  absl::MutexLock lock(&state_->mu);
  return static_cast<int>(state_->plans.size());
}

std::string FakeDaemon::Bytes(absl::string_view buffer_id) const {
  absl::MutexLock lock(&state_->mu);
  FakeBuffer* buffer = state_->Find(std::string(buffer_id));
  if (buffer == nullptr) return "no such buffer";
  return std::string(buffer->data(), static_cast<size_t>(buffer->info.size_bytes()));
}

void FakeDaemon::Forget(absl::string_view buffer_id) {
  absl::MutexLock lock(&state_->mu);
  std::erase_if(state_->buffers, [&](const auto& entry) { return entry.first == buffer_id; });
}

void FakeDaemon::EndSessions() {
  absl::MutexLock lock(&state_->mu);
  state_->sessions.clear();
  ++state_->hold_generation;
}

void FakeDaemon::CutHolds() {
  absl::MutexLock lock(&state_->mu);
  ++state_->hold_generation;
}

void FakeDaemon::AnnounceDrain(absl::Time deadline) {
  absl::MutexLock lock(&state_->mu);
  state_->drain = deadline;
}

void FakeDaemon::ServeHealth(bool serving) {
  state_->server->GetHealthCheckService()->SetServingStatus(serving);
}

void FakeDaemon::LimitBuffers(int most) {
  absl::MutexLock lock(&state_->mu);
  state_->most_buffers = most;
}

void FakeDaemon::CutUploads(int after_chunks, int times) {
  absl::MutexLock lock(&state_->mu);
  state_->cut_upload_after = after_chunks;
  state_->cut_uploads = times;
}

void FakeDaemon::DamageUpload(int chunk) {
  absl::MutexLock lock(&state_->mu);
  state_->damaged_upload = chunk;
}

void FakeDaemon::CutDownloads(int after_chunks, int times) {
  absl::MutexLock lock(&state_->mu);
  state_->cut_download_after = after_chunks;
  state_->cut_downloads = times;
}

void FakeDaemon::DamageDownloads(int times) {
  absl::MutexLock lock(&state_->mu);
  state_->damaged_downloads = times;
}

void FakeDaemon::HoldCompletions() {
  absl::MutexLock lock(&state_->mu);
  state_->hold_completions = true;
}

void FakeDaemon::ReleaseCompletions(int per_message) {
  absl::MutexLock lock(&state_->mu);
  state_->hold_completions = false;
  state_->completions_per_message = per_message;
}

int FakeDaemon::BatchesHeld() const {
  absl::MutexLock lock(&state_->mu);
  return state_->batches_held;
}

int FakeDaemon::MostBatchesInFlight() const {
  absl::MutexLock lock(&state_->mu);
  return state_->most_in_flight;
}

std::vector<int> FakeDaemon::QueueMessages() const {
  absl::MutexLock lock(&state_->mu);
  return state_->queue_messages;
}

void FakeDaemon::FailBatch(int64_t sequence, absl::Status status) {
  absl::MutexLock lock(&state_->mu);
  state_->batch_failures[sequence] = std::move(status);
}

void FakeDaemon::CutQueueAt(int64_t sequence) {
  absl::MutexLock lock(&state_->mu);
  state_->cut_queue_at = sequence;
}

void FakeDaemon::MisorderCompletions() {
  absl::MutexLock lock(&state_->mu);
  state_->misorder = true;
}

Client ConnectTo(const FakeDaemon& daemon, ClientOptions options) {
  options.retry.initial_backoff = absl::Milliseconds(1);
  options.retry.max_backoff = std::max(options.retry.initial_backoff, absl::Milliseconds(5));
  absl::StatusOr<Client> client = Client::Connect(daemon.target(), options);
  if (!client.ok()) {
    std::fprintf(stderr, "%s\n", client.status().ToString().c_str());
    std::abort();
  }
  return *std::move(client);
}

}  // namespace gemmd::client
