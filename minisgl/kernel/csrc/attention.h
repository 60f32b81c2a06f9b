// Attention of new tokens over KV in the paged pool, found through the page table. Blocks of keys with a running softmax
// (FlashAttention, Dao et al. 2022), so memory does not grow with the length. Blocks begin at multiples of KEYS, and every
// row goes through them in order: its numbers depend neither on its chunk, nor its batch, nor where its pages lie.
#pragma once
#include <vector>
#include "product.h"

constexpr int KEYS = 128;  // keys in a block
constexpr int ROWS = 96;   // about as many rows (query heads of all tokens) share a block once it is laid out for tiles

// Where one layer's K and V of some KV heads lie: of the token in slot s, `head_dim` elements a head at + s * stride.
template <class T> struct Paged {
  const T *keys, *values;
  int64_t stride;
  const int32_t* slots;  // by position
};

// Keys that will be read next. Pages lie anywhere, so nothing else tells the memory what is coming; whole rows, a few at
// a time beside the arithmetic, arrive several times as fast as what is only asked for when it is missing.
template <class T> struct Ahead {
  Paged<T> kv;
  int count, bytes;  // keys, and of each the bytes of all heads
  int next = 0;

  void fetch(int keys) {
    for (int end = std::min(next + keys, count); next < end; next++)
      for (const T* side : {kv.keys, kv.values})
        for (int line = 0; line < bytes; line += 64)
          __builtin_prefetch((const char*)(side + kv.slots[next] * kv.stride) + line);
  }
};

// What one thread needs to attend.
template <class T> struct AttentionScratch {
  std::vector<int32_t> keys, values;  // a block, as panels
  std::vector<float> scores;          // [MR][KEYS]
  std::vector<T> weights;             // [MR][KEYS]
  std::vector<float> sums;            // [rows][width], not yet divided
  std::vector<float> largest, total;  // [rows], of the softmax so far

  void begin(int rows, int width) {
    auto grow = [](auto& v, size_t size) {
      if (v.size() < size) v.resize(size);
    };
    grow(keys, KEYS * width);
    grow(values, KEYS * width);
    grow(scores, MR * KEYS);
    grow(weights, MR * KEYS);
    grow(sums, rows * width);
    grow(largest, rows);
    grow(total, rows);
    std::fill_n(sums.begin(), rows * width, 0.f);
    std::fill_n(largest.begin(), rows, -INFINITY);
    std::fill_n(total.begin(), rows, 0.f);
  }

  // Turns line i of the scores, of which a row has seen the first `seen`, into weights relative to the row's largest so
  // far. Gives what its sums must be multiplied by, now that another may be the largest.
  float soften(int row, int i, int seen, int end) {
    float* line = &scores[i * KEYS];
    for (int j = seen; j < end; j++) line[j] = -INFINITY;
    vf top = splat(largest[row]);
    for (int j = 0; j < end; j += W) {
      vf x = load<vf>(line + j);
      top = x > top ? x : top;
    }
    float now = highest(top);
    vf sums{};
    for (int j = 0; j < end; j += W) {
      vf p = exponential(load<vf>(line + j) - now);
      sums += p;
      store_floats(&weights[i * KEYS + j], p);
    }
    float rescale = exponential(splat(largest[row] - now))[0];
    total[row] = total[row] * rescale + sum(sums);
    largest[row] = now;
    return rescale;
  }
};

// Keys [count] as panels [units of a head][NR keys]; keys that are not there are 0.
template <class T> void pack_keys(const Paged<T>& kv, int count, int units, int32_t* to, Ahead<T>& ahead, int share) {
  int each = (share * W + count - 1) / count;
  for (int begin = 0; begin < count; begin += W) {
    int32_t* panel = to + begin / NR * NR * units + begin % NR;
    int there = std::min(W, count - begin), u = 0;
    ahead.fetch(each);
    const T* rows[W];
    for (int i = 0; i < W; i++) rows[i] = i < there ? kv.keys + kv.slots[begin + i] * kv.stride : nullptr;
    for (; u + W <= units; u += W) {
      vi block[W];
      for (int i = 0; i < W; i++) block[i] = i < there ? load<vi>(rows[i] + u * PER<T>) : vi{};
      transpose(block);
      for (int i = 0; i < W; i++) store(panel + (u + i) * NR, block[i]);
    }
    for (; u < units; u++)
      for (int i = 0; i < W; i++) {
        panel[u * NR + i] = 0;
        if (i < there) memcpy(panel + u * NR + i, rows[i] + u * PER<T>, 4);
      }
  }
  if ((count + W - 1) / W % 2)  // the last panel's second half
    for (int u = 0; u < units; u++) store(to + count / NR * NR * units + u * NR + W, vi{});
}

