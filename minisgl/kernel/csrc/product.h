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
  const float* bias;   // padded to whole panels, or null
  const float* scale;  // the same of int8 weights: what an output's integers stand for; else null
  int32_t in, out;     // elements
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

// Inputs of int8 weights are int8 as well, GROUP of them with a scale of their own (as in llama.cpp's Q8_0). A group is a
// record of units: the integers, four a unit; the scale; and -128 times the integers' sum, with which a sum begins,
// because weights lie here with 128 added: the instruction multiplies unsigned by signed bytes. MR rows lie together:
// [rows / MR][groups][RECORD][MR].
constexpr int GROUP = 32, GROUP_UNITS = GROUP / 4, RECORD = GROUP_UNITS + 2;

// One group, x [count], of one row.
template <class T> void quantize(const T* x, int count, int32_t* to) {
  const vf magic = splat(12582912.f);  // as in exponential()
  vf part[GROUP / W], largest{}, sums{};
  for (int i = 0; i < GROUP / W; i++) {
    part[i] = load_floats(x + i * W, count - i * W);
    vf size = part[i] < 0.f ? -part[i] : part[i];
    largest = size > largest ? size : largest;
  }
  float most = highest(largest), inverse = most > 1e-30f ? 127.f / most : 0.f;
  alignas(64) int8_t bytes[GROUP];
  for (int i = 0; i < GROUP / W; i++) {
    vf shifted = part[i] * inverse + magic;
    store(bytes + i * W, __builtin_convertvector((vi)shifted, vb));
    sums += shifted - magic;
  }
  float total = sum(sums), scale = most / 127.f + 0.f * total;  // a NaN is not the largest, and must not get lost
  int32_t record[RECORD];
  memcpy(record, bytes, GROUP);
  memcpy(record + GROUP_UNITS, &scale, 4);
  record[GROUP_UNITS + 1] = total == total ? -128 * int32_t(total) : 0;  // the scale is NaN then, and all that it scales
  for (int i = 0; i < RECORD; i++) to[i * MR] = record[i];
}

// The same as tile(), of int8: x in records, the panel's steps in whole groups.
template <int M> void tile_bytes(const int32_t* x, int, const int32_t* panel, int steps, float* out, int ldo) {
  vf total[M][2] = {};
  for (int end = 0; end < steps; end += GROUP_UNITS, x += RECORD * MR, panel += GROUP_UNITS * NR) {
    vi acc[M][2];
#pragma GCC unroll 12
    for (int i = 0; i < M; i++) acc[i][0] = acc[i][1] = splat(x[(GROUP_UNITS + 1) * MR + i]);
    for (int k = 0; k < GROUP_UNITS; k++) {
      vi w0 = load<vi>(panel + k * NR), w1 = load<vi>(panel + k * NR + W);
#pragma GCC unroll 12
      for (int i = 0; i < M; i++) {
        vi xi = splat(x[k * MR + i]);
        acc[i][0] = step_bytes(acc[i][0], w0, xi);
        acc[i][1] = step_bytes(acc[i][1], w1, xi);
      }
    }
#pragma GCC unroll 12
    for (int i = 0; i < M; i++) {
      float scale;
      memcpy(&scale, x + GROUP_UNITS * MR + i, 4);
      total[i][0] += __builtin_convertvector(acc[i][0], vf) * scale;
      total[i][1] += __builtin_convertvector(acc[i][1], vf) * scale;
    }
  }
#pragma GCC unroll 12
  for (int i = 0; i < M; i++) {
    store(out + i * ldo, total[i][0]);
    store(out + i * ldo + W, total[i][1]);
  }
}

using Tile = void (*)(const int32_t*, int, const int32_t*, int, float*, int);
template <class T, size_t... I> Tile choose_tile(int rows, std::index_sequence<I...>) {
  static constexpr Tile tiles[] = {tile<T, I + 1>...};
  return tiles[rows - 1];
}
template <class T> Tile choose_tile(int rows) { return choose_tile<T>(rows, std::make_index_sequence<MR>()); }
template <size_t... I> Tile choose_tile_bytes(int rows, std::index_sequence<I...>) {
  static constexpr Tile tiles[] = {tile_bytes<I + 1>...};
  return tiles[rows - 1];
}

// x [rows][in], in records if w is int8, rows ldx units apart, times w; finish(row, panel, float[NR]) gets every piece of the result once.
template <class T, class F>
void multiply(Member& team, Part part, const int32_t* x, int ldx, int rows, const Linear& w, F finish) {
  constexpr int BLOCK = 10 * MR;  // rows that go through one panel while it lies in the cache
  int panels = (w.out + NR - 1) / NR, blocks = (rows + BLOCK - 1) / BLOCK, steps;
  steps = w.scale ? round_up(w.in, GROUP) / 4 : (w.in + PER<T> - 1) / PER<T>;
  team.share(part, panels * blocks, [&](int item) {
    int panel = item % panels, end = std::min(rows, (item / panels + 1) * BLOCK);
    alignas(64) float out[MR * NR];
    for (int row = item / panels * BLOCK; row < end; row += MR) {
      int count = std::min(MR, end - row);
      Tile product = w.scale ? choose_tile_bytes(count, std::make_index_sequence<MR>()) : choose_tile<T>(count);
      product(x + int64_t(row) * ldx, ldx, w.panels + int64_t(panel) * steps * NR, steps, out, NR);
      for (int i = 0; i < count; i++) {
        float* piece = out + i * NR;
        for (int half = 0, at = panel * NR; half < NR; half += W, at += W) {
          if (w.scale) store(piece + half, load<vf>(piece + half) * load<vf>(w.scale + at));
          if (w.bias) store(piece + half, load<vf>(piece + half) + load<vf>(w.bias + at));
        }
        finish(row + i, panel, piece);
      }
    }
  });
}
