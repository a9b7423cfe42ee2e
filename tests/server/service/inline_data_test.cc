#include "server/service/wire/inline_data.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "gemmd/v1/compute_service.pb.h"

namespace gemmd::server {
namespace {

using v1::ExecuteRequest;

grpc::ByteBuffer InSlices(const std::string& bytes, size_t size) {
  std::vector<grpc::Slice> slices;
  for (size_t at = 0; at < bytes.size(); at += size) slices.emplace_back(bytes.substr(at, size));
  return grpc::ByteBuffer(slices.data(), slices.size());
}

std::string TextOf(const kernels::HostBytes& bytes) {
  std::string text(bytes.size(), '\0');
  bytes.CopyTo(reinterpret_cast<std::byte*>(text.data()));
  return text;
}

std::string Sized(const std::string& data) {
  const uint64_t size = data.size();
  return {reinterpret_cast<const char*>(&size), sizeof(size)};
}

void AddWrite(ExecuteRequest& request, const std::string& data) {
  v1::Write& write = *request.add_ops()->mutable_write();
  write.mutable_dst()->set_buffer_id("0123456789abcdef");
  write.mutable_dst()->add_shape(1000);
  write.set_data(data);
}

ExecuteRequest WithData(const std::vector<std::string>& data) {
  ExecuteRequest request;
  request.set_session_id("fedcba9876543210");
  for (const std::string& bytes : data) {
    AddWrite(request, bytes);
    request.add_ops()->mutable_read()->mutable_src()->set_offset_bytes(300);
  }
  request.set_priority(v1::PRIORITY_LOW);
  request.set_op_id("step");
  return request;
}

TEST(InlineDataTest, FindsDataHoweverItIsCut) {
  const std::vector<std::string> data = {std::string(300, 'a'), "short", std::string(20000, 'b')};
  ExecuteRequest rest = WithData(data);
  for (size_t i = 0; i < data.size(); ++i) {
    rest.mutable_ops(2 * i)->mutable_write()->set_data(Sized(data[i]));
  }
  const std::string bytes = WithData(data).SerializeAsString();
  for (const size_t size : {1, 2, 7, 100, 4096, 100000}) {
    grpc::ByteBuffer request = InSlices(bytes, size);
    const auto taken = TakeExecuteData(request);
    ASSERT_NE(taken, nullptr);
    EXPECT_EQ(taken->rest, rest.SerializeAsString());
    ASSERT_EQ(taken->data.size(), data.size());
    for (size_t i = 0; i < data.size(); ++i) EXPECT_EQ(TextOf(taken->data[i]), data[i]);
  }
}

TEST(InlineDataTest, FindsThePlansInputs) {
  v1::RunPlanRequest request;
  request.set_session_id("fedcba9876543210");
  request.mutable_run()->set_plan_id("plan");
  request.mutable_run()->add_rebind()->set_from_buffer_id("from");
  request.mutable_run()->add_inputs("one");
  request.mutable_run()->add_inputs(std::string(5000, 'x'));
  v1::RunPlanRequest rest = request;
  for (std::string& input : *rest.mutable_run()->mutable_inputs()) input = Sized(input);
  grpc::ByteBuffer bytes = InSlices(request.SerializeAsString(), 999);
  const auto taken = TakeRunPlanData(bytes);
  ASSERT_NE(taken, nullptr);
  EXPECT_EQ(taken->rest, rest.SerializeAsString());
  ASSERT_EQ(taken->data.size(), 2);
  EXPECT_EQ(TextOf(taken->data[0]), "one");
  EXPECT_EQ(TextOf(taken->data[1]), std::string(5000, 'x'));
}

TEST(InlineDataTest, WhatIsCutOffIsLeftToProtobuf) {
  const std::string bytes = WithData({"some", "data"}).SerializeAsString();
  for (size_t size = 0; size < bytes.size(); ++size) {
    grpc::ByteBuffer request = InSlices(bytes.substr(0, size), 16);
    const auto taken = TakeExecuteData(request);
    ExecuteRequest whole;
    const bool good = whole.ParseFromString(bytes.substr(0, size));
    EXPECT_TRUE(taken == nullptr || good) << size;
    if (taken == nullptr) {
      EXPECT_EQ(request.Length(), size);  // it is there to be read
    }
  }
}

// Protobuf takes the last of several, or merges them: the i-th data would no longer be the i-th
// Write's.
TEST(InlineDataTest, UnusualWritesAreLeftToProtobuf) {
  const auto field = [](int number, const std::string& bytes) {
    return std::string(1, static_cast<char>(number << 3 | 2)) +
           std::string(1, static_cast<char>(bytes.size())) + bytes;
  };
  const std::string data = field(v1::Write::kDataFieldNumber, "data");
  const auto op = [&](const std::string& fields) {
    return field(ExecuteRequest::kOpsFieldNumber, fields);
  };
  const std::string write = field(v1::Op::kWriteFieldNumber, data);
  const std::string fill = field(v1::Op::kFillFieldNumber, "");
  const auto taken = [](const std::string& bytes) {
    grpc::ByteBuffer request = InSlices(bytes, 100);
    return TakeExecuteData(request) != nullptr;
  };
  EXPECT_TRUE(taken(op(write) + op(fill)));
  EXPECT_FALSE(taken(op(write + write)));
  EXPECT_FALSE(taken(op(write + fill)));
  EXPECT_FALSE(taken(op(fill + write)));
  EXPECT_FALSE(taken(op(field(v1::Op::kWriteFieldNumber, data + data))));
  EXPECT_FALSE(taken(op(field(v1::Op::kWriteFieldNumber, ""))));
  EXPECT_FALSE(taken(op(write) + std::string(1, '\x0b')));  // a group
  EXPECT_FALSE(taken(op(write) + std::string(1, '\0')));
}

}  // namespace
}  // namespace gemmd::server
