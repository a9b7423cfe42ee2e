#include <functional>
#include <limits>

#include "tests/e2e/bad_input_case.h"

namespace gemmd::e2e {
namespace {

// Two of 16 experts for each of 4 tokens, of two of four groups. In b lies the bias, in d experts
// and, from byte 1024 on, weights.
v1::Op GoodChoice(const Prepared& p) {
  v1::Op op;
  v1::Choose& choose = *op.mutable_choose();
  *choose.mutable_logits() = View(p.a, {4, 16});
  *choose.mutable_bias() = View(p.b, {16});
  *choose.mutable_experts() = View(p.d, {4, 2}, v1::DTYPE_I32);
  *choose.mutable_weights() = View(p.d, {4, 2}, v1::DTYPE_F32, 1024);
  choose.set_groups(4);
  choose.set_top_groups(2);
  return op;
}

BadInput Bad(std::string name, std::vector<std::string> says,
             std::function<void(const Prepared&, v1::Choose&)> spoil) {
  return {std::move(name), grpc::StatusCode::INVALID_ARGUMENT, std::move(says),
          [spoil = std::move(spoil)](Prepared& p) {
            v1::Op op = GoodChoice(p);
            spoil(p, *op.mutable_choose());
            return p.wire.Execute(p.session, {op});
          }};
}

}  // namespace

std::vector<BadInput> BadChoose() {
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  return {
      Bad("ChooseWithoutLogits", {"ops[0].choose.logits", "required"},
          [](auto&, v1::Choose& choose) { choose.clear_logits(); }),
      Bad("ChooseOfUnknownScores", {"ops[0].choose", "scores 2", "not known"},
          [](auto&, v1::Choose& choose) { choose.set_scores(static_cast<v1::RouterScores>(2)); }),
      Bad("ChooseOfUnknownGroupScore", {"ops[0].choose", "group_score -1", "not known"},
          [](auto&, v1::Choose& choose) {
            choose.set_group_score(static_cast<v1::GroupScore>(-1));
          }),
      Bad("ChooseOfTooManyExperts", {"op 0 (choose)", "513 experts", "1 to 512"},
          [](auto& p, v1::Choose& choose) {
            *choose.mutable_logits() = View(p.a, {1, 513});
          }),
      Bad("ChooseMoreThanThereAre", {"top_k=17", "1 to 16", "reshape"},
          [](auto& p, v1::Choose& choose) {
            *choose.mutable_experts() = View(p.d, {4, 17}, v1::DTYPE_I32);
          }),
      Bad("ChooseForOtherTokens", {"experts has shape [3, 2]", "[4, 2]", "reshape experts"},
          [](auto& p, v1::Choose& choose) {
            *choose.mutable_experts() = View(p.d, {3, 2}, v1::DTYPE_I32);
          }),
      Bad("ChooseWithABiasOfBF16", {"bias is bf16", "f32"},
          [](auto&, v1::Choose& choose) { choose.mutable_bias()->set_dtype(v1::DTYPE_BF16); }),
      Bad("ChooseFromUnequalGroups", {"groups=5", "16 experts", "one size"},
          [](auto&, v1::Choose& choose) { choose.set_groups(5); }),
      Bad("ChooseFromFewerThanNoGroups", {"groups=-4", "one size"},
          [](auto&, v1::Choose& choose) { choose.set_groups(-4); }),
      Bad("ChooseFromMoreGroupsThanThereAre", {"top_groups=5", "groups=4"},
          [](auto&, v1::Choose& choose) { choose.set_top_groups(5); }),
      Bad("ChooseFromTooFewExperts", {"top_groups=1", "groups of 1", "top_k=2"},
          [](auto&, v1::Choose& choose) {
            choose.set_groups(16);
            choose.set_top_groups(1);
          }),
      Bad("ChooseBySumsOfOneExpert", {"top2_sum", "groups=16", "use max"},
          [](auto&, v1::Choose& choose) {
            choose.set_groups(16);
            choose.set_group_score(v1::GROUP_SCORE_TOP2_SUM);
          }),
      Bad("ChooseWithAScaleOfNaN", {"scale=nan", "above 0"},
          [](auto&, v1::Choose& choose) { choose.set_scale(kNaN); }),
      Bad("ChooseWithAScaleOfZero", {"scale=0", "above 0"},
          [](auto&, v1::Choose& choose) { choose.set_scale(0); }),
      Bad("ChooseIntoItsLogits", {"weights", "overlaps logits", "apart"},
          [](auto& p, v1::Choose& choose) {
            *choose.mutable_weights() = View(p.a, {4, 2});
          }),
  };
}

}  // namespace gemmd::e2e
