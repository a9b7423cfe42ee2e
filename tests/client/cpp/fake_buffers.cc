#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "client/cpp/internal/transfers/crc32c.h"
#include "tests/client/cpp/fake_reason.h"
#include "tests/client/cpp/fake_state.h"

namespace gemmd::client {
namespace {

class Buffers final : public v1::BufferService::Service {
 public:
  explicit Buffers(FakeState& state) : state_(state) {}

  grpc::Status CreateBuffer(grpc::ServerContext* context, const v1::CreateBufferRequest* request,
                            v1::Buffer* response) override {
    return state_.Serve("CreateBuffer", context, [&]() -> absl::Status {
      if (static_cast<int>(state_.buffers.size()) >= state_.most_buffers) {
        return Signed(absl::ResourceExhaustedError("too many buffers"), "BUFFER_LIMIT");
      }
      FakeBuffer buffer;
      int64_t size = request->shape().empty() ? 0 : 4;
      for (int64_t extent : request->shape()) size *= extent;
      buffer.info.set_size_bytes(std::max(size, request->size_bytes()));
      buffer.info.set_device(request->device().empty() ? "cpu:0" : request->device());
      buffer.info.set_memory_kind(request->memory_kind());
      buffer.info.set_dtype(request->dtype());
      *buffer.info.mutable_shape() = request->shape();
      buffer.info.set_label(request->label());
      if (request->memory_kind() == v1::MEMORY_KIND_HOST_SHARED) {
        buffer.memory = *SharedMemory::Create(buffer.info.size_bytes());
      } else {
        buffer.bytes.resize(static_cast<size_t>(buffer.info.size_bytes()));
      }
      *response = Add(std::move(buffer));
      return absl::OkStatus();
    });
  }

  grpc::Status GetBuffer(grpc::ServerContext* context, const v1::GetBufferRequest* request,
                         v1::Buffer* response) override {
    return state_.Serve("GetBuffer", context, [&]() -> absl::Status {
      FakeBuffer* buffer = state_.Find(request->buffer_id());
      if (buffer == nullptr) return Gone("buffer");
      *response = buffer->info;
      return absl::OkStatus();
    });
  }

  grpc::Status ListBuffers(grpc::ServerContext* context, const v1::ListBuffersRequest*,
                           v1::ListBuffersResponse* response) override {
    return state_.Serve("ListBuffers", context, [&] {
      for (const auto& [id, buffer] : state_.buffers) *response->add_buffers() = buffer.info;
      return absl::OkStatus();
    });
  }

  grpc::Status DeleteBuffers(grpc::ServerContext* context, const v1::DeleteBuffersRequest* request,
                             v1::DeleteBuffersResponse* response) override {
    return state_.Serve("DeleteBuffers", context, [&]() -> absl::Status {
      for (const std::string& id : request->buffer_ids()) {
        if (state_.Find(id) == nullptr) return Gone("buffer");
      }
      for (const std::string& id : request->buffer_ids()) {
        response->set_freed_bytes(response->freed_bytes() + state_.Find(id)->info.size_bytes());
        std::erase_if(state_.buffers, [&](const auto& entry) { return entry.first == id; });
      }
      return absl::OkStatus();
    });
  }

  grpc::Status PublishBuffer(grpc::ServerContext* context, const v1::PublishBufferRequest* request,
                             v1::PublishBufferResponse*) override {
    return state_.Serve("PublishBuffer", context, [&]() -> absl::Status {
      if (!state_.published.emplace(request->name(), request->buffer_id()).second) {
        return Signed(absl::AlreadyExistsError("the name is taken"), "NAME_TAKEN");
      }
      return absl::OkStatus();
    });
  }

  grpc::Status FindBuffer(grpc::ServerContext* context, const v1::FindBufferRequest* request,
                          v1::Buffer* response) override {
    return state_.Serve("FindBuffer", context, [&]() -> absl::Status {
      const auto found = state_.published.find(request->name());
      if (found == state_.published.end()) return Gone("name");
      FakeBuffer copy;
      copy.info = state_.Find(found->second)->info;
      copy.bytes = state_.Find(found->second)->bytes;
      copy.info.set_read_only(true);
      *response = Add(std::move(copy));
      return absl::OkStatus();
    });
  }

  grpc::Status UnpublishBuffer(grpc::ServerContext* context,
                               const v1::UnpublishBufferRequest* request,
                               v1::UnpublishBufferResponse*) override {
    return state_.Serve("UnpublishBuffer", context, [&]() -> absl::Status {
      return state_.published.erase(request->name()) > 0 ? absl::OkStatus() : Gone("name");
    });
  }

  grpc::Status Upload(grpc::ServerContext* context, grpc::ServerReader<v1::UploadRequest>* stream,
                      v1::UploadResponse* response) override {
    {
      absl::MutexLock lock(&state_.mu);
      const std::optional<Failure> failure = state_.Begin("Upload", context);
      if (failure) return ToGrpc(failure->status, context);
    }
    v1::UploadRequest chunk;
    std::string id;
    for (int count = 0; stream->Read(&chunk); ++count) {
      absl::MutexLock lock(&state_.mu);
      if (count == 0) id = chunk.buffer_id();
      FakeBuffer* buffer = state_.Find(id);
      if (buffer == nullptr) return ToGrpc(Gone("buffer"), context);
      if (count == 0) {
        buffer->info.set_upload_offset_bytes(chunk.offset_bytes());
        buffer->info.set_committed_bytes(0);
      }
      if (count == state_.damaged_upload || Crc32c(chunk.data()) != chunk.crc32c()) {
        state_.damaged_upload = -1;
        return ToGrpc(Signed(absl::DataLossError("the crc32c does not match"), "CHECKSUM"),
                      context);
      }
      if (state_.cut_uploads > 0 && count == state_.cut_upload_after) {
        --state_.cut_uploads;
        return grpc::Status(grpc::StatusCode::UNAVAILABLE, "Socket closed");
      }
      std::memcpy(buffer->data() + chunk.offset_bytes(), chunk.data().data(), chunk.data().size());
      buffer->info.set_committed_bytes(buffer->info.committed_bytes() +
                                       static_cast<int64_t>(chunk.data().size()));
      response->set_committed_bytes(buffer->info.committed_bytes());
    }
    return grpc::Status::OK;
  }

