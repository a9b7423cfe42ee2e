#include "server/service/admin/tune_shapes.h"

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "kernels/shape_trial.h"
#include "server/service/wire/convert.h"
#include "status/propagate.h"

namespace gemmd::server {
namespace {

constexpr size_t kMostShapes = 4096;
constexpr int kMostServed = 1024;
constexpr int kUsualServed = 64;

// Shapes in the order they came, each once.
class ShapeList {
 public:
  // `m` 0 stands for the usual numbers of rows.
  void Add(kernels::TuneShape shape) {
    if (shape.m != 0) return AddOne(shape);
    for (const int64_t rows : kernels::UsualRowBuckets()) {
      shape.m = rows;
      AddOne(shape);
    }
  }
  std::vector<kernels::TuneShape> Take() && { return std::move(shapes_); }
  size_t size() const { return shapes_.size(); }

 private:
  void AddOne(const kernels::TuneShape& shape) {
    if (shapes_.size() <= kMostShapes && seen_.insert(shape).second) shapes_.push_back(shape);
  }

  std::vector<kernels::TuneShape> shapes_;
  absl::flat_hash_set<kernels::TuneShape> seen_;
};

absl::Status AddListed(const v1::TuneRequest& request, ShapeList& list) {
  for (int i = 0; i < request.shapes_size(); ++i) {
    const v1::TuneShape& proto = request.shapes(i);
    const std::string field = absl::StrCat("shapes[", i, "]");
    kernels::TuneShape shape{proto.m(), proto.n(), proto.k()};
    if (proto.output_dtype() != v1::DTYPE_UNSPECIFIED) {
      GEMMD_ASSIGN_OR_RETURN(shape.out,
                             Convert(proto.output_dtype(), absl::StrCat(field, ".output_dtype")));
    }
    kernels::TuneShape checked = shape;
    if (checked.m == 0) checked.m = 1;
    if (absl::Status valid = kernels::CheckTuneShape(checked); !valid.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(field, ".", valid.message()));
    }
    list.Add(shape);
  }
  return absl::OkStatus();
}

void AddPublished(ServerState& state, ShapeList& list) {
  for (const Tenant* tenant : state.tenants().All()) {
    for (const auto& listed : state.published().List(*tenant)) {
      const BufferSpec& spec = listed.buffer->spec();
      if (spec.dtype != kernels::DType::kE4M3 || spec.shape.rank != 2) continue;
      const kernels::TuneShape shape{0, spec.shape[0], spec.shape[1]};
      if (kernels::CheckTuneShape({1, shape.n, shape.k}).ok()) list.Add(shape);
    }
  }
}

}  // namespace

absl::StatusOr<std::vector<kernels::TuneShape>> TuneShapesOf(const v1::TuneRequest& request,
                                                             ServerState& state,
                                                             const DeviceTuner& tuner) {
  ShapeList list;
  GEMMD_RETURN_IF_ERROR(AddListed(request, list));
  const int most = request.most_served() == 0 ? kUsualServed : request.most_served();
  if (most < 1 || most > kMostServed) {
    return absl::InvalidArgumentError(absl::StrCat("most_served=", most, " is not from 1 to ",
                                                   kMostServed, "; leave it out for ",
                                                   kUsualServed));
  }
  if (request.served()) {
    for (const kernels::TuneShape& shape : tuner.device().lane().served().Most(most)) {
      list.Add(shape);
    }
  }
  if (request.published()) AddPublished(state, list);
  if (list.size() > kMostShapes) {
    return absl::InvalidArgumentError(
        absl::StrCat("there are more than ", kMostShapes,
                     " shapes to measure, the limit of one Tune; give rows (m) or fewer shapes"));
  }
  if (list.size() == 0) {
    return absl::InvalidArgumentError(
        request.served() || request.published()
            ? "no shape to measure: nothing was multiplied yet and no E4M3 matrix [n, k] is "
              "published; give shapes"
            : "no shape to measure; give shapes, served or published");
  }
  return std::move(list).Take();
}

}  // namespace gemmd::server
