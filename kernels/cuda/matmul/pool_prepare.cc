// GemmPool's launches, apart from the choice, which needs no kernels.

#include <utility>

#include "kernels/cuda/device/cuda_status.h"
#include "kernels/cuda/matmul/gate_behind.h"
#include "kernels/cuda/matmul/pool.h"

namespace gemmd::kernels::cuda {
namespace {

class GatedProduct final : public PreparedMatmul {
 public:
  GatedProduct(std::unique_ptr<const PreparedMatmul> product, const GatedArgs& gate)
      : product_(std::move(product)), gate_(gate) {
    gate_.programmatic = true;
  }

  absl::Status Launch(bool overlap, cudaStream_t stream) const override {
    const absl::Status status = product_->Launch(overlap, stream);
    return status.ok() ? ToStatus(LaunchGated(gate_, stream), "a gate behind its product") : status;
  }

 private:
  const std::unique_ptr<const PreparedMatmul> product_;
  GatedArgs gate_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<const PreparedMatmul>> GemmPool::Prepare(int member,
                                                                        const MatmulArgs& args,
                                                                        std::byte* scratch) const {
  const auto& [family, index, off] = members_[member];
  if (!PutsGateBehind(*family, args.problem)) return family->Prepare(index, args, scratch);
  MatmulArgs product{ProductOf(args.problem), args.gemm, std::nullopt};
  GatedArgs gate = *args.gate;
  product.gemm.d.data = scratch + ProductOffset(family->ScratchBytes(index, product.problem));
  gate.src = product.gemm.d.data;
  auto prepared = family->Prepare(index, product, scratch);
  if (!prepared.ok()) return prepared.status();
  return std::make_unique<GatedProduct>(*std::move(prepared), gate);
}

}  // namespace gemmd::kernels::cuda
