// Programs of one device that name a buffer of another.

#include "tests/e2e/two_devices.h"

#include <random>

#include "gemmd/v1/types.pb.h"

namespace gemmd::e2e {
namespace {

using client::Copy;
using client::DType;
using client::Fill;
using client::Matmul;
using client::OpList;
using client::Read;
using client::Write;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class CopyTest : public TwoDevicesTest {
 protected:
  // Written where it lies: a program of its own.
  void Set(client::Buffer& buffer, const std::vector<float>& values) {
    Must(session_.Execute(OpList().Add(Write{buffer.tensor(), Floats(values)})));
  }
};

TEST_F(CopyTest, ACopyAndAMatmulOnItRunAsOneProgram) {
  client::Buffer far = On(kFar, {2, 2});
  client::Buffer a = On(kNear, {2, 2});
  client::Buffer b = On(kNear, {2, 2});
  client::Buffer d = On(kNear, {2, 2});
  Set(far, {1, 2, 3, 4});
  Set(b, {5, 6, 7, 8});
  OpList ops;
  ops.Add(Copy{far.tensor(), a.tensor()});
  ops.Add(Matmul{.a = a.tensor(), .b = b.tensor(), .d = d.tensor()});
  ops.Add(Read{d.tensor()});
  const client::Result result = Must(session_.Execute(ops));
  EXPECT_THAT(FloatsOf(result), ElementsAre(17, 23, 39, 53));
  EXPECT_EQ(result.report().device(), kNear);
}

TEST_F(CopyTest, AProgramRunsOnTheDeviceThatItWrites) {
  client::Buffer near = On(kNear, {4});
  client::Buffer far = On(kFar, {4});
  Set(near, {1, 2, 3, 4});
  // The session is at home on the one, the program runs on the other.
  const client::Result copied =
      Must(session_.Execute(OpList().Add(Copy{near.tensor(), far.tensor()})));
  EXPECT_EQ(copied.report().device(), kFar);
  const client::Result read = Must(session_.Execute(OpList().Add(Read{far.tensor()})));
  EXPECT_EQ(read.report().device(), kFar);
  EXPECT_THAT(FloatsOf(read), ElementsAre(1, 2, 3, 4));
}

// A row-major matrix of `rows` x `cols` elements of `size` bytes, transposed.
std::string Transposed(const std::string& bytes, int64_t rows, int64_t cols, int64_t size) {
  std::string result;
  for (int64_t c = 0; c < cols; ++c) {
    for (int64_t r = 0; r < rows; ++r) result += bytes.substr((r * cols + c) * size, size);
  }
  return result;
}

TEST_F(CopyTest, StridedViewsOfEveryDTypeArriveBitForBit) {
  constexpr int64_t kRows = 67, kCols = 129;
  std::mt19937 random(testing::UnitTest::GetInstance()->random_seed());
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kE4M3, DType::kI8}) {
    SCOPED_TRACE(std::string(client::Name(dtype)));
    const int64_t size = client::SizeBytes(dtype);
    std::string bytes(kRows * kCols * size, 0);
    for (char& byte : bytes) byte = static_cast<char>(random());
    client::Buffer far = On(kFar, {kRows, kCols}, dtype);
    client::Buffer near = On(kNear, {kCols, kRows + 5}, dtype);
    Must(session_.Execute(OpList().Add(Write{far.tensor(), bytes})));
    const client::Tensor part = near.tensor().Slice(1, 3, kRows);
    const client::Result result =
        Must(session_.Execute(OpList().Add(Copy{far.tensor().Transposed(), part}).Add(Read{part})));
    EXPECT_TRUE(std::string(result.output(0)) == Transposed(bytes, kRows, kCols, size));
  }
}

TEST_F(CopyTest, AMatmulOnTwoDevicesIsRefusedAndTheRemedyWorks) {
  client::Buffer weights = On(kFar, {3, 2});
  client::Buffer x = On(kNear, {1, 2});
  client::Buffer y = On(kNear, {1, 3});
  Set(weights, {1, 2, 3, 4, 5, 6});
  Set(x, {10, 1});
  OpList ops;
  ops.Add(Matmul{.a = x.tensor(), .b = weights.tensor(), .d = y.tensor()}).Add(Read{y.tensor()});
  const absl::Status refused = session_.Execute(ops).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(client::ReasonOf(refused), "OTHER_DEVICE");
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("put a Copy op before it, whose dst is a buffer on " + kNear));

  client::Buffer here = On(kNear, {3, 2});
  OpList remedy;
  remedy.Add(Copy{weights.tensor(), here.tensor()});
  remedy.Add(Matmul{.a = x.tensor(), .b = here.tensor(), .d = y.tensor()}).Add(Read{y.tensor()});
  EXPECT_THAT(FloatsOf(Must(session_.Execute(remedy))), ElementsAre(12, 34, 56));
}

TEST_F(CopyTest, AMatmulRunsWhereItsOperandsLieAndStoresAcross) {
  client::Buffer x = On(kFar, {1, 2});
  client::Buffer weights = On(kFar, {3, 2});
  client::Buffer y = On(kNear, {1, 3});
  Set(x, {10, 1});
  Set(weights, {1, 2, 3, 4, 5, 6});
  const client::Result result = Must(session_.Execute(
      OpList().Add(Matmul{.a = x.tensor(), .b = weights.tensor(), .d = y.tensor()})));
  EXPECT_EQ(result.report().device(), kFar);
  EXPECT_THAT(FloatsOf(Must(session_.Execute(OpList().Add(Read{y.tensor()})))),
              ElementsAre(12, 34, 56));
}

TEST_F(CopyTest, APlanReadsOneBufferAfterTheOtherOfAnotherDevice) {
  client::Buffer first = On(kFar, {2});
  client::Buffer second = On(kFar, {2});
  client::Buffer local = On(kNear, {2});
  client::Buffer to = On(kNear, {2});
  Set(first, {1, 2});
  Set(second, {3, 4});
  Set(local, {5, 6});
  client::Plan plan = Must(
      session_.CreatePlan(OpList().Add(Copy{first.tensor(), to.tensor()}).Add(Read{to.tensor()})));
  for (int round = 0; round < 3; ++round) {  // on a GPU the later ones are replayed graphs
    EXPECT_THAT(FloatsOf(Must(plan.Run())), ElementsAre(1, 2));
    EXPECT_THAT(FloatsOf(Must(plan.Run({.rebind = {{first.id(), second.id()}}}))),
                ElementsAre(3, 4));
    EXPECT_THAT(FloatsOf(Must(plan.Run({.rebind = {{first.id(), local.id()}}}))),
                ElementsAre(5, 6));
  }
  const absl::Status refused = plan.Run({.rebind = {{to.id(), second.id()}}}).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
}

// The next buffer lies where the last one was: nothing may remember what was there.
TEST_F(CopyTest, ASourceThatIsFreedAndMadeAgainIsReadAsItIs) {
  client::Buffer to = On(kNear, {64});
  for (int round = 0; round < 20; ++round) {
    client::Buffer far = On(kFar, {64});
    Must(session_.Execute(OpList().Add(Fill{far.tensor(), 1.0 * round})));
    const client::Result result = Must(session_.Execute(
        OpList().Add(Copy{far.tensor(), to.tensor()}).Add(Read{to.tensor().Slice(0, 63, 1)})));
    EXPECT_THAT(FloatsOf(result), ElementsAre(1.0f * round));
    ASSERT_TRUE(far.Delete().ok());
  }
}

}  // namespace
}  // namespace gemmd::e2e
