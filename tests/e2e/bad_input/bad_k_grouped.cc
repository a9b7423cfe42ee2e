#include <functional>

#include "tests/e2e/bad_input_case.h"

namespace gemmd::e2e {
namespace {

// Two groups of FP32 columns: a [3, 6] by b [2, 6] into d [2, 3, 2]; the numbers of groups behind
// b.
v1::Op GoodColumns(const Prepared& p) {
  v1::Op op;
  v1::KGroupedMatmul& grouped = *op.mutable_k_grouped_matmul();
  *grouped.mutable_a()->mutable_values() = View(p.a, {3, 6});
  *grouped.mutable_b()->mutable_values() = View(p.b, {2, 6});
  *grouped.mutable_groups() = View(p.b, {3}, v1::DTYPE_I32, 2048);
  *grouped.mutable_d() = View(p.d, {2, 3, 2});
  return op;
}

BadInput Bad(std::string name, std::vector<std::string> says,
             std::function<void(const Prepared&, v1::KGroupedMatmul&)> spoil) {
  return {std::move(name), grpc::StatusCode::INVALID_ARGUMENT, std::move(says),
          [spoil = std::move(spoil)](Prepared& p) {
            v1::Op op = GoodColumns(p);
            spoil(p, *op.mutable_k_grouped_matmul());
            return p.wire.Execute(p.session, {op});
          }};
}

// The numbers are written by the program itself, so that only the device can know them.
BadInput BadNumbers(std::string name, std::vector<int32_t> numbers, std::vector<std::string> says,
                    std::function<void(const Prepared&, v1::KGroupedMatmul&)> change) {
  return {std::move(name), grpc::StatusCode::INVALID_ARGUMENT, std::move(says),
          [numbers = std::move(numbers), change = std::move(change)](Prepared& p) {
            v1::Op op = GoodColumns(p);
            change(p, *op.mutable_k_grouped_matmul());
            const std::string bytes(reinterpret_cast<const char*>(numbers.data()),
                                    numbers.size() * sizeof(int32_t));
            const v1::Op write = WriteOp(op.k_grouped_matmul().groups(), bytes);
            return p.wire.Execute(p.session, {write, op});
          }};
}

}  // namespace

std::vector<BadInput> BadKGrouped() {
  const auto same = [](auto&, v1::KGroupedMatmul&) {};
  const auto ends = [](const Prepared& p, v1::KGroupedMatmul& op) {
    op.set_layout(v1::GROUP_LAYOUT_ENDS);
    *op.mutable_groups() = View(p.b, {2}, v1::DTYPE_I32, 2048);
  };
  // 160 columns of E4M3 by E5M2 with scales of 1x128.
  const auto blocks = [](const Prepared& p, v1::KGroupedMatmul& op) {
    *op.mutable_a()->mutable_values() = View(p.a, {3, 160}, v1::DTYPE_E4M3);
    *op.mutable_b()->mutable_values() = View(p.b, {2, 160}, v1::DTYPE_E5M2);
    *op.mutable_a()->mutable_scales() = View(p.a, {3, 2}, v1::DTYPE_F32, 1024);
    *op.mutable_b()->mutable_scales() = View(p.b, {2, 2}, v1::DTYPE_F32, 1024);
    op.mutable_a()->set_granularity(v1::SCALE_GRANULARITY_BLOCK_1X128);
    op.mutable_b()->set_granularity(v1::SCALE_GRANULARITY_BLOCK_1X128);
  };
  return {
      Bad("KGroupedWithoutGroups", {"ops[0].k_grouped_matmul.groups", "required"},
          [](auto&, v1::KGroupedMatmul& op) { op.clear_groups(); }),
      Bad("KGroupedOfRows", {"layout counts", "use offsets or ends"},
          [](auto&, v1::KGroupedMatmul& op) { op.set_layout(v1::GROUP_LAYOUT_COUNTS); }),
      Bad("KGroupedUnknownLayout", {"layout 9", "not known"},
          [](auto&, v1::KGroupedMatmul& op) { op.set_layout(static_cast<v1::GroupLayout>(9)); }),
      Bad("KGroupedOffsetsOfAnotherLength", {"groups has shape [2]", "layout offsets", "[3]"},
          [](auto& p, v1::KGroupedMatmul& op) {
            *op.mutable_groups() = View(p.b, {2}, v1::DTYPE_I32, 2048);
          }),
      Bad("KGroupedOtherK", {"k=6", "k=4", "[n, k]"},
          [](auto& p, v1::KGroupedMatmul& op) {
            *op.mutable_b()->mutable_values() = View(p.b, {2, 4});
          }),
      Bad("KGroupedMixedTypes", {"a is f32 but b is e5m2", "convert"},
          [](auto& p, v1::KGroupedMatmul& op) {
            *op.mutable_b()->mutable_values() = View(p.b, {2, 6}, v1::DTYPE_E5M2);
          }),
      Bad("KGroupedBetaWithoutC", {"beta=1", "no c", "add c"},
          [](auto&, v1::KGroupedMatmul& op) { op.set_beta(1); }),
      Bad("KGroupedCOfAnotherType", {"c is bf16", "f32"},
          [](auto& p, v1::KGroupedMatmul& op) {
            *op.mutable_c() = View(p.a, {2, 3, 2}, v1::DTYPE_BF16, 1024);
          }),
      Bad("KGroupedAlphaZero", {"alpha=0"}, [](auto&, v1::KGroupedMatmul& op) { op.set_alpha(0); }),
      Bad("KGroupedResultOfAMatrix", {"d has shape [3, 2]", "[groups, m, n]"},
          [](auto& p, v1::KGroupedMatmul& op) {
            *op.mutable_d() = View(p.d, {3, 2});
          }),
      Bad("KGroupedInPlace", {"d", "overlaps a", "apart"},
          [](auto& p, v1::KGroupedMatmul& op) { op.mutable_d()->set_buffer_id(p.a); }),
      BadNumbers("KGroupedOffsetsThatFall", {0, 5, 3}, {"op 1 (k_grouped_matmul)", "groups[2]=3"},
                 same),
      BadNumbers("KGroupedOffsetsBelowZero", {-1, 2, 6}, {"groups[0]=-1"}, same),
      BadNumbers("KGroupedOffsetsBeyondTheColumns", {0, 3, 7}, {"groups[2]=7", "0 to 6"}, same),
      BadNumbers("KGroupedEndsThatFall", {4, 2}, {"groups[1]=2"}, ends),
      BadNumbers("KGroupedEndsBeyondTheColumns", {4, 7}, {"groups[1]=7", "beyond 6"}, ends),
      BadNumbers("KGroupedInAScaleOfTheGroupInFront", {0, 100, 160},
                 {"group 1 starts at column 100", "multiple of 128", "alignment of 128"}, blocks),
      {"KGroupedUnknownKernel",
       grpc::StatusCode::NOT_FOUND,
       {"kernel nope", "grouped"},
       [](Prepared& p) {
         v1::Op op = GoodColumns(p);
         op.mutable_k_grouped_matmul()->set_kernel("nope");
         return p.wire.Execute(p.session, {op});
       }},
  };
}

}  // namespace gemmd::e2e
