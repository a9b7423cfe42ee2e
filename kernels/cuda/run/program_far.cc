// What of a program goes to another GPU's memory: by its kernels, by copies, or by PeerSends.

#include <algorithm>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "kernels/cuda/device/cuda_status.h"
#include "kernels/cuda/matmul/placed_args.h"
#include "kernels/cuda/memory/home.h"
#include "kernels/cuda/rounding.h"
#include "kernels/cuda/run/cuda_program.h"
#include "kernels/cuda/run/program_op.h"

namespace gemmd::kernels::cuda {
namespace {

constexpr int64_t kPieceRows = 128;  // a multiple of: blocks of scales stay whole

bool SeveralGpus() {
  static const bool several = [] {
    int count = 0;
    return cudaGetDeviceCount(&count) == cudaSuccess && count > 1;
  }();
  return several;
}

TensorRef RowsOf(TensorRef tensor, int64_t first, int64_t rows) {
  tensor.offset_bytes += first * tensor.strides[0] * SizeBytes(tensor.dtype);
  tensor.shape[0] = rows;
  return tensor;
}

// Rows [first, first + rows) of the result of one without a batch or a gate.
MatmulOp RowsOf(MatmulOp op, int64_t first, int64_t rows) {
  op.a.values = RowsOf(op.a.values, first, rows);
  op.d = RowsOf(op.d, first, rows);
  if (op.c) op.c = RowsOf(*op.c, first, rows);
  switch (op.a.granularity) {
    case ScaleGranularity::kNone:
    case ScaleGranularity::kPerTensor:
      break;
    case ScaleGranularity::kPerRow:
    case ScaleGranularity::kBlock1x128:
      op.a.scales = RowsOf(*op.a.scales, first, rows);
      break;
    case ScaleGranularity::kBlock128x128:
      op.a.scales = RowsOf(*op.a.scales, first / kScaleBlock, CeilDiv(rows, kScaleBlock));
  }
  return op;
}

}  // namespace

std::vector<bool> CudaProgram::StoreFar(SlotAddresses slots) const {
  std::vector<bool> far;
  if (matmuls_ == 0 || !SeveralGpus()) return far;
  std::vector<std::optional<bool>> slot_is_far(slots.size());
  for (size_t i = 0; i < tasks_.size(); ++i) {
    const auto* op = std::get_if<MatmulOp>(&tasks_[i].op);
    if (op == nullptr) continue;
    std::optional<bool>& known = slot_is_far[op->d.slot];
    if (!known) {
      const int home = HomeOf(slots[op->d.slot]);
      known = home != kOnHost && home != device_.ordinal;
    }
    if (!*known) continue;
    far.resize(tasks_.size());
    far[i] = true;
  }
  return far;
}

std::vector<MatmulOp> CudaProgram::PiecesOf(size_t index) const {
  const auto& op = std::get<MatmulOp>(tasks_[index].op);
  const int64_t bytes = DenseBytes(op.d);
  if (bytes < kFewestSentBytes || op.gate || !IsDense(op.d)) return {};
  const MatmulProblem problem = ProblemOf(op);
  const int64_t pieces = CeilDiv(bytes, kMostSentBytes);
  if (pieces <= 1) return {op};
  if (op.d.shape.rank != 2) return {};
  std::vector<MatmulOp> cut;
  const int64_t rows = CeilDiv(CeilDiv(problem.m, pieces), kPieceRows) * kPieceRows;
  for (int64_t first = 0; first < problem.m; first += rows) {
    cut.push_back(RowsOf(op, first, std::min(rows, problem.m - first)));
    const MatmulProblem piece = ProblemOf(cut.back());
    const auto served = pool_->Choose(piece, steps_[index].choice.kernel);
    if (!served.ok() || pool_->ScratchBytes(*tasks_[index].member, piece) > scratch_bytes_ ||
        DenseBytes(cut.back().d) > kMostSentBytes) {
      return bytes <= kMostSentBytes ? std::vector<MatmulOp>{op} : std::vector<MatmulOp>();
    }
  }
  return cut;
}

int64_t CudaProgram::LargestPiece(const std::vector<bool>& far) const {
  int64_t largest = 0;
  for (size_t i = 0; i < far.size(); ++i) {
    if (!far[i]) continue;
    for (const MatmulOp& piece : PiecesOf(i)) largest = std::max(largest, DenseBytes(piece.d));
  }
  return largest;
}

absl::Status CudaProgram::AddPieces(size_t index, SlotAddresses slots, std::byte* scratch,
                                    const PeerSends& sends, Launches& launches) const {
  std::vector<std::byte*> all(slots.begin(), slots.end());
  all.push_back(nullptr);
  for (MatmulOp& piece : PiecesOf(index)) {
    SentPiece sent{
        .into = {}, .to = slots[piece.d.slot] + piece.d.offset_bytes, .bytes = DenseBytes(piece.d)};
    piece.d.slot = static_cast<int>(slots.size());
    piece.d.offset_bytes = 0;
    for (int place = 0; place < PeerSends::kPlaces; ++place) {
      all.back() = sends.place(place);
      auto prepared = pool_->Prepare(*tasks_[index].member, PlacedArgs(piece, all), scratch);
      if (!prepared.ok()) return prepared.status();
      sent.into[place] = *std::move(prepared);
    }
    launches.sent.resize(tasks_.size());
    launches.sent[index].push_back(std::move(sent));
    ++launches.sends;
  }
  return absl::OkStatus();
}

absl::Status CudaProgram::LaunchSent(size_t index, const RunContext& context) const {
  bool overlap = Overlaps(tasks_[index], context);
  for (const SentPiece& piece : context.launches.sent[index]) {
    const absl::StatusOr<int> place = context.sends->Take(context.stream);
    if (!place.ok()) return place.status();
    absl::Status status = piece.into[*place]->Launch(overlap, context.stream);
    if (status.ok()) {
      status = context.sends->Send(*place, piece.to, piece.bytes, context.stream);
    }
    if (!status.ok()) return status;
    overlap = false;
  }
  return absl::OkStatus();
}

absl::Status CudaProgram::JoinSends(size_t index, const RunContext& context) const {
  if (context.sends == nullptr || !context.sends->pending()) return absl::OkStatus();
  bool far = index < context.launches.stores_far.size() && context.launches.stores_far[index];
  if (const auto* copy = std::get_if<CopyOp>(&tasks_[index].op)) {
    for (const TensorRef* tensor : {&copy->src, &copy->dst}) {
      const int home = HomeOf(context.slots[tensor->slot]);
      far |= home != kOnHost && home != device_.ordinal;
    }
  }
  return far ? context.sends->Join(context.stream) : absl::OkStatus();
}

bool CudaProgram::CopiesAcross(SlotAddresses slots) const {
  for (const Task& task : tasks_) {
    const auto* copy = std::get_if<CopyOp>(&task.op);
    if (copy == nullptr || !task.by_engine) continue;
    const ConvertArgs args = ArgsOf(*copy, slots);
    const int from = HomeOf(args.src), to = HomeOf(args.dst);
    if (from != to && from != kOnHost && to != kOnHost) return true;
  }
  return false;
}

}  // namespace gemmd::kernels::cuda
