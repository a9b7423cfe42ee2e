#include "kernels/cuda/matmul/placed_args.h"

#include <vector>

namespace gemmd::kernels::cuda {

MatmulArgs PlacedArgs(const MatmulOp& op, SlotAddresses slots) {
  MatmulProblem problem = ProblemOf(op);
  if (!op.gate) return {std::move(problem), ArgsOf(op, slots), std::nullopt};
  std::vector<std::byte*> all(slots.begin(), slots.end());
  all.push_back(nullptr);  // the product's place
  const MatmulOp product =
      ProductOf(op, ProductOf(problem).d.dtype, static_cast<int>(all.size()) - 1);
  return {std::move(problem), ArgsOf(product, all),
          ArgsOf(GatedOf(*op.gate, product.d, op.d, op.d_scales), all)};
}

}  // namespace gemmd::kernels::cuda
