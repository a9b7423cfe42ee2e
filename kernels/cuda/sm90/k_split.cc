#include "kernels/cuda/sm90/k_split.h"

#include <algorithm>

namespace gemmd::kernels::cuda {
namespace {

// The inbox lies in the stages that the part's last round through the ring leaves first, so that
// they are free long before anybody has a sum to send.
void PlaceInbox(const GemmConfig& shape, int part, KSplit* split) {
  const int steps = split->step + (part < split->extra ? 1 : 0);
  const int chunks = split->chunks[part + 1] - split->chunks[part];
  if (chunks == 0) return;
  const int bytes = split->parts * chunks * shape.chunk_bytes();
  const int width = (bytes + shape.stage_bytes() - 1) / shape.stage_bytes();  // in stages
  int first = steps % shape.stages;
  int later = 0;  // stages that are read between the first one that the part leaves and `first`
  if (first + width > shape.stages) {
    later = shape.stages - first;
    first = 0;
  }
  split->inbox[part] = static_cast<uint8_t>(first);
  split->inbox_free[part] = std::min(steps, steps - shape.stages + later + width);
}

}  // namespace

KSplit SplitOf(const GemmConfig& shape, int parts, int64_t stages) {
  KSplit split;
  split.parts = parts;
  split.step = static_cast<int>(stages / parts);
  split.extra = static_cast<int>(stages % parts);
  for (int part = 0; part <= parts; ++part) split.chunks[part] = shape.cols / 8 * part / parts;
  for (int part = 0; part < parts; ++part) PlaceInbox(shape, part, &split);
  return split;
}

}  // namespace gemmd::kernels::cuda
