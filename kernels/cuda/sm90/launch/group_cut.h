// How a group's rows are cut into tiles. Plain arithmetic: shared by host and device.
//
// Tiles of one group that share its weights should go through them at one pace, so that each but
// the first finds them in L2: all are of one kind. A thin tile behind wide ones is quicker, and may
// be where there are so many wide ones that reading the weights once more does not count.

#ifndef GEMMD_KERNELS_CUDA_SM90_LAUNCH_GROUP_CUT_H_
#define GEMMD_KERNELS_CUDA_SM90_LAUNCH_GROUP_CUT_H_

namespace gemmd::kernels::cuda {

// Rows of A in a tile. Thin and tall ones have 128 rows of the weights on WGMMA's row side, wide
// ones A's rows there and 256 of the weights.
inline constexpr int kThinRows = 64, kWideRows = 128;
inline constexpr int kTallKinds = 3;
constexpr int TallRows(int kind) { return kind == 0 ? 144 : kind == 1 ? 160 : 192; }

// Tiles by the same weights; with tall ones there are no others.
struct GroupCut {
  int wide = 0;
  int thin = 0;  // 0 or 1
  int tall = 0;
  int tall_kind = 0;
};

// Clocks of an SM for a k block: of a wide tile, and of a tall one for each row and beside that.
inline constexpr int kWideClocks = 1040, kTallRowClocks = 3, kTallClocks = 460;
inline constexpr int kMostTallRows = 512;  // of a group; of more, wide tiles waste little
inline constexpr int kWideInFront = 4;     // at least, of a thin tile

// `tall`: there are tall tiles. `thin_of_wide`: thin or tall tiles with a wide one's weights.
constexpr GroupCut CutOf(int rows, bool tall, int thin_of_wide) {
  const int wide = rows / kWideRows, left = rows - wide * kWideRows;
  GroupCut cut;
  cut.thin = left > 0 && left <= kThinRows && (wide == 0 || wide >= kWideInFront);
  cut.wide = wide + (left > 0 && cut.thin == 0);
  if (!tall || wide == 0 || rows > kMostTallRows) return cut;
  constexpr int kMost = TallRows(kTallKinds - 1);
  const int count = (rows + kMost - 1) / kMost;
  const int each = (rows + count - 1) / count;
  int kind = 0;
  for (int i = 1; i < kTallKinds; ++i) kind += TallRows(i - 1) < each;
  const int clocks = thin_of_wide * count * (kTallRowClocks * TallRows(kind) + kTallClocks);
  if (clocks < cut.wide * kWideClocks) {
    cut = GroupCut();
    cut.tall = count;
    cut.tall_kind = kind;
  }
  return cut;
}

}  // namespace gemmd::kernels::cuda

#endif  // GEMMD_KERNELS_CUDA_SM90_LAUNCH_GROUP_CUT_H_
