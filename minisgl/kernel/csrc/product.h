// Matrix products over packed weights.
//
// A weight [out, in] is cut into panels of NR rows, each stored as [in in units][NR]: a tile reads one vector pair per
// step, in order. Every output element is one sum in the order of its inputs, whatever the tile's other rows and however
// many there are; so a token's numbers do not depend on what it is computed beside.
#pragma once
#include <algorithm>
#include "team.h"
#include "vector.h"

struct Linear {
  const int32_t* panels;
  const float* bias;  // padded to whole panels, or null
  int32_t in, out;    // elements
};

// out[M][NR], rows ldo apart = x[M][steps], rows ldx apart, times one panel [steps][NR].
template <class T, int M> void tile(const int32_t* x, int ldx, const int32_t* panel, int steps, float* out, int ldo) {
  vf acc[M][2] = {};
  for (int k = 0; k < steps; k++) {
    vi w0 = load<vi>(panel + k * NR), w1 = load<vi>(panel + k * NR + W);
#pragma GCC unroll 12
    for (int i = 0; i < M; i++) {
      vi xi = splat(x[i * ldx + k]);
      acc[i][0] = step<T>(acc[i][0], w0, xi);
      acc[i][1] = step<T>(acc[i][1], w1, xi);
    }
  }
#pragma GCC unroll 12
  for (int i = 0; i < M; i++) {
    store(out + i * ldo, acc[i][0]);
    store(out + i * ldo + W, acc[i][1]);
  }
}

using Tile = void (*)(const int32_t*, int, const int32_t*, int, float*, int);
template <class T, size_t... I> Tile choose_tile(int rows, std::index_sequence<I...>) {
  static constexpr Tile tiles[] = {tile<T, I + 1>...};
  return tiles[rows - 1];
}
template <class T> Tile choose_tile(int rows) { return choose_tile<T>(rows, std::make_index_sequence<MR>()); }

// x [rows][in], rows ldx units apart, times w; finish(row, panel, float[NR]) gets every piece of the result once.
template <class T, class F> void multiply(Member& team, const int32_t* x, int ldx, int rows, const Linear& w, F finish) {
  constexpr int BLOCK = 10 * MR;  // rows that go through one panel while it lies in the cache
  int panels = (w.out + NR - 1) / NR, blocks = (rows + BLOCK - 1) / BLOCK, steps = (w.in + PER<T> - 1) / PER<T>;
  team.share(panels * blocks, [&](int item) {
    int panel = item % panels, end = std::min(rows, (item / panels + 1) * BLOCK);
    alignas(64) float out[MR * NR];
    for (int row = item / panels * BLOCK; row < end; row += MR) {
      int count = std::min(MR, end - row);
      choose_tile<T>(count)(x + int64_t(row) * ldx, ldx, w.panels + int64_t(panel) * steps * NR, steps, out, NR);
      for (int i = 0; i < count; i++) {
        float* piece = out + i * NR;
        if (w.bias)
          for (int half = 0; half < NR; half += W)
            store(piece + half, load<vf>(piece + half) + load<vf>(w.bias + panel * NR + half));
        finish(row + i, panel, piece);
      }
    }
  });
}