  grpc::Status Download(grpc::ServerContext* context, const v1::DownloadRequest* request,
                        grpc::ServerWriter<v1::DownloadResponse>* stream) override {
    std::string bytes;
    {
      absl::MutexLock lock(&state_.mu);
      const std::optional<Failure> failure = state_.Begin("Download", context);
      if (failure) return ToGrpc(failure->status, context);
      FakeBuffer* buffer = state_.Find(request->buffer_id());
      if (buffer == nullptr) return ToGrpc(Gone("buffer"), context);
      bytes.assign(buffer->data() + request->offset_bytes(),
                   static_cast<size_t>(request->length_bytes()));
    }
    v1::DownloadResponse chunk;
    for (size_t at = 0, count = 0; at < bytes.size(); at += chunk.data().size(), ++count) {
      chunk.set_offset_bytes(request->offset_bytes() + static_cast<int64_t>(at));
      chunk.set_data(bytes.substr(at, static_cast<size_t>(request->chunk_bytes())));
      chunk.set_crc32c(Crc32c(chunk.data()));
      {
        absl::MutexLock lock(&state_.mu);
        if (state_.cut_downloads > 0 && static_cast<int>(count) == state_.cut_download_after) {
          --state_.cut_downloads;
          return grpc::Status(grpc::StatusCode::UNAVAILABLE, "Socket closed");
        }
        if (state_.damaged_downloads > 0 && count == 1) {
          --state_.damaged_downloads;
          (*chunk.mutable_data())[0] ^= 1;
        }
      }
      if (!stream->Write(chunk)) break;
    }
    return grpc::Status::OK;
  }

  grpc::Status ExportBuffer(grpc::ServerContext* context, const v1::ExportBufferRequest* request,
                            v1::ExportBufferResponse* response) override {
    return state_.Serve("ExportBuffer", context, [&]() -> absl::Status {
      FakeBuffer* buffer = state_.Find(request->buffer_id());
      if (buffer == nullptr) return Gone("buffer");
      if (!buffer->memory || !state_.share) {
        return Signed(absl::FailedPreconditionError("not shared"), "NOT_SHARED");
      }
      response->set_token(state_.NewId());
      response->set_share_socket(state_.share->address());
      response->set_size_bytes(buffer->info.size_bytes());
      state_.tokens[response->token()] = buffer->memory->fd();
      return absl::OkStatus();
    });
  }

  grpc::Status ImportBuffer(grpc::ServerContext* context, const v1::ImportBufferRequest* request,
                            v1::Buffer* response) override {
    return state_.Serve("ImportBuffer", context, [&]() -> absl::Status {
      const auto found = state_.tokens.find(request->token());
      if (found == state_.tokens.end()) return Gone("token");
      if (request->memory_kind() == v1::MEMORY_KIND_DEVICE_IMPORTED) {
        const int fd = found->second;
        state_.tokens.erase(found);
        std::array<char, 4096> bytes;
        const ssize_t got = pread(fd, bytes.data(), bytes.size(), 0);
        close(fd);
        v1::CudaIpcMemory record;
        if (got < 0 || !record.ParseFromArray(bytes.data(), static_cast<int>(got))) {
          return absl::InvalidArgumentError("no CudaIpcMemory");
        }
        FakeBuffer buffer;
        buffer.info.set_size_bytes(record.size_bytes());
        buffer.info.set_device("cuda:0");
        buffer.info.set_memory_kind(v1::MEMORY_KIND_DEVICE_IMPORTED);
        buffer.info.set_label(record.handle());  // for the test to see
        *response = Add(std::move(buffer));
        return absl::OkStatus();
      }
      absl::StatusOr<SharedMemory> memory =
          SharedMemory::Adopt(found->second, request->size_bytes(), /*writable=*/true);
      state_.tokens.erase(found);
      if (!memory.ok()) return Signed(memory.status(), "NOT_SHARED");
      FakeBuffer buffer;
      buffer.info.set_size_bytes(request->size_bytes());
      buffer.info.set_device("cpu:0");
      buffer.info.set_memory_kind(v1::MEMORY_KIND_HOST_SHARED);
      buffer.info.set_dtype(request->dtype());
      *buffer.info.mutable_shape() = request->shape();
      buffer.memory = *std::move(memory);
      *response = Add(std::move(buffer));
      return absl::OkStatus();
    });
  }

 private:
  v1::Buffer Add(FakeBuffer buffer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_.mu) {
    buffer.info.set_buffer_id(state_.NewId());
    const v1::Buffer info = buffer.info;
    state_.buffers.emplace_back(info.buffer_id(), std::move(buffer));
    return info;
  }

  FakeState& state_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeFakeBuffers(FakeState& state) {
  return std::make_unique<Buffers>(state);
}

}  // namespace gemmd::client
