#include "client/cli/tune/shapes.h"
#include "client/cli/tune/view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace gemmd::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;

v1::TuneProgress Progress(int done, const std::string& kernel, double seconds) {
  v1::TuneProgress progress;
  progress.set_device("cuda:0");
  progress.set_shapes(3);
  progress.set_done(done);
  if (done == 0) return progress;
  v1::TunedShape* tuned = progress.mutable_tuned();
  tuned->mutable_shape()->set_m(64);
  tuned->mutable_shape()->set_n(4096);
  tuned->mutable_shape()->set_k(7168);
  tuned->mutable_shape()->set_output_dtype(v1::DTYPE_BF16);
  tuned->set_kernel_before("plain");
  tuned->set_reason_before(v1::CHOICE_REASON_MODEL);
  tuned->set_seconds_before(12e-6);
  tuned->set_kernel(kernel);
  tuned->set_seconds(seconds);
  tuned->set_kernels(8);
  return progress;
}

TEST(TuneViewTest, ShowsBeforeAndAfter) {
  TuneView view;
  view.Take(Progress(0, "", 0));
  EXPECT_EQ(view.Bar(), "cuda:0 [" + std::string(30, ' ') + "] 0 of 3 shapes, 0 faster");
  view.Take(Progress(1, "split", 10e-6));
  view.Take(Progress(2, "plain", 12e-6));
  v1::TuneProgress skipped = Progress(3, "", 0);
  skipped.mutable_tuned()->set_skipped("no memory");
  view.Take(skipped);
  EXPECT_THAT(view.Bar(),
              AllOf(HasSubstr(std::string(30, '#')), HasSubstr("3 of 3"), HasSubstr("1 faster")));
  EXPECT_THAT(view.Text(),
              AllOf(HasSubstr("64x4096x7168 bf16"), HasSubstr("model"), HasSubstr("12.00 us"),
                    HasSubstr("10.00 us"), HasSubstr("1.20x"), HasSubstr("skipped: no memory"),
                    HasSubstr("1 run on a faster kernel now")));
  const Json document = view.Document();
  EXPECT_EQ(document["faster"], 1);
  EXPECT_EQ(document["tuned"][0]["kernel"], "split");
  EXPECT_EQ(document["tuned"][2]["skipped"], "no memory");
}

TEST(TuneShapesTest, TakesShapesAndWeights) {
  v1::TuneRequest request;
  ASSERT_TRUE(AddShapes("64x4096x7168,2112x7168", request).ok());
  ASSERT_EQ(request.shapes_size(), 2);
  EXPECT_EQ(request.shapes(0).m(), 64);
  EXPECT_EQ(request.shapes(1).m(), 0);
  EXPECT_EQ(request.shapes(1).n(), 2112);
  for (const char* bad :
       {"", "64", "1x2x3x4", "64x-1x8", "64xax8", "64x8,", "0x8x8", "99999999999999999999x8"}) {
    EXPECT_EQ(AddShapes(bad, request).code(), absl::StatusCode::kInvalidArgument) << bad;
  }
}

}  // namespace
}  // namespace gemmd::cli