// Values [count] as panels [units of a block][NR dimensions]; two neighbours' bf16 share a unit. Missing ones are 0.
template <class T> void pack_values(const Paged<T>& kv, int count, int head_dim, int32_t* to, Ahead<T>& ahead, int share) {
  int each = (share * W + count - 1) / count;
  int steps = (count + PER<T> - 1) / PER<T>;
  auto part = [&](const T* row, int d) {  // W elements, or what is left of the head
    if (d + W <= head_dim) return load_bits(row + d);
    T rest[W] = {};
    memcpy(rest, row + d, (head_dim - d) * sizeof(T));
    return load_bits(rest);
  };
  for (int k = 0; k < steps; k++) {
    if (k * PER<T> % W == 0) ahead.fetch(each);
    const T* row = kv.values + kv.slots[k * PER<T>] * kv.stride;
    const T* next = PER<T> == 2 && 2 * k + 1 < count ? kv.values + kv.slots[2 * k + 1] * kv.stride : nullptr;
    for (int d = 0; d < head_dim; d += W) {
      vi units = part(row, d);
      if (next) units |= part(next, d) << 16;
      store(to + (d / NR * steps + k) * NR + d % NR, units);
    }
  }
}

// New tokens of one request, for some KV heads.
template <class T> struct Task {
  Paged<T> kv;       // of the first of the heads
  const int32_t* q;  // rows [count tokens][group], scaled, a head's units apart; the next KV head's are q_stride on
  int64_t q_stride;
  int heads, group, head_dim;
  int first, count;  // the tokens' positions
};

// Row r's result of head h, [head_dim], goes to result(h, r). `after` is what this thread will read next.
template <class T, class F> void attend(AttentionScratch<T>& s, const Task<T>& t, const Paged<T>* after, int after_keys, F result) {
  int rows = t.count * t.group, keys = t.first + t.count, units = t.head_dim / PER<T>, width = round_up(t.head_dim, NR);
  s.begin(t.heads * rows, width);
  for (int block = 0; block < keys; block += KEYS) {
    int there = std::min(KEYS, keys - block), panels = (there + NR - 1) / NR, steps = (there + PER<T> - 1) / PER<T>;
    Ahead<T> ahead{t.kv, std::min(KEYS, keys - block - there), t.heads * t.head_dim * int(sizeof(T))};
    ahead.kv.slots += block + there;
    if (!ahead.count && after) ahead = {*after, after_keys, ahead.bytes};
    int share = (ahead.count + 2 * t.heads - 1) / (2 * t.heads);
    for (int h = 0; h < t.heads; h++) {
      Paged<T> kv{t.kv.keys + h * t.head_dim, t.kv.values + h * t.head_dim, t.kv.stride, t.kv.slots + block};
      pack_keys(kv, there, units, s.keys.data(), ahead, share);
      pack_values(kv, there, t.head_dim, s.values.data(), ahead, share);
      for (int row = 0; row < rows; row += MR) {
        int m = std::min(MR, rows - row), state = h * rows + row;
        if (t.first + (row + m - 1) / t.group < block) continue;  // all of them end before this block
        auto product = choose_tile<T>(m);
        for (int p = 0; p < panels; p++)
          product(t.q + h * t.q_stride + row * units, units, &s.keys[p * NR * units], units, &s.scores[p * NR], KEYS);
        float rescale[MR];
        for (int i = 0; i < m; i++) {
          int seen = std::min(there, t.first + (row + i) / t.group + 1 - block);
          rescale[i] = s.soften(state + i, i, std::max(seen, 0), panels * NR);
        }
        alignas(64) float out[MR * NR];
        for (int p = 0; p < width / NR; p++) {
          product((const int32_t*)s.weights.data(), KEYS / PER<T>, &s.values[p * NR * steps], steps, out, NR);
          for (int i = 0; i < m; i++)
            for (int half = 0; half < NR; half += W) {
              float* sums = &s.sums[(state + i) * width + p * NR + half];
              store(sums, load<vf>(sums) * rescale[i] + load<vf>(out + i * NR + half));
            }
        }
      }
    }
  }
  for (int h = 0; h < t.heads; h++)
    for (int row = 0; row < rows; row++) {
      int state = h * rows + row;
      T* to = result(h, row);
      for (int d = 0; d < t.head_dim; d += W) {
        T part[W];
        store_floats(part, load<vf>(&s.sums[state * width + d]) / s.total[state]);
        memcpy(to + d, part, std::min(W, t.head_dim - d) * sizeof(T));
      }
    }
}
