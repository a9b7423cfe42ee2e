#include <cstdint>
#include <limits>

#include "tests/e2e/bad_input_case.h"

namespace gemmd::e2e {
namespace {

using grpc::StatusCode;

// CreateBuffer with a request that the case describes.
std::function<grpc::Status(Prepared&)> Create(std::function<void(v1::CreateBufferRequest&)> set) {
  return [set = std::move(set)](Prepared& p) {
    v1::CreateBufferRequest request;
    request.set_session_id(p.session);
    set(request);
    v1::Buffer buffer;
    grpc::ClientContext context;
    return p.wire.buffers().CreateBuffer(&context, request, &buffer);
  };
}

grpc::Status Download(Prepared& p, int64_t offset, int64_t length, int64_t chunk) {
  v1::DownloadRequest request;
  request.set_session_id(p.session);
  request.set_buffer_id(p.a);
  request.set_offset_bytes(offset);
  request.set_length_bytes(length);
  request.set_chunk_bytes(chunk);
  grpc::ClientContext context;
  auto reader = p.wire.buffers().Download(&context, request);
  for (v1::DownloadResponse response; reader->Read(&response);) {
  }
  return reader->Finish();
}

// One chunk of 64 bytes that the case spoils.
std::function<grpc::Status(Prepared&)> UploadOne(
    std::function<void(Prepared&, v1::UploadRequest&)> spoil) {
  return [spoil = std::move(spoil)](Prepared& p) {
    v1::UploadRequest chunk = Chunk(p.session, p.a, 0, std::string(64, 'x'));
    spoil(p, chunk);
    return p.wire.Upload({chunk});
  };
}

grpc::Status Publish(Prepared& p, const std::string& name,
                     const std::function<void(v1::PublishBufferRequest&)>& set = nullptr) {
  v1::PublishBufferRequest request;
  request.set_session_id(p.session);
  request.set_buffer_id(p.a);
  request.set_name(name);
  if (set) set(request);
  v1::PublishBufferResponse response;
  grpc::ClientContext context;
  return p.wire.buffers().PublishBuffer(&context, request, &response);
}

grpc::Status Switch(Prepared& p, const std::string& name, int64_t version) {
  v1::SwitchVersionRequest request;
  request.set_name(name);
  request.set_version(version);
  v1::SwitchVersionResponse response;
  grpc::ClientContext context;
  return p.wire.buffers().SwitchVersion(&context, request, &response);
}

}  // namespace

std::vector<BadInput> BadBuffers() {
  constexpr StatusCode kInvalid = StatusCode::INVALID_ARGUMENT;
  constexpr StatusCode kExhausted = StatusCode::RESOURCE_EXHAUSTED;
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  return {
      {"NoSize", kInvalid, {"size_bytes"}, Create([](auto&) {})},
      {"NegativeSize", kInvalid, {"size_bytes", "-1"}, Create([](auto& r) {
         r.set_size_bytes(-1);
       })},
      {"ShapeOverflows", kInvalid, {"shape"}, Create([](auto& r) {
         r.set_dtype(v1::DTYPE_F32);
         for (int i = 0; i < 3; ++i) r.add_shape(1LL << 40);
       })},
      {"SizeBelowItsShape", kInvalid, {"size_bytes", "63", "64"}, Create([](auto& r) {
         r.set_dtype(v1::DTYPE_F32);
         r.add_shape(4);
         r.add_shape(4);
         r.set_size_bytes(63);
       })},
      {"BeyondTheTenantsBytes", kExhausted, {"1048576"}, Create([](auto& r) {
         r.set_size_bytes(1 << 20);
       })},
      {"BeyondInt64", kExhausted, {"1048576"}, Create([](auto& r) { r.set_size_bytes(kMax); })},
      {"UnknownDevice", StatusCode::NOT_FOUND, {"tpu:0"}, Create([](auto& r) {
         r.set_size_bytes(16);
         r.set_device("tpu:0");
       })},
      {"UnknownMemoryKind", kInvalid, {"memory_kind"}, Create([](auto& r) {
         r.set_size_bytes(16);
         r.set_memory_kind(static_cast<v1::MemoryKind>(9));
       })},
      {"ImportedMemoryThatIsCreated", kInvalid, {"ImportBuffer"}, Create([](auto& r) {
         r.set_size_bytes(16);
         r.set_memory_kind(v1::MEMORY_KIND_DEVICE_IMPORTED);
       })},
      {"BufferLabelTooLong", kInvalid, {"label", "64"}, Create([](auto& r) {
         r.set_size_bytes(16);
         r.set_label(std::string(65, 'l'));
       })},
      {"TooManyBuffers",
       kExhausted,
       {"6"},
       [](Prepared& p) {
         v1::DeleteBuffersRequest drop;
         drop.set_session_id(p.session);
         for (int i = 0; i < 3; ++i) drop.add_buffer_ids(p.wire.CreateBuffer(p.session, 16));
         const grpc::Status status = Create([](auto& r) { r.set_size_bytes(16); })(p);
         v1::DeleteBuffersResponse dropped;
         grpc::ClientContext context;
         p.wire.buffers().DeleteBuffers(&context, drop, &dropped);
         return status;
       }},
      // One unknown handle among known ones: nothing is deleted.
      {"DeleteOfAnUnknown",
       StatusCode::NOT_FOUND,
       {"buffer"},
       [](Prepared& p) {
         v1::DeleteBuffersRequest request;
         request.set_session_id(p.session);
         request.add_buffer_ids(p.a);
         request.add_buffer_ids(std::string(16, 'x'));
         v1::DeleteBuffersResponse response;
         grpc::ClientContext context;
         return p.wire.buffers().DeleteBuffers(&context, request, &response);
       }},
      {"CorruptChunk", StatusCode::DATA_LOSS, {"CRC32C"}, UploadOne([](auto&, auto& chunk) {
         (*chunk.mutable_data())[7] ^= 1;
       })},
      {"ChunkBeyondTheEnd", kInvalid, {"4096"}, UploadOne([](auto& p, auto& chunk) {
         chunk = Chunk(p.session, p.a, 4064, std::string(64, 'x'));
       })},
      {"ChunkAtANegativeOffset",
       kInvalid,
       {"offset_bytes", "-8"},
       UploadOne([](auto&, auto& chunk) { chunk.set_offset_bytes(-8); })},
      {"ChunkAtTheLastOffset", kInvalid, {"offset_bytes"}, UploadOne([](auto&, auto& chunk) {
         chunk.set_offset_bytes(kMax);
       })},
      {"ChunksWithAGap",
       kInvalid,
       {"offset_bytes", "128", "64"},
       [](Prepared& p) {
         return p.wire.Upload({Chunk(p.session, p.a, 0, std::string(64, 'x')),
                               Chunk("", "", 128, std::string(64, 'x'))});
       }},
      {"UploadOfNothing", kInvalid, {}, [](Prepared& p) { return p.wire.Upload({}); }},
      {"UploadToAnUnknownBuffer",
       StatusCode::NOT_FOUND,
       {"buffer"},
       UploadOne([](auto&, auto& chunk) { chunk.set_buffer_id(std::string(16, 'x')); })},
      {"UploadInADeadSession",
       StatusCode::NOT_FOUND,
       {"session"},
       UploadOne([](auto&, auto& chunk) { chunk.set_session_id(std::string(16, 'x')); })},
      {"MessageBeyondTheLimit", kExhausted, {"4194304"}, UploadOne([](auto&, auto& chunk) {
         chunk.set_data(std::string(5 << 20, 'x'));
       })},
      {"DownloadBeyondTheEnd",
       kInvalid,
       {"length_bytes=4096", "offset_bytes=1", "4096"},
       [](Prepared& p) { return Download(p, 1, 4096, 0); }},
      {"DownloadFromANegativeOffset",
       kInvalid,
       {"offset_bytes", "-1"},
       [](Prepared& p) { return Download(p, -1, 0, 0); }},
      {"DownloadThatOverflows",
       kInvalid,
       {"4096"},
       [](Prepared& p) { return Download(p, 8, kMax, 0); }},
      {"DownloadInTinyChunks",
       kInvalid,
       {"chunk_bytes", "4096"},
       [](Prepared& p) { return Download(p, 0, 0, 1); }},
      {"NameOfOtherLetters", kInvalid, {"name"}, [](Prepared& p) { return Publish(p, "a b"); }},
      {"NameTooLong",
       kInvalid,
       {"name", "128"},
       [](Prepared& p) { return Publish(p, std::string(129, 'n')); }},
      {"NoName", kInvalid, {"name"}, [](Prepared& p) { return Publish(p, ""); }},
      {"VersionZero",
       kInvalid,
       {"'0'", "999999999"},
       [](Prepared& p) { return Publish(p, "m@0/w"); }},
      {"VersionOfLetters", kInvalid, {"'x'", "m@2"}, [](Prepared& p) { return Publish(p, "m@x"); }},
      {"TwoVersions", kInvalid, {"two @"}, [](Prepared& p) { return Publish(p, "m@1/w@2"); }},
      {"VersionOfNothing",
       kInvalid,
       {"in front of its @"},
       [](Prepared& p) { return Publish(p, "@1/w"); }},
      {"HashOfAnotherLength",
       kInvalid,
       {"content_hash", "31", "32"},
       [](Prepared& p) {
         return Publish(p, "w", [](auto& r) { r.set_content_hash(std::string(31, 'h')); });
       }},
      {"TtlOfZero",
       kInvalid,
       {"ttl=0", "1s"},
       [](Prepared& p) { return Publish(p, "w", [](auto& r) { r.mutable_ttl(); }); }},
      {"NegativeTtl",
       kInvalid,
       {"ttl=-5s"},
       [](Prepared& p) {
         return Publish(p, "w", [](auto& r) { r.mutable_ttl()->set_seconds(-5); });
       }},
      {"TtlOfAges",
       kInvalid,
       {"ttl=", "leave it out"},
       [](Prepared& p) {
         return Publish(p, "w", [](auto& r) { r.mutable_ttl()->set_seconds(kMax); });
       }},
      {"SwitchToNothing",
       StatusCode::NOT_FOUND,
       {"m@2"},
       [](Prepared& p) { return Switch(p, "m", 2); }},
      {"SwitchToVersionZero",
       kInvalid,
       {"version=0"},
       [](Prepared& p) { return Switch(p, "m", 0); }},
      {"SwitchOfAVersion",
       kInvalid,
       {"m@1", "apart"},
       [](Prepared& p) { return Switch(p, "m@1", 1); }},
      {"SwitchOfNoName", kInvalid, {"name"}, [](Prepared& p) { return Switch(p, "", 1); }},
      {"FindOfAnUnknownName",
       StatusCode::NOT_FOUND,
       {"no/such"},
       [](Prepared& p) {
         v1::FindBufferRequest request;
         request.set_session_id(p.session);
         request.set_name("no/such");
         v1::Buffer buffer;
         grpc::ClientContext context;
         return p.wire.buffers().FindBuffer(&context, request, &buffer);
       }},
      {"ExportOfDeviceMemory",
       StatusCode::FAILED_PRECONDITION,
       {"HOST_SHARED"},
       [](Prepared& p) {
         v1::ExportBufferRequest request;
         request.set_session_id(p.session);
         request.set_buffer_id(p.a);
         v1::ExportBufferResponse response;
         grpc::ClientContext context;
         return p.wire.buffers().ExportBuffer(&context, request, &response);
       }},
      {"ImportWithAnUnknownToken",
       StatusCode::NOT_FOUND,
       {"token"},
       [](Prepared& p) {
         v1::ImportBufferRequest request;
         request.set_session_id(p.session);
         request.set_token(std::string(16, 't'));
         request.set_size_bytes(4096);
         v1::Buffer buffer;
         grpc::ClientContext context;
         return p.wire.buffers().ImportBuffer(&context, request, &buffer);
       }},
      {"ImportOfAnUnknownMemoryKind",
       kInvalid,
       {"memory_kind", "DEVICE_IMPORTED"},
       [](Prepared& p) {
         v1::ImportBufferRequest request;
         request.set_session_id(p.session);
         request.set_token(std::string(16, 't'));
         request.set_size_bytes(4096);
         request.set_memory_kind(v1::MEMORY_KIND_DEVICE_SHARED);
         v1::Buffer buffer;
         grpc::ClientContext context;
         return p.wire.buffers().ImportBuffer(&context, request, &buffer);
       }},
      {"PageTokenOfNobody",
       kInvalid,
       {"page_token"},
       [](Prepared& p) {
         v1::ListBuffersRequest request;
         request.set_session_id(p.session);
         request.set_page_token("never given out");
         v1::ListBuffersResponse response;
         grpc::ClientContext context;
         return p.wire.buffers().ListBuffers(&context, request, &response);
       }},
      {"NegativePageSize",
       kInvalid,
       {"page_size", "-1"},
       [](Prepared& p) {
         v1::ListBuffersRequest request;
         request.set_session_id(p.session);
         request.set_page_size(-1);
         v1::ListBuffersResponse response;
         grpc::ClientContext context;
         return p.wire.buffers().ListBuffers(&context, request, &response);
       }},
  };
}

}  // namespace gemmd::e2e
