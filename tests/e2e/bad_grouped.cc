#include <functional>

#include "tests/e2e/bad_input_case.h"

namespace gemmd::e2e {
namespace {

// Two groups of FP32 in a [6, 4] by b [2, 2, 4], into d [6, 2]; the numbers of groups behind b.
v1::Op Good(const Prepared& p) {
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
            v1::Op op = Good(p);
            spoil(p, *op.mutable_grouped_matmul());
            return p.wire.Execute(p.session, {op});
          }};
}

// The numbers are written by the program itself, so that only the device can know them.
BadInput BadNumbers(std::string name, std::vector<int32_t> numbers, std::vector<std::string> says,
                    std::function<void(const Prepared&, v1::GroupedMatmul&)> change) {
  return {std::move(name), grpc::StatusCode::INVALID_ARGUMENT, std::move(says),
          [numbers = std::move(numbers), change = std::move(change)](Prepared& p) {
            v1::Op op = Good(p);
            change(p, *op.mutable_grouped_matmul());
            const std::string bytes(reinterpret_cast<const char*>(numbers.data()),
                                    numbers.size() * sizeof(int32_t));
            const v1::Op write = WriteOp(op.grouped_matmul().groups(), bytes);
            return p.wire.Execute(p.session, {write, op});
          }};
}

}  // namespace

std::vector<BadInput> BadGrouped() {
  const auto same = [](auto&, v1::GroupedMatmul&) {};
  return {
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
  };
}

}  // namespace gemmd::e2e
