#include "server/service/compute/execute_view.h"

#include <gtest/gtest.h>

#include <string>

namespace gemmd::server {
namespace {

using v1::ExecuteRequest;

ExecuteRequest TwoOps() {
  ExecuteRequest request;
  request.set_session_id("0123456789abcdef");
  for (int i = 0; i < 2; ++i) {
    v1::Matmul& matmul = *request.add_ops()->mutable_matmul();
    matmul.mutable_a()->mutable_values()->set_buffer_id("a");
    matmul.mutable_d()->add_shape(1 << 20);
  }
  request.set_priority(v1::PRIORITY_LOW);
  request.set_report(v1::REPORT_LEVEL_SUMMARY);
  request.set_op_id("step-1");
  return request;
}

std::string OpsOf(const ExecuteRequest& request) {
  ExecuteRequest ops;
  *ops.mutable_ops() = request.ops();
  return ops.SerializeAsString();
}

TEST(ExecuteViewTest, SeesWhatProtobufReads) {
  const ExecuteRequest request = TwoOps();
  const std::string bytes = request.SerializeAsString();
  const auto view = ExecuteView::Of(bytes);
  ASSERT_TRUE(view.has_value());
  EXPECT_EQ(view->session_id, request.session_id());
  EXPECT_EQ(view->ops, OpsOf(request));
  EXPECT_EQ(view->priority, request.priority());
  EXPECT_EQ(view->report, request.report());
  EXPECT_EQ(view->op_id, request.op_id());
}

TEST(ExecuteViewTest, FieldsMayComeInAnyOrder) {
  const ExecuteRequest request = TwoOps();
  ExecuteRequest head = request;
  head.clear_ops();
  const std::string bytes = head.SerializeAsString() + OpsOf(request);
  const auto view = ExecuteView::Of(bytes);
  ASSERT_TRUE(view.has_value());
  EXPECT_EQ(view->ops, OpsOf(request));
  EXPECT_EQ(view->op_id, "step-1");
}

TEST(ExecuteViewTest, WhatIsLeftOutHasItsDefault) {
  ExecuteRequest request;
  request.add_ops()->mutable_fill();
  const std::string bytes = request.SerializeAsString();
  const auto view = ExecuteView::Of(bytes);
  ASSERT_TRUE(view.has_value());
  EXPECT_EQ(view->session_id, "");
  EXPECT_EQ(view->priority, v1::PRIORITY_NORMAL);
  EXPECT_EQ(view->report, v1::REPORT_LEVEL_FULL);
}

TEST(ExecuteViewTest, ProtobufReadsTheRest) {
  const std::string good = TwoOps().SerializeAsString();
  ExecuteRequest none = TwoOps();
  none.clear_ops();
  ExecuteRequest write = TwoOps();
  write.add_ops()->mutable_write()->set_data("1234");
  ExecuteRequest empty = TwoOps();
  empty.add_ops();
  ExecuteRequest session;
  session.set_session_id("fedcba9876543210");
  for (const std::string& bytes :
       {std::string(), none.SerializeAsString(), write.SerializeAsString(),
        empty.SerializeAsString(), good + session.SerializeAsString(), good + OpsOf(TwoOps()),
        good + "\xf8\x01\x01", good + std::string(1, '\0'), std::string("\xff\xff\xff")}) {
    EXPECT_FALSE(ExecuteView::Of(bytes).has_value());
  }
}

TEST(ExecuteViewTest, AnEndThatIsMissingIsNoView) {
  const std::string good = TwoOps().SerializeAsString();
  for (size_t size = 0; size < good.size(); ++size) {
    const auto view = ExecuteView::Of(std::string_view(good).substr(0, size));
    ExecuteRequest whole;
    EXPECT_TRUE(!view.has_value() || whole.ParseFromString(good.substr(0, size))) << size;
  }
  std::string longer = good;
  longer[1] = '\x7f';  // the session's length
  EXPECT_FALSE(ExecuteView::Of(longer).has_value());
}

TEST(ExecuteViewTest, SmallRequestsAreOnePiece) {
  const std::string bytes = TwoOps().SerializeAsString();
  const grpc::Slice pieces[] = {grpc::Slice(bytes.substr(0, 5)), grpc::Slice(bytes.substr(5))};
  const grpc::Slice one = SmallRequest(grpc::ByteBuffer(pieces, 2));
  EXPECT_EQ(std::string(one.begin(), one.end()), bytes);
  const grpc::Slice large(1 << 20);
  EXPECT_EQ(SmallRequest(grpc::ByteBuffer(&large, 1)).size(), 0);
}

}  // namespace
}  // namespace gemmd::server
