#include "kernels/cuda/matmul/cublaslt/cublaslt.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "kernels/cuda/device/cuda_status.h"
#include "kernels/cuda/matmul/cublaslt/cublaslt_api.h"
#include "kernels/op.h"

namespace gemmd::kernels::cuda {
namespace {

int64_t RoundUp4(int64_t x) { return (x + 3) / 4 * 4; }

bool IsAligned16(const void* p) { return reinterpret_cast<uint64_t>(p) % 16 == 0; }

cudaDataType_t OperandsOf(CublasLtKind kind) {
  switch (kind) {
    case CublasLtKind::kFp8Block:
    case CublasLtKind::kFp8TensorWise:
      return CUDA_R_8F_E4M3;
    case CublasLtKind::kBf16:
      return CUDA_R_16BF;
    case CublasLtKind::kF16:
      return CUDA_R_16F;
    case CublasLtKind::kI8:
      return CUDA_R_8I;
  }
  return CUDA_R_8F_E4M3;
}

cudaDataType_t TypeOf(OutType out) {
  switch (out) {
    case OutType::kF32:
      return CUDA_R_32F;
    case OutType::kBF16:
      return CUDA_R_16BF;
    case OutType::kF16:
      return CUDA_R_16F;
  }
  return CUDA_R_32F;
}

// What the heuristic may assume of an address: cuBLAS thinks of 256 bytes unless told.
uint32_t AlignmentOf(const void* p) {
  const uint64_t bits = reinterpret_cast<uint64_t>(p) | 256;
  return static_cast<uint32_t>(bits & -bits);
}

absl::Status CheckScales(const GemmArgs& args) {
  const int64_t ld_b = RoundUp4((args.k + kScaleBlock - 1) / kScaleBlock);
  if (args.m % 4 != 0 || args.n % 4 != 0) {
    return absl::UnimplementedError(
        absl::StrCat("cublasLt: block scales need m and n in multiples "
                     "of 4; m=",
                     args.m, ", n=", args.n));
  }
  if (!IsAligned16(args.a_scales) || !IsAligned16(args.b_scales)) {
    return absl::InvalidArgumentError("cublasLt: scales must start at a multiple of 16 bytes");
  }
  if (args.a_scales_ld != args.m) {
    return absl::InvalidArgumentError(
        absl::StrCat("cublasLt: a's scales have ", args.a_scales_ld,
                     " floats between k blocks; the library takes m=", args.m));
  }
  if (args.b_scales_ld != ld_b) {
    return absl::InvalidArgumentError(
        absl::StrCat("cublasLt: b's scales have ", args.b_scales_ld,
                     " floats between rows of blocks; the library takes ", ld_b));
  }
  return absl::OkStatus();
}

}  // namespace

std::string_view Name(CublasLtKind kind) {
  switch (kind) {
    case CublasLtKind::kFp8Block:
      return "cublaslt_block";
    case CublasLtKind::kFp8TensorWise:
      return "cublaslt_tensorwise";
    case CublasLtKind::kBf16:
      return "cublaslt_bf16";
    case CublasLtKind::kF16:
      return "cublaslt_f16";
    case CublasLtKind::kI8:
      return "cublaslt_i8";
  }
  return "cublaslt";
}

// Destroys the descriptors that were made.
struct CublasLt::Plan::Parts {
  explicit Parts(const CublasLtApi& a) : api(a) {}
  ~Parts() {
    for (cublasLtMatrixLayout_t layout : {a, b, c, d}) {
      if (layout != nullptr) api.layout_destroy(layout);
    }
    if (desc != nullptr) api.desc_destroy(desc);
    if (preference != nullptr) api.preference_destroy(preference);
  }

  const CublasLtApi& api;
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatmulPreference_t preference = nullptr;
  cublasLtMatrixLayout_t a = nullptr;  // cuBLAS's names: our b
  cublasLtMatrixLayout_t b = nullptr;  // our a
  cublasLtMatrixLayout_t c = nullptr;
  cublasLtMatrixLayout_t d = nullptr;
  cublasLtMatmulAlgo_t algo{};
  GemmArgs args;
  bool integers = false;  // alpha and beta are int32, too

