#include "kernels/cuda/sm90/tensor_map.h"

#include <cuda_runtime_api.h>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/device/driver_function.h"
#include "kernels/cuda/rounding.h"

namespace gemmd::kernels::cuda {
namespace {

using EncodeTiled = decltype(&cuTensorMapEncodeTiled);

const absl::StatusOr<EncodeTiled>& Encoder() {
  static const auto* found =
      new absl::StatusOr<EncodeTiled>(DriverFunction<EncodeTiled>("cuTensorMapEncodeTiled"));
  return *found;
}

absl::StatusOr<CUtensorMap> MakeMap(const TensorView& view, CUtensorMapDataType type,
                                    CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion) {
  const absl::StatusOr<EncodeTiled>& encode = Encoder();
  if (!encode.ok()) return encode.status();
  const cuuint64_t extents[4] = {
      static_cast<cuuint64_t>(view.cols), static_cast<cuuint64_t>(view.rows),
      static_cast<cuuint64_t>(view.planes), static_cast<cuuint64_t>(view.batch)};
  // A stride that is never taken must still be a legal one.
  const auto stride = [](int64_t bytes, int64_t extent) {
    return static_cast<cuuint64_t>(extent > 1 ? bytes : 16);
  };
  const cuuint64_t strides[3] = {stride(view.row_stride_bytes, view.rows),
                                 stride(view.plane_stride_bytes, view.planes),
                                 stride(view.batch_stride_bytes, view.batch)};
  const cuuint32_t box[4] = {static_cast<cuuint32_t>(view.box_cols),
                             static_cast<cuuint32_t>(view.box_rows),
                             static_cast<cuuint32_t>(view.box_planes), 1};
  const cuuint32_t element_strides[4] = {1, 1, 1, 1};
  CUtensorMap map;
  const CUresult code = (*encode)(&map, type, 4, const_cast<void*>(view.address), extents, strides,
                                  box, element_strides, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
                                  promotion, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (code != CUDA_SUCCESS) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the driver refuses a tensor map (error ", static_cast<int>(code), ") for [", view.batch,
        ", ", view.planes, ", ", view.rows, ", ", view.cols, "] at ",
        absl::Hex(reinterpret_cast<uintptr_t>(view.address)), " with strides of ",
        view.batch_stride_bytes, ", ", view.plane_stride_bytes, " and ", view.row_stride_bytes,
        " bytes and a box of ", view.box_planes, " x ", view.box_rows, " x ", view.box_cols));
  }
  return map;
}

}  // namespace

absl::StatusOr<CUtensorMap> ValuesMap(const TensorView& view) {
  // Around what begins within a line, L2 would fetch more that nobody asks for: 13 % of the time.
  const bool at_lines = view.rows <= 1 || view.row_stride_bytes % kLineBytes == 0;
  return MakeMap(view, CU_TENSOR_MAP_DATA_TYPE_UINT8, CU_TENSOR_MAP_SWIZZLE_128B,
                 view.l2_bytes == 128 || !at_lines ? CU_TENSOR_MAP_L2_PROMOTION_L2_128B
                                                   : CU_TENSOR_MAP_L2_PROMOTION_L2_256B);
}

absl::StatusOr<CUtensorMap> ScalesMap(const TensorView& view) {
  return MakeMap(view, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, CU_TENSOR_MAP_SWIZZLE_NONE,
                 CU_TENSOR_MAP_L2_PROMOTION_NONE);
}

absl::StatusOr<CUtensorMap> StoreMap(const TensorView& view) {
  return MakeMap(view, CU_TENSOR_MAP_DATA_TYPE_UINT16,
                 view.box_cols == 64 ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_NONE,
                 CU_TENSOR_MAP_L2_PROMOTION_NONE);
}

absl::StatusOr<CUtensorMap> StoreMapF32(const TensorView& view) {
  return MakeMap(view, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, CU_TENSOR_MAP_SWIZZLE_128B,
                 CU_TENSOR_MAP_L2_PROMOTION_NONE);
}

}  // namespace gemmd::kernels::cuda
