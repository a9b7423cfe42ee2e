// Armed plans that a caller's CUDA stream rings and waits for, from another process than the
// daemon's. The caller's data goes through HOST_SHARED buffers, which its own stream reads and
// writes, so that a wrong order between the two shows as a wrong value.

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tests/e2e/armed_wire.h"
#include "tests/e2e/daemon.h"

namespace gemmd::e2e {
namespace {

constexpr char kDevices[] = "devices { name: \"cuda:0\" memory_bytes: 1073741824 }";

template <typename Function>
Function Driver(const char* name) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found;
  EXPECT_EQ(cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &found),
            cudaSuccess);
  return reinterpret_cast<Function>(function);
}

// Memory of the daemon's, mapped and registered here.
class Registered {
 public:
  Registered(void* base, size_t size) : base_(base) {
    EXPECT_EQ(cudaHostRegister(base, size, cudaHostRegisterMapped), cudaSuccess);
    void* device = nullptr;
    EXPECT_EQ(cudaHostGetDevicePointer(&device, base, 0), cudaSuccess);
    offset_ = static_cast<char*>(device) - static_cast<char*>(base);
  }
  ~Registered() { cudaHostUnregister(base_); }
  CUdeviceptr operator()(const void* host) const {
    return reinterpret_cast<CUdeviceptr>(static_cast<const char*>(host) + offset_);
  }

 private:
  void* const base_;
  ptrdiff_t offset_ = 0;
};

// A HOST_SHARED buffer of the session's, one page.
struct SharedFloats {
  static constexpr size_t kBytes = 4096;

  SharedFloats(Wire& wire, const std::string& session) {
    v1::CreateBufferRequest create;
    create.set_session_id(session);
    create.set_size_bytes(kBytes);
    create.set_memory_kind(v1::MEMORY_KIND_HOST_SHARED);
    v1::Buffer made;
    grpc::ClientContext creating;
    EXPECT_TRUE(wire.buffers().CreateBuffer(&creating, create, &made).ok());
    id = made.buffer_id();
    v1::ExportBufferRequest request;
    request.set_session_id(session);
    request.set_buffer_id(id);
    request.set_writable(true);
    v1::ExportBufferResponse exported;
    grpc::ClientContext exporting;
    EXPECT_TRUE(wire.buffers().ExportBuffer(&exporting, request, &exported).ok());
    const int fd = FetchDescriptor(exported.share_socket(), exported.token());
    data = static_cast<float*>(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    close(fd);
    registered = std::make_unique<Registered>(data, kBytes);
  }
  ~SharedFloats() {
    registered.reset();
    munmap(data, kBytes);
  }

  std::string id;
  float* data = nullptr;
  std::unique_ptr<Registered> registered;
};

class ArmedGpuTest : public testing::Test {
 protected:
  void SetUp() override {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) GTEST_SKIP() << "no GPU";
    write_ = Driver<decltype(write_)>("cuStreamWriteValue32");
    wait_ = Driver<decltype(wait_)>("cuStreamWaitValue32");
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
    daemon_ = std::make_unique<Daemon>(DaemonOptions{.devices = kDevices});
    wire_ = std::make_unique<Wire>(daemon_->target());
    armed_ = std::make_unique<ArmedWire>(*wire_);
    region_ = std::make_unique<Registered>(armed_->caller().base(),
                                           gemmd_armed_size_bytes(armed_->caller().slots()));
    x_ = std::make_unique<SharedFloats>(*wire_, armed_->session());
    y_ = std::make_unique<SharedFloats>(*wire_, armed_->session());
    middle_ = wire_->CreateBuffer(armed_->session(), 64);
    // Through the device's own memory: what it was given, back.
    plan_ = armed_->Plan({CopyOp(View(x_->id, {4, 4}), View(middle_, {4, 4})),
                          CopyOp(View(middle_, {4, 4}), View(y_->id, {4, 4}))});
  }
  void TearDown() override {
    if (stream_ == nullptr) return;
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    cudaStreamDestroy(stream_);
    for (float* pinned : pinned_) cudaFreeHost(pinned);
    y_.reset();
    x_.reset();
    region_.reset();
  }

  float* Pinned(int count) {
    float* data = nullptr;
    EXPECT_EQ(cudaMallocHost(reinterpret_cast<void**>(&data), count * sizeof(float)), cudaSuccess);
    pinned_.push_back(data);
    std::fill(data, data + count, -1.0f);
    return data;
  }
  int Arm(v1::ArmedPlan* told = nullptr, int64_t deadline_ns = 0) {
    v1::ArmPlanRequest request;
    request.set_session_id(armed_->session());
    request.set_plan_id(plan_);
    request.set_rung_by_stream(true);
    if (deadline_ns > 0) request.mutable_deadline()->set_nanos(static_cast<int32_t>(deadline_ns));
    v1::ArmedPlan armed;
    EXPECT_TRUE(armed_->Arm(request, armed).ok());
    if (told != nullptr) *told = armed;
    return armed.slot();
  }
  // Queues: the input, the ring, the wait, taking done back, the output.
  void Queue(int slot, const float* in, float* out) {
    ArmedCaller& caller = armed_->caller();
    const CUdeviceptr gate = (*region_)(gemmd_armed_gate(caller.base(), caller.slots(), slot));
    const CUdeviceptr done =
        (*region_)(&gemmd_armed_done_of(caller.base(), caller.slots(), slot)->done);
    ASSERT_EQ(cudaMemcpyAsync(x_->data, in, sizeof(float), cudaMemcpyDefault, stream_),
              cudaSuccess);
    ASSERT_EQ(write_(stream_, gate, GEMMD_ARMED_RUNG, 0), CUDA_SUCCESS);
    ASSERT_EQ(wait_(stream_, done, GEMMD_ARMED_RAN, CU_STREAM_WAIT_VALUE_GEQ), CUDA_SUCCESS);
    ASSERT_EQ(write_(stream_, done, 0, 0), CUDA_SUCCESS);
    ASSERT_EQ(cudaMemcpyAsync(out, y_->data, sizeof(float), cudaMemcpyDefault, stream_),
              cudaSuccess);
  }