  template <class T>
  cublasStatus_t SetDesc(cublasLtMatmulDescAttributes_t attribute, T value) {
    return api.desc_set(desc, attribute, &value, sizeof(value));
  }
  template <class T>
  cublasStatus_t SetPreference(cublasLtMatmulPreferenceAttributes_t attribute, T value) {
    return api.preference_set(preference, attribute, &value, sizeof(value));
  }
  const void* c_or_d() const { return args.beta != 0 ? args.c : args.d; }

  absl::Status MakeDesc(CublasLtKind kind);
  absl::Status MakeLayouts(CublasLtKind kind);
  absl::Status PickAlgorithm(size_t workspace_bytes);
};

absl::Status CublasLt::Plan::Parts::MakeDesc(CublasLtKind kind) {
  integers = kind == CublasLtKind::kI8;
  const cublasComputeType_t compute = integers ? CUBLAS_COMPUTE_32I : CUBLAS_COMPUTE_32F;
  if (auto s = api.desc_create(&desc, compute, integers ? CUDA_R_32I : CUDA_R_32F);
      s != CUBLAS_STATUS_SUCCESS) {
    return api.ToStatus(s, "making a matmul descriptor");
  }
  for (cublasStatus_t code : {SetDesc(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T),
                              SetDesc(CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_N)}) {
    if (code != CUBLAS_STATUS_SUCCESS) return api.ToStatus(code, "setting transposition");
  }
  if (kind != CublasLtKind::kFp8Block && kind != CublasLtKind::kFp8TensorWise) {
    return absl::OkStatus();
  }
  for (cublasStatus_t code :
       {SetDesc(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, static_cast<const void*>(args.b_scales)),
        SetDesc(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, static_cast<const void*>(args.a_scales))}) {
    if (code != CUBLAS_STATUS_SUCCESS) return api.ToStatus(code, "setting scales");
  }
  if (kind == CublasLtKind::kFp8TensorWise) {
    return api.ToStatus(SetDesc(CUBLASLT_MATMUL_DESC_FAST_ACCUM, int8_t{1}),
                        "setting fast accumulation");
  }
  for (cublasStatus_t code :
       {SetDesc(CUBLASLT_MATMUL_DESC_A_SCALE_MODE,
                static_cast<int32_t>(CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F)),
        SetDesc(CUBLASLT_MATMUL_DESC_B_SCALE_MODE,
                static_cast<int32_t>(CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F))}) {
    // Libraries before 12.9 do not know the modes.
    if (code != CUBLAS_STATUS_SUCCESS) return api.ToStatus(code, "setting block scales");
  }
  return absl::OkStatus();
}

absl::Status CublasLt::Plan::Parts::MakeLayouts(CublasLtKind kind) {
  const cudaDataType_t in = OperandsOf(kind);
  const cudaDataType_t out = integers ? CUDA_R_32I : TypeOf(args.out);
  const int64_t ldc = args.beta != 0 ? args.ldc : args.ldd;
  for (cublasStatus_t code : {api.layout_create(&a, in, args.k, args.n, args.ldb),
                              api.layout_create(&b, in, args.k, args.m, args.lda),
                              api.layout_create(&c, out, args.n, args.m, ldc),
                              api.layout_create(&d, out, args.n, args.m, args.ldd)}) {
    if (code != CUBLAS_STATUS_SUCCESS) return api.ToStatus(code, "making a matrix layout");
  }
  return absl::OkStatus();
}

absl::Status CublasLt::Plan::Parts::PickAlgorithm(size_t workspace_bytes) {
  if (auto s = api.preference_create(&preference); s != CUBLAS_STATUS_SUCCESS) {
    return api.ToStatus(s, "making a preference");
  }
  for (cublasStatus_t code :
       {SetPreference(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{workspace_bytes}),
        SetPreference(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, AlignmentOf(args.b)),
        SetPreference(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, AlignmentOf(args.a)),
        SetPreference(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, AlignmentOf(c_or_d())),
        SetPreference(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, AlignmentOf(args.d))}) {
    if (code != CUBLAS_STATUS_SUCCESS) return api.ToStatus(code, "setting a preference");
  }
  cublasLtMatmulHeuristicResult_t result{};
  int found = 0;
  const cublasStatus_t code =
      api.heuristic(api.handle, desc, a, b, c, d, preference, 1, &result, &found);
  if (code != CUBLAS_STATUS_SUCCESS) return api.ToStatus(code, "heuristic");
  if (found == 0) return absl::UnimplementedError("cublasLt: heuristic: no algorithm");
  if (result.state != CUBLAS_STATUS_SUCCESS) return api.ToStatus(result.state, "heuristic");
  algo = result.algo;
  return absl::OkStatus();
}

CublasLt::Plan::Plan(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
CublasLt::Plan::Plan(Plan&&) noexcept = default;
CublasLt::Plan& CublasLt::Plan::operator=(Plan&&) noexcept = default;
CublasLt::Plan::~Plan() = default;

CublasLt::CublasLt(std::unique_ptr<CublasLtApi> api) : api_(std::move(api)) {}
CublasLt::CublasLt(CublasLt&&) noexcept = default;
CublasLt& CublasLt::operator=(CublasLt&&) noexcept = default;
CublasLt::~CublasLt() = default;

absl::StatusOr<CublasLt> CublasLt::Load(const std::string& folder) {
  absl::StatusOr<SharedLibrary> library =
      SharedLibrary::Open({"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"},
                          {folder, "/usr/local/cuda/lib64"});
  if (!library.ok()) return library.status();
  auto api = std::make_unique<CublasLtApi>(*std::move(library));
  if (absl::Status status = api->Bind(); !status.ok()) return status;
  if (auto s = api->create(&api->handle); s != CUBLAS_STATUS_SUCCESS) {
    return api->ToStatus(s, "making a handle");
  }
  const cudaError_t code = cudaMalloc(&api->workspace, kWorkspaceBytes);
  if (code != cudaSuccess) return cuda::ToStatus(code, "cublasLt's workspace");
  return CublasLt(std::move(api));
}

absl::StatusOr<CublasLt::Plan> CublasLt::Prepare(CublasLtKind kind, const GemmArgs& args) const {
  if (args.batch != 1 || args.bias != nullptr || args.relu) {
    return absl::UnimplementedError(
        absl::StrCat("cublasLt: no plan for batch=", args.batch, ", bias or ReLU"));
  }
  if (kind == CublasLtKind::kI8 && (args.alpha != 1 || args.beta != 0)) {
    return absl::UnimplementedError(absl::StrCat(
        "cublasLt: no plan for INT8 with alpha=", args.alpha, " and beta=", args.beta));
  }
  if (args.m == 0 || args.n == 0 || args.k == 0) {
    return absl::UnimplementedError(absl::StrCat(
        "cublasLt: no plan for an empty matmul, m=", args.m, " n=", args.n, " k=", args.k));
  }
  if (kind == CublasLtKind::kFp8Block) {
    if (absl::Status status = CheckScales(args); !status.ok()) return status;
  }
  auto parts = std::make_unique<Plan::Parts>(*api_);
  parts->args = args;
  if (absl::Status status = parts->MakeDesc(kind); !status.ok()) return status;
  if (absl::Status status = parts->MakeLayouts(kind); !status.ok()) return status;
  if (absl::Status status = parts->PickAlgorithm(kWorkspaceBytes); !status.ok()) return status;
  return Plan(std::move(parts));
}

absl::Status CublasLt::Run(const Plan& plan, cudaStream_t stream) const {
  const Plan::Parts& p = *plan.parts_;
  static constexpr int32_t kOne = 1, kZero = 0;
  const void* const alpha = p.integers ? static_cast<const void*>(&kOne) : &p.args.alpha;
  const void* const beta = p.integers ? static_cast<const void*>(&kZero) : &p.args.beta;
  const cublasStatus_t code =
      api_->matmul(api_->handle, p.desc, alpha, p.args.b, p.a, p.args.a, p.b, beta, p.c_or_d(), p.c,
                   p.args.d, p.d, &p.algo, api_->workspace, kWorkspaceBytes, stream);
  return api_->ToStatus(code, "matmul");
}

int64_t CublasLt::version() const { return static_cast<int64_t>(api_->get_version()); }

}  // namespace gemmd::kernels::cuda
