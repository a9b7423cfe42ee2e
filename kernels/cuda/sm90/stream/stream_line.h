// Which k blocks of which tiles a CTA of stream-k takes, and whose sums it adds up. Plain
// arithmetic: shared by the kernel and the tests.

#pragma once

#include <cstdint>

#include "kernels/cuda/sm90/stream_k.h"

namespace gemmd::kernels::cuda {

// The device has an instruction for each, which the compiler does not find in plain arithmetic.
#ifdef __CUDA_ARCH__
constexpr int Quotient(int x, const Divisor& by) {
  return static_cast<int>(__umulhi(2 * x, by.magic) >> by.shift);
}
constexpr int LargerOf(int x, int y) { return max(x, y); }
constexpr int SmallerOf(int x, int y) { return min(x, y); }
#else
constexpr int Quotient(int x, const Divisor& by) {
  return static_cast<int>((uint64_t{static_cast<uint32_t>(2 * x)} * by.magic >> 32) >> by.shift);
}
constexpr int LargerOf(int x, int y) { return x > y ? x : y; }
constexpr int SmallerOf(int x, int y) { return x < y ? x : y; }
#endif

// A team's part of the line, from its end to its beginning: the first tile, of which another team
// has the last k blocks, is left for it early, and the last one, whose sums this team adds up,
// finds the others' there.
struct StreamPart {
  const StreamK& stream;
  int team;
  int begin;  // of the line's steps
  int end;
  int tile;  // the team's; of it k blocks [from, to)
  int from = 0;
  int to = 0;

  constexpr StreamPart(const StreamK& stream, int team)
      : stream(stream),
        team(team),
        begin(Bound(team)),
        end(Bound(team + 1)),
        tile(Quotient(LargerOf(end - 1, 0), stream.tile_steps)) {
    Aim();
  }

  constexpr int tile_steps() const { return static_cast<int>(stream.tile_steps.value); }
  constexpr bool valid() const { return from < to; }
  constexpr bool EndsTile() const { return to == tile_steps(); }
  constexpr void Next() {
    --tile;
    Aim();
  }

  // `visit` the teams that have the tile's k blocks in front of `from`, from the nearest on.
  template <class Visit>
  constexpr void EachBefore(const Visit& visit) const {
    if (from == 0) return;
    int last = begin;
    for (int other = team - 1; last > tile * tile_steps(); --other) {
      const int first = Bound(other);
      if (first < last) visit(other);
      last = first;
    }
  }

 private:
  // Where a team's part begins: at a tile's edge if that is near.
  constexpr int Bound(int of_team) const {
    const int at = of_team * stream.step + SmallerOf(of_team, stream.extra);
    const int inside = at - Quotient(at, stream.tile_steps) * tile_steps();
    const int left = tile_steps() - inside;
    return inside < kLeastStreamSteps ? at - inside : left < kLeastStreamSteps ? at + left : at;
  }
  constexpr void Aim() {
    from = LargerOf(begin - tile * tile_steps(), 0);
    to = SmallerOf(end - tile * tile_steps(), tile_steps());
  }
};

}  // namespace gemmd::kernels::cuda
