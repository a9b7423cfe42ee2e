// A fault on a device. A binary of its own with one test: the device serves nothing more in the
// process that it happens in.

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/cuda_backend_for_test.h"
#include "kernels/cuda/matmul/fault_member.h"
#include "kernels/fault.h"
#include "tests/kernels/cuda/device_buffer.h"

namespace gemmd::kernels::cuda {
namespace {

using testing::Each;
using testing::HasSubstr;

TensorRef Dense(int slot, const Dims& shape) {
  return {slot, 0, DType::kF32, shape, RowMajorStrides(shape)};
}

std::unique_ptr<Backend> Make(int ordinal) {
  auto backend = CreateCudaBackendForTest({.name = absl::StrCat("cuda:", ordinal),
                                           .ordinal = ordinal,
                                           .memory_bytes = int64_t{1} << 30},
                                          {.more_kernels = {FaultKernel()}});
  EXPECT_TRUE(backend.ok()) << backend.status();
  return *std::move(backend);
}

std::shared_ptr<const Program> Compile(Backend& backend, const Op& op) {
  auto program = backend.Compile({op});
  EXPECT_TRUE(program.ok()) << program.status();
  return *std::move(program);
}

absl::Status RunOn(Stream& stream, std::shared_ptr<const Program> program, Bindings bindings) {
  absl::Notification done;
  absl::Status status;
  stream.Launch(std::move(program), std::move(bindings), [&](LaunchResult result) {
    status = result.status;
    done.Notify();
  });
  done.WaitForNotification();
  return status;
}

MatmulOp Row(std::string kernel) {
  MatmulOp op;
  op.a.values = Dense(0, MakeDims({1, 16}));
  op.b.values = Dense(1, MakeDims({16, 16}));
  op.d = Dense(2, MakeDims({1, 16}));
  op.kernel = std::move(kernel);
  return op;
}

TEST(FaultGpuTest, FencesItsDeviceAndNoOther) {
  GEMMD_REQUIRE_DEVICE();
  int count = 0;
  GEMMD_ASSERT_CUDA(cudaGetDeviceCount(&count));
  const auto backend = Make(0);
  const auto other = count > 1 ? Make(1) : nullptr;
  // Nobody gets it without asking.
  EXPECT_NE((*backend->Compile({Op(Row(""))}))->steps()[0].choice.kernel, kFaultName);

  std::vector<std::unique_ptr<Memory>> memory;
  Bindings bindings;
  for (int i = 0; i < 3; ++i) {
    memory.push_back(*backend->Allocate(1024, MemoryKind::kDevice));
    bindings.slots.push_back(memory.back()->address());
  }
  const auto fill = Compile(*backend, FillOp{Dense(0, MakeDims({16})), 1});
  auto stream = backend->CreateStream({});
  ASSERT_TRUE(RunOn(*stream, fill, bindings).ok());
  EXPECT_TRUE(backend->health().ok());

  // Everything behind the fault fails, in order, with the same status.
  std::vector<absl::Status> statuses;
  std::vector<int> order;
  const auto keep = [&](int place) {
    return [&, place](LaunchResult result) {
      statuses.push_back(result.status);
      order.push_back(place);
    };
  };
  stream->Launch(Compile(*backend, Row(kFaultName)), bindings, keep(0));
  for (int i = 1; i < 20; ++i) stream->Launch(fill, bindings, keep(i));
  stream.reset();
  ASSERT_EQ(statuses.size(), 20u);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(order[i], i);
  EXPECT_EQ(statuses[0].code(), absl::StatusCode::kUnavailable) << statuses[0];
  EXPECT_TRUE(IsDeviceFault(statuses[0]));
  EXPECT_THAT(std::string(statuses[0].message()), HasSubstr("cuda:0 is fenced"));
  EXPECT_THAT(statuses, Each(statuses[0]));

  // And so does everything that comes later.
  EXPECT_EQ(backend->health(), statuses[0]);
  std::vector<std::byte> bytes(16);
  EXPECT_TRUE(IsDeviceFault(memory[0]->CopyIn(0, bytes)));
  EXPECT_TRUE(IsDeviceFault(memory[0]->CopyOut(0, absl::MakeSpan(bytes))));
  EXPECT_TRUE(IsDeviceFault(backend->Allocate(int64_t{64} << 20, MemoryKind::kDevice).status()));
  EXPECT_TRUE(IsDeviceFault(RunOn(*backend->CreateStream({}), fill, bindings)));

  if (other == nullptr) return;
  const auto on_other = *other->Allocate(1024, MemoryKind::kDevice);
  EXPECT_TRUE(RunOn(*other->CreateStream({}), Compile(*other, FillOp{Dense(0, MakeDims({16})), 3}),
                    {{on_other->address()}, {}, {}})
                  .ok());
  float last = 0;
  EXPECT_TRUE(on_other->CopyOut(60, absl::MakeSpan(reinterpret_cast<std::byte*>(&last), 4)).ok());
  EXPECT_EQ(last, 3);
  EXPECT_TRUE(other->health().ok());
}

}  // namespace
}  // namespace gemmd::kernels::cuda
