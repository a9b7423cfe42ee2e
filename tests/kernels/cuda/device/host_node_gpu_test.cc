// Where the backend's thread runs and its shared memory lies. On a machine that tells no node, or
// has one, bound and unbound are the same place.

#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/synchronization/notification.h"
#include "gtest/gtest.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/device/host_node.h"
#include "tests/kernels/cuda/device_buffer.h"

namespace gemmd::kernels::cuda {
namespace {

class HostNodeGpuTest : public testing::Test {
 protected:
  void SetUp() override {
    GEMMD_REQUIRE_DEVICE();
    char bus_id[32] = "";
    GEMMD_ASSERT_CUDA(cudaDeviceGetPCIBusId(bus_id, sizeof(bus_id), 0));
    node_ = FindHostNode(bus_id, UsableCpus());
    std::cout << bus_id << ": node " << node_.node << ", " << node_.cpus.size() << " of "
              << UsableCpus().size() << " usable cpus\n";
  }

  void Create(bool numa_binding) {
    auto backend = CreateCudaBackend({.memory_bytes = 64 << 20,
                                      .self_test = false,
                                      .numa_binding = numa_binding,
                                      .unbound = [](const absl::Status& why) { FAIL() << why; }});
    ASSERT_TRUE(backend.ok()) << backend.status();
    backend_ = *std::move(backend);
  }
  // What the thread may run on that tells the end of a program.
  std::vector<int> CpusOfTheStream() {
    const TensorRef one{0, 0, DType::kF32, MakeDims({16}), RowMajorStrides(MakeDims({16}))};
    auto memory = *backend_->Allocate(64, MemoryKind::kDevice);
    auto stream = backend_->CreateStream({});
    std::vector<int> cpus;
    absl::Notification done;
    stream->Launch(*backend_->Compile({Op(FillOp{one, 1})}), {{memory->address()}, {}, {}},
                   [&](LaunchResult result) {
                     EXPECT_TRUE(result.status.ok()) << result.status;
                     cpus = UsableCpus();
                     done.Notify();
                   });
    done.WaitForNotification();
    return cpus;
  }

  HostNode node_;
  std::unique_ptr<Backend> backend_;
};

TEST_F(HostNodeGpuTest, TheStreamRunsOnTheNodeAndTheCallerStaysWhereItWas) {
  const std::vector<int> before = UsableCpus();
  Create(/*numa_binding=*/true);
  EXPECT_EQ(backend_->info().numa_node, node_.node);
  EXPECT_EQ(CpusOfTheStream(), node_.cpus.empty() ? before : node_.cpus);
  std::vector<std::byte> bytes(1 << 20, std::byte{1});
  auto memory = *backend_->Allocate(1 << 20, MemoryKind::kDevice);
  ASSERT_TRUE(memory->CopyIn(0, bytes).ok());  // pins its slots
  EXPECT_EQ(UsableCpus(), before);
}

TEST_F(HostNodeGpuTest, ItCanBeLeftOut) {
  Create(/*numa_binding=*/false);
  EXPECT_EQ(backend_->info().numa_node, -1);
  EXPECT_EQ(CpusOfTheStream(), UsableCpus());
}

TEST_F(HostNodeGpuTest, SharedMemoryLiesOnTheNode) {
  if (node_.node < 0) GTEST_SKIP() << "the machine tells no node for the GPU";
  Create(/*numa_binding=*/true);
  constexpr size_t kBytes = 2 << 20;
  auto memory = *backend_->Allocate(kBytes, MemoryKind::kHostShared);
  void* mapped = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory->shared_fd(), 0);
  ASSERT_NE(mapped, MAP_FAILED);
  int node = -1;
  const long code =
      syscall(SYS_get_mempolicy, &node, nullptr, 0, mapped, MPOL_F_NODE | MPOL_F_ADDR);
  const int error = errno;
  munmap(mapped, kBytes);
  if (code != 0) GTEST_SKIP() << "get_mempolicy: " << std::strerror(error);  // as in a container
  EXPECT_EQ(node, node_.node);
}

}  // namespace
}  // namespace gemmd::kernels::cuda