  CUresult (*write_)(CUstream, CUdeviceptr, cuuint32_t, unsigned int) = nullptr;
  CUresult (*wait_)(CUstream, CUdeviceptr, cuuint32_t, unsigned int) = nullptr;
  cudaStream_t stream_ = nullptr;
  std::unique_ptr<Daemon> daemon_;
  std::unique_ptr<Wire> wire_;
  std::unique_ptr<ArmedWire> armed_;
  std::unique_ptr<Registered> region_;
  std::unique_ptr<SharedFloats> x_, y_;
  std::string middle_, plan_;
  std::vector<float*> pinned_;
};

TEST_F(ArmedGpuTest, TheHostRings) {
  v1::ArmedPlan told;
  const int slot = Arm(&told);
  EXPECT_TRUE(told.done_by_stream());
  EXPECT_EQ(told.device(), "cuda:0");
  for (int i = 0; i < 1000; ++i) {
    x_->data[5] = static_cast<float>(i);
    ASSERT_EQ(armed_->Run(slot), GEMMD_ARMED_RAN);
    ASSERT_EQ(y_->data[5], static_cast<float>(i));
  }
  // The device told of the end; the report follows from the host.
  EXPECT_TRUE(WaitUntil([&] { return armed_->caller().Report(slot).run == 1000; }));
  EXPECT_GT(armed_->caller().Report(slot).device_ns, 0u);
}

TEST_F(ArmedGpuTest, AStreamRingsAThousandTimesWithoutItsHost) {
  constexpr int kRings = 1000;
  const int slot = Arm();
  float* in = Pinned(kRings);
  float* out = Pinned(kRings);
  for (int i = 0; i < kRings; ++i) in[i] = static_cast<float>(i + 1);
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < kRings; ++i) ASSERT_NO_FATAL_FAILURE(Queue(slot, in + i, out + i));
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
  for (int i = 0; i < kRings; ++i) ASSERT_EQ(out[i], in[i]) << i;
  EXPECT_TRUE(WaitUntil([&] { return armed_->caller().Report(slot).run == kRings; }));
  EXPECT_EQ(armed_->List().slots(0).failed_runs(), 0);
  std::printf("a ring from a stream: %.1f us\n", took.count() / kRings);
}

TEST_F(ArmedGpuTest, ACapturedGraphOfEightRingsIsReplayed) {
  constexpr int kRings = 8, kReplays = 500;
  int slots[kRings];
  for (int& slot : slots) slot = Arm();
  float* in = Pinned(kRings);
  float* out = Pinned(kRings);
  ASSERT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  for (int i = 0; i < kRings; ++i) ASSERT_NO_FATAL_FAILURE(Queue(slots[i], in + i, out + i));
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
  cudaGraphExec_t replay = nullptr;
  ASSERT_EQ(cudaGraphInstantiate(&replay, graph, 0), cudaSuccess);
  const auto begin = std::chrono::steady_clock::now();
  for (int n = 0; n < kReplays; ++n) {
    for (int i = 0; i < kRings; ++i) in[i] = static_cast<float>(n * kRings + i + 1);
    ASSERT_EQ(cudaGraphLaunch(replay, stream_), cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    for (int i = 0; i < kRings; ++i) ASSERT_EQ(out[i], in[i]) << n << " " << i;
  }
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
  std::printf("a ring from a graph: %.1f us\n", took.count() / (kRings * kReplays));
  cudaGraphExecDestroy(replay);
  cudaGraphDestroy(graph);
}

TEST_F(ArmedGpuTest, AFailedRunReleasesTheStreamAndLeavesNan) {
  const int slot = Arm(nullptr, /*deadline_ns=*/1);
  float* in = Pinned(1);
  float* out = Pinned(1);
  *in = 1;
  ASSERT_NO_FATAL_FAILURE(Queue(slot, in, out));
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_TRUE(std::isnan(*out));
  EXPECT_STREQ(armed_->caller().Report(slot).reason, "DEADLINE");
}

TEST_F(ArmedGpuTest, ADisarmedSlotAndAnEndedSessionReleaseTheStream) {
  const int slot = Arm();
  float* in = Pinned(2);
  float* out = Pinned(2);
  ASSERT_TRUE(armed_->Disarm({slot}).ok());
  ASSERT_NO_FATAL_FAILURE(Queue(slot, in, out));
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_STREQ(armed_->caller().Report(slot).reason, "NOT_ARMED");
  const int other = Arm();
  ASSERT_NO_FATAL_FAILURE(Queue(other, in + 1, out + 1));
  EXPECT_TRUE(wire_->CloseSession(armed_->session()).ok());
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
}

}  // namespace
}  // namespace gemmd::e2e
