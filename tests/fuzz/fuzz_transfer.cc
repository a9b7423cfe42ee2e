// Upload and Download: any chunks, right or wrong checksums, raw bytes in a chunk's place, cut
// streams; then any range back.

#include <grpcpp/generic/generic_stub.h>
#include <isa-l/crc.h>

#include "tests/fuzz/proto_mutator.h"
#include "tests/fuzz/scripts.pb.h"
#include "tests/fuzz/served.h"

namespace {

using gemmd::fuzz::Served;

uint32_t Crc32c(const std::string& data) {
  auto* bytes = reinterpret_cast<unsigned char*>(const_cast<char*>(data.data()));
  return ~crc32_iscsi(bytes, static_cast<int>(data.size()), 0xffffffffu);
}

// Upload as bytes: what the generated code would refuse to send is sent.
class RawUpload {
 public:
  explicit RawUpload(Served& served) : context_(served.Context()), stub_(served.channel()) {
    stream_ = stub_.PrepareCall(context_.get(), "/gemmd.v1.BufferService/Upload", &queue_);
    stream_->StartCall(nullptr);
    open_ = Step();
  }
  void Write(const std::string& bytes) {
    if (!open_) return;
    grpc::Slice slice(bytes);
    stream_->Write(grpc::ByteBuffer(&slice, 1), nullptr);
    open_ = Step();
  }
  grpc::Status Finish(bool cut) {
    if (cut) {
      context_->TryCancel();
    } else if (open_) {
      stream_->WritesDone(nullptr);
      Step();
    }
    grpc::ByteBuffer response;
    stream_->Read(&response, nullptr);
    Step();
    grpc::Status status;
    stream_->Finish(&status, nullptr);
    Step();
    queue_.Shutdown();
    Step();
    return status;
  }

 private:
  bool Step() {
    void* tag = nullptr;
    bool ok = false;
    return queue_.Next(&tag, &ok) && ok;
  }

  std::unique_ptr<grpc::ClientContext> context_;
  grpc::CompletionQueue queue_;
  grpc::GenericStub stub_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream_;
  bool open_ = false;
};

}  // namespace

GEMMD_PROTO_FUZZER(gemmd::fuzz::UploadScript, input) {
  Served& served = Served::Get();
  gemmd::fuzz::UploadScript script = input;
  served.Bind(script);
  RawUpload upload(served);
  for (gemmd::v1::UploadRequest& chunk : *script.mutable_chunks()) {
    if (!script.keep_checksums()) chunk.set_crc32c(Crc32c(chunk.data()));
    upload.Write(chunk.SerializeAsString());
  }
  for (const std::string& bytes : script.raw()) upload.Write(bytes);
  served.Judge(upload.Finish(script.cut()));

  if (script.has_download()) {
    auto context = served.Context();
    auto reader = served.buffers().Download(context.get(), script.download());
    for (gemmd::v1::DownloadResponse response; reader->Read(&response);) {
      if (Crc32c(response.data()) != response.crc32c()) __builtin_trap();
    }
    served.Judge(reader->Finish());
  }
  served.Check();
}
