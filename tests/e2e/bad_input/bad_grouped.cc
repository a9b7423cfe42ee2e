#include <functional>

#include "tests/e2e/bad_input_case.h"

namespace gemmd::e2e {
namespace {

// Two groups of FP32 in a [6, 4] by b [2, 2, 4], into d [6, 2]; the numbers of groups behind b.
v1::Op GoodGroups(const Prepared& p) {
  v1::Op op;
  v1::GroupedMatmul& grouped = *op.mutable_grouped_matmul();
  *grouped.mutable_a()->mutable_values() = View(p.a, {6, 4});
  *grouped.mutable_b()->mutable_values() = View(p.b, {2, 2, 4});
  *grouped.mutable_groups() = View(p.b, {3}, v1::DTYPE_I32, 2048);
  *grouped.mutable_d() = View(p.d, {6, 2});
  return op;
}

BadInput Bad(std::string name, std::vector<std::string> says,
             std::function<void(const Prepared&, v1::GroupedMatmul&)> spoil) {
  return {std::move(name), grpc::StatusCode::INVALID_ARGUMENT, std::move(says),
          [spoil = std::move(spoil)](Prepared& p) {
            v1::Op op = GoodGroups(p);
            spoil(p, *op.mutable_grouped_matmul());
            return p.wire.Execute(p.session, {op});
          }};
}

// The numbers are written by the program itself, so that only the device can know them.
BadInput BadNumbers(std::string name, std::vector<int32_t> numbers, std::vector<std::string> says,
                    std::function<void(const Prepared&, v1::GroupedMatmul&)> change) {
  return {std::move(name), grpc::StatusCode::INVALID_ARGUMENT, std::move(says),
          [numbers = std::move(numbers), change = std::move(change)](Prepared& p) {
            v1::Op op = GoodGroups(p);
            change(p, *op.mutable_grouped_matmul());
            const std::string bytes(reinterpret_cast<const char*>(numbers.data()),
                                    numbers.size() * sizeof(int32_t));
            const v1::Op write = WriteOp(op.grouped_matmul().groups(), bytes);
            return p.wire.Execute(p.session, {write, op});
          }};
}

// The two matrices of b told one by one.
v1::Op Apart(const Prepared& p) {
  v1::Op op = GoodGroups(p);
  v1::GroupedMatmul& grouped = *op.mutable_grouped_matmul();
  grouped.clear_b();
  for (const int64_t at : {0, 32}) {
    *grouped.add_weights()->mutable_values() = View(p.b, {2, 4}, v1::DTYPE_F32, at);
  }
  return op;
}

// Of the second matrix of the table.
BadInput BadTable(std::string name, grpc::StatusCode code, std::vector<std::string> says,
                  std::function<void(Prepared&, v1::GroupedMatmul&, v1::Tensor&)> spoil) {
  return {std::move(name), code, std::move(says), [spoil = std::move(spoil)](Prepared& p) {
            v1::Op op = Apart(p);
            v1::GroupedMatmul& grouped = *op.mutable_grouped_matmul();
            spoil(p, grouped, *grouped.mutable_weights(1)->mutable_values());
            return p.wire.Execute(p.session, {op});
          }};
}

void DeleteBuffer(Prepared& p, const std::string& buffer) {
  grpc::ClientContext context;
  v1::DeleteBuffersRequest request;
  request.set_session_id(p.session);
  request.add_buffer_ids(buffer);
  v1::DeleteBuffersResponse response;
  EXPECT_TRUE(p.wire.buffers().DeleteBuffers(&context, request, &response).ok());
}

std::vector<BadInput> BadTables() {
  using grpc::StatusCode::INVALID_ARGUMENT;
  using grpc::StatusCode::NOT_FOUND;
  return {
      BadTable("TableBesideB", INVALID_ARGUMENT, {"b and weights", "leave one out"},
               [](auto& p, v1::GroupedMatmul& op, auto&) {
                 *op.mutable_b()->mutable_values() = View(p.b, {2, 2, 4});
               }),
      BadTable("TableOfAFreedBuffer", NOT_FOUND, {"ops[0].grouped_matmul.weights[1]"},
               [](auto& p, auto&, v1::Tensor& second) {
                 second.set_buffer_id(p.wire.CreateBuffer(p.session, 64));
                 DeleteBuffer(p, second.buffer_id());
               }),
      BadTable("TableOfAnothersBuffer", NOT_FOUND, {"ops[0].grouped_matmul.weights[1]"},
               [](auto& p, auto&, v1::Tensor& second) {
                 const std::string other = p.wire.OpenSession("other");
                 second.set_buffer_id(p.wire.CreateBuffer(other, 64));
                 EXPECT_TRUE(p.wire.CloseSession(other).ok());
               }),
      BadTable("TableOfNoHandle", INVALID_ARGUMENT, {"weights[1]", "3 bytes, not 16"},
               [](auto&, auto&, v1::Tensor& second) { second.set_buffer_id("abc"); }),
      BadTable("TableMisaligned", INVALID_ARGUMENT, {"weights[1]", "offset_bytes=2"},
               [](auto&, auto&, v1::Tensor& second) { second.set_offset_bytes(2); }),
      BadTable("TableBeyondItsBuffer", INVALID_ARGUMENT, {"weights[1]", "4096"},
               [](auto&, auto&, v1::Tensor& second) { second.set_offset_bytes(4096 - 28); }),
      BadTable("TableOfAnotherDtype", INVALID_ARGUMENT,
               {"weights[1] is bf16 but weights[0] is f32", "convert"},
               [](auto&, auto&, v1::Tensor& second) { second.set_dtype(v1::DTYPE_BF16); }),
      BadTable("TableOfAnotherShape", INVALID_ARGUMENT,
               {"weights[1] has shape [1, 4] but weights[0] [2, 4]"},
               [](auto&, auto&, v1::Tensor& second) { second.set_shape(0, 1); }),
      BadTable("TableOfAnotherK", INVALID_ARGUMENT, {"k=4 of a", "k=2"},
               [](auto& p, v1::GroupedMatmul& op, auto&) {
                 for (v1::Operand& matrix : *op.mutable_weights()) {
                   *matrix.mutable_values() = View(p.b, {2, 2});
                 }
               }),
      BadTable("TableOfOtherStrides", INVALID_ARGUMENT, {"weights[1] has strides [1, 2]"},
               [](auto& p, auto&, v1::Tensor& second) {
                 second = View(p.b, {2, 4}, v1::DTYPE_F32, 32, {1, 2});
               }),
      BadTable("TableOfTooManyMatrices", INVALID_ARGUMENT, {"513 matrices", "limit 512"},
               [](auto&, v1::GroupedMatmul& op, auto&) {
                 const v1::Operand first = op.weights(0);
                 while (op.weights_size() < 513) *op.add_weights() = first;
               }),
      BadTable("TableOfFewerMatricesThanOffsets", INVALID_ARGUMENT, {"groups has shape [3]", "[4]"},
               [](auto&, v1::GroupedMatmul& op, auto&) {
                 const v1::Operand first = op.weights(0);
                 *op.add_weights() = first;
               }),
      BadTable("TableUnderTheResult", INVALID_ARGUMENT, {"d", "overlaps weights[1]", "apart"},
               [](auto& p, auto&, v1::Tensor& second) {
                 second = View(p.d, {2, 4});
               }),
      BadTable("TableWithoutScales", INVALID_ARGUMENT, {"weights[0]", "no scales"},
               [](auto&, v1::GroupedMatmul& op, auto&) {
                 for (v1::Operand& matrix : *op.mutable_weights()) {
                   matrix.set_granularity(v1::SCALE_GRANULARITY_PER_ROW);
                 }
               }),
      BadTable("TableOfTwoGranularities", INVALID_ARGUMENT,
               {"weights[1] has scales of row but weights[0] of none"},
               [](auto&, v1::GroupedMatmul& op, auto&) {
                 op.mutable_weights(1)->set_granularity(v1::SCALE_GRANULARITY_PER_ROW);
               }),
  };
}

std::vector<BadInput> WithTables(std::vector<BadInput> all) {
  for (BadInput& bad : BadTables()) all.push_back(std::move(bad));
  return all;
}

}  // namespace

std::vector<BadInput> BadGrouped() {
  const auto same = [](auto&, v1::GroupedMatmul&) {};
  const auto counts = [](const Prepared& p, v1::GroupedMatmul& op) {
    op.set_layout(v1::GROUP_LAYOUT_COUNTS);
    *op.mutable_a()->mutable_values() = View(p.a, {2, 3, 4});
    *op.mutable_d() = View(p.d, {2, 3, 2});
    *op.mutable_groups() = View(p.b, {2}, v1::DTYPE_I32, 2048);
  };
  return WithTables({
      Bad("GroupedWithoutGroups", {"ops[0].grouped_matmul.groups", "required"},
          [](auto&, v1::GroupedMatmul& op) { op.clear_groups(); }),
      Bad("GroupedUnknownLayout", {"layout 9", "not known"},
          [](auto&, v1::GroupedMatmul& op) { op.set_layout(static_cast<v1::GroupLayout>(9)); }),
      Bad("GroupedOffsetsOfAnotherLength", {"groups has shape [2]", "layout offsets", "[3]"},
          [](auto& p, v1::GroupedMatmul& op) {
            *op.mutable_groups() = View(p.b, {2}, v1::DTYPE_I32, 2048);
          }),
      Bad("GroupedNumbersAsFloats", {"groups is f32", "i32"},
          [](auto& p, v1::GroupedMatmul& op) {
            *op.mutable_groups() = View(p.b, {3}, v1::DTYPE_F32, 2048);
          }),
      Bad("GroupedCountsOfAMatrix", {"a has shape [6, 4]", "3 dimensions"},
          [](auto&, v1::GroupedMatmul& op) { op.set_layout(v1::GROUP_LAYOUT_COUNTS); }),
      Bad("GroupedAlignmentOfOffsets", {"alignment=128", "layout ends alone"},
          [](auto&, v1::GroupedMatmul& op) { op.set_alignment(128); }),
      Bad("GroupedNegativeAlignment", {"alignment=-4"},
          [](auto& p, v1::GroupedMatmul& op) {
            op.set_layout(v1::GROUP_LAYOUT_ENDS);
            *op.mutable_groups() = View(p.b, {2}, v1::DTYPE_I32, 2048);
            op.set_alignment(-4);
          }),
      Bad("GroupedWeightsOfOneMatrix", {"b has shape [2, 4]", "[groups, n, k]"},
          [](auto& p, v1::GroupedMatmul& op) {
            *op.mutable_b()->mutable_values() = View(p.b, {2, 4});
          }),
      Bad("GroupedOtherK", {"k=4", "k=2", "[groups, n, k]"},
          [](auto& p, v1::GroupedMatmul& op) {
            *op.mutable_b()->mutable_values() = View(p.b, {2, 2, 2});
          }),
      Bad("GroupedOddGate", {"n=1", "odd"},
          [](auto& p, v1::GroupedMatmul& op) {
            *op.mutable_b()->mutable_values() = View(p.b, {2, 1, 4});
            op.mutable_gate();
          }),
      Bad("GroupedGateAndActivation", {"activation relu", "beside a gate"},
          [](auto&, v1::GroupedMatmul& op) {
            op.mutable_gate();
            op.set_activation(v1::ACTIVATION_RELU);
          }),
      Bad("GroupedAlphaZero", {"alpha=0"}, [](auto&, v1::GroupedMatmul& op) { op.set_alpha(0); }),
      Bad("GroupedE4m3WithoutGate", {"d is e4m3"},
          [](auto& p, v1::GroupedMatmul& op) {
            *op.mutable_d() = View(p.d, {6, 2}, v1::DTYPE_E4M3);
          }),
      Bad("GroupedInPlace", {"d", "overlaps a", "apart"},
          [](auto& p, v1::GroupedMatmul& op) { op.mutable_d()->set_buffer_id(p.a); }),
      BadNumbers("GroupedOffsetsThatFall", {0, 5, 3}, {"op 1 (grouped_matmul)", "groups[2]=3"},
                 same),
      BadNumbers("GroupedOffsetsBelowZero", {-1, 2, 6}, {"groups[0]=-1"}, same),
      BadNumbers("GroupedOffsetsBeyondTheRows", {0, 3, 7}, {"groups[2]=7", "0 to 6"}, same),
      BadNumbers("GroupedIdsOutOfOrder", {0, 1, 0, 1, 1, -1}, {"groups[2]=0", "order rows"},
                 [](auto& p, v1::GroupedMatmul& op) {
                   op.set_layout(v1::GROUP_LAYOUT_ROW_IDS);
                   *op.mutable_groups() = View(p.b, {6}, v1::DTYPE_I32, 2048);
                 }),
      BadNumbers("GroupedEndsThatFall", {4, 2}, {"groups[1]=2"},
                 [](auto& p, v1::GroupedMatmul& op) {
                   op.set_layout(v1::GROUP_LAYOUT_ENDS);
                   *op.mutable_groups() = View(p.b, {2}, v1::DTYPE_I32, 2048);
                 }),
      BadNumbers("GroupedCountsBeyondAnItem", {1, 4}, {"groups[1]=4", "0 to 3"}, counts),
      BadNumbers("GroupedCountsBelowZero", {-2, 1}, {"groups[0]=-2"}, counts),
      BadNumbers("GroupedIdsBeyondTheGroups", {0, 1, 2, -1, -1, -1}, {"groups[2]=2", "-1 to 1"},
                 [](auto& p, v1::GroupedMatmul& op) {
                   op.set_layout(v1::GROUP_LAYOUT_ROW_IDS);
                   *op.mutable_groups() = View(p.b, {6}, v1::DTYPE_I32, 2048);
                 }),
      BadNumbers("GroupedIdsBelowMinusOne", {0, -2, 1, 1, 1, -1}, {"groups[1]=-2"},
                 [](auto& p, v1::GroupedMatmul& op) {
                   op.set_layout(v1::GROUP_LAYOUT_ROW_IDS);
                   *op.mutable_groups() = View(p.b, {6}, v1::DTYPE_I32, 2048);
                 }),
      Bad("GroupedOfNoGroups", {"0 groups", "1 to 512"},
          [](auto& p, v1::GroupedMatmul& op) {
            *op.mutable_b()->mutable_values() = View(p.b, {0, 2, 4});
          }),
      Bad("GroupedOfTooManyGroups", {"513 groups", "1 to 512"},
          [](auto& p, v1::GroupedMatmul& op) {
            *op.mutable_b()->mutable_values() = View(p.b, {513, 2, 4}, v1::DTYPE_F32, 0, {0, 4, 1});
          }),
      Bad("GroupedScalesOfAnotherShape", {"b.scales has shape [2, 3]", "[2, 2]"},
          [](auto& p, v1::GroupedMatmul& op) {
            op.mutable_b()->set_granularity(v1::SCALE_GRANULARITY_PER_ROW);
            *op.mutable_b()->mutable_scales() = View(p.b, {2, 3}, v1::DTYPE_F32, 1024);
          }),
      {"GroupedUnknownKernel",
       grpc::StatusCode::NOT_FOUND,
       {"kernel nope", "grouped"},
       [](Prepared& p) {
         v1::Op op = GoodGroups(p);
         op.mutable_grouped_matmul()->set_kernel("nope");
         return p.wire.Execute(p.session, {op});
       }},
  });
}

}  // namespace gemmd::e2e
