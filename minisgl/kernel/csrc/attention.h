// Attention of new tokens over KV in the paged pool, found through the page table. Blocks of keys with a running softmax
// (FlashAttention, Dao et al. 2022), so memory does not grow with the length; runs of blocks are summed up apart and then
// merged, so that threads can share a long context (Flash-Decoding, Dao et al. 2023). Blocks begin at multiples of KEYS,
// runs at multiples of RUN, and every row adds them up in order, whoever computes them: its numbers depend neither on its
// chunk, nor its batch, nor where its pages lie.
#pragma once
#include <vector>
#include "product.h"

constexpr int KEYS = 128;  // keys in a block
constexpr int RUN = 512;   // keys in a run of blocks
constexpr int ROWS = 96;   // about as many rows (query heads of all tokens) share a block once it is laid out for tiles

// Where one layer's K and V of some KV heads lie: of the token in slot s, `head_dim` elements a head at + s * stride.
template <class T> struct Paged {
  const T *keys, *values;
  int64_t stride;
  const int32_t* slots;  // by position
};

// Keys that will be read next. Pages lie anywhere, so nothing else tells the memory what is coming; whole rows, a few at
// a time beside the arithmetic, arrive several times as fast as what is only asked for when it is missing. Asked into
// the second cache: a block is larger than the first, and that one awaits fewer lines at a time (twice as slow).
template <class T> struct Ahead {
  Paged<T> kv;
  int count, bytes;  // keys, and of each the bytes of all heads
  int next = 0;

  void fetch(int keys) {
    for (int end = std::min(next + keys, count); next < end; next++)
      for (const T* side : {kv.keys, kv.values})
        for (int line = 0; line < bytes; line += 64)
          __builtin_prefetch((const char*)(side + kv.slots[next] * kv.stride) + line, 0, 2);
  }
};

template <class V> void grow(V& v, size_t size) {
  if (v.size() < size) v.resize(size);
}

// Softmax sums of some rows so far: of e^(score - largest), and of the values [width] weighted by it.
struct Sums {
  std::vector<float> largest, total, values;

  void begin(int rows, int width) {
    grow(largest, rows);
    grow(total, rows);
    grow(values, rows * width);
    std::fill_n(largest.begin(), rows, -INFINITY);
    std::fill_n(total.begin(), rows, 0.f);
    std::fill_n(values.begin(), rows * width, 0.f);
  }
};

inline float exponential(float x) { return exponential(splat(x))[0]; }

// Adds a row of a later run to row `to` of the sums of all before.
inline void merge(Sums& all, int to, float largest, float total, const float* values, int width) {
  float now = std::max(all.largest[to], largest);
  float old_scale = exponential(all.largest[to] - now), new_scale = exponential(largest - now);
  all.largest[to] = now;
  all.total[to] = all.total[to] * old_scale + total * new_scale;
  float* sums = &all.values[to * width];
  for (int d = 0; d < width; d += W) store(sums + d, load<vf>(sums + d) * old_scale + load<vf>(values + d) * new_scale);
}

template <class T> void write_result(const Sums& sums, int row, int width, int head_dim, T* to) {
  for (int d = 0; d < head_dim; d += W) {
    T part[W];
    store_floats(part, load<vf>(&sums.values[row * width + d]) / sums.total[row]);
    memcpy(to + d, part, std::min(W, head_dim - d) * sizeof(T));
  }
}

// What one thread needs to attend.
template <class T> struct AttentionScratch {
  std::vector<int32_t> keys, values;  // a block, as panels
  std::vector<float> scores;          // [MR][KEYS]
  std::vector<T> weights;             // [MR][KEYS]
  Sums run, all;                      // of this run of blocks, and of all runs of the task

  void begin(int rows, int width) {
    grow(keys, KEYS * width);
    grow(values, KEYS * width);
    grow(scores, MR * KEYS);
    grow(weights, MR * KEYS);
    all.begin(rows, width);
  }

  // Turns line i of the scores, of which a row has seen the first `seen`, into weights relative to the row's largest so
  // far. Gives what its sums must be multiplied by, now that another may be the largest.
  float soften(int row, int i, int seen, int end) {
    float* line = &scores[i * KEYS];
    for (int j = seen; j < end; j++) line[j] = -INFINITY;
    vf top = splat(run.largest[row]);
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
    float rescale = exponential(run.largest[row] - now);
    run.total[row] = run.total[row] * rescale + sum(sums);
    run.largest[row] = now;
    return rescale;
  }

  // The same for a row that ends before this block.
  float skip(int i, int end) {
    std::fill_n(weights.begin() + i * KEYS, end, T{});
    return 1.f;
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
  int begin, end;    // keys to go through, whole runs but for the last
};

// Leaves the sums of row r of head h in s.all, row h * rows + r. `after` is what this thread will read next.
template <class T> void attend(AttentionScratch<T>& s, const Task<T>& t, const Paged<T>* after, int after_keys) {
  int rows = t.count * t.group, units = t.head_dim / PER<T>, width = round_up(t.head_dim, NR);
  s.begin(t.heads * rows, width);
  for (int block = t.begin; block < t.end; block += KEYS) {
    if (block % RUN == 0) s.run.begin(t.heads * rows, width);
    int there = std::min(KEYS, t.end - block), panels = (there + NR - 1) / NR, steps = (there + PER<T> - 1) / PER<T>;
    Ahead<T> ahead{t.kv, std::min(KEYS, t.end - block - there), t.heads * t.head_dim * int(sizeof(T))};
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
          rescale[i] = seen > 0 ? s.soften(state + i, i, seen, panels * NR) : s.skip(i, panels * NR);
        }
        alignas(64) float out[MR * NR];
        for (int p = 0; p < width / NR; p++) {
          product((const int32_t*)s.weights.data(), KEYS / PER<T>, &s.values[p * NR * steps], steps, out, NR);
          for (int i = 0; i < m; i++)
            for (int half = 0; half < NR; half += W) {
              float* sums = &s.run.values[(state + i) * width + p * NR + half];
              store(sums, load<vf>(sums) * rescale[i] + load<vf>(out + i * NR + half));
            }
        }
      }
    }
    if ((block + KEYS) % RUN == 0 || block + KEYS >= t.end)
      for (int h = 0; h < t.heads; h++)
        for (int row = 0; row < rows; row++)
          if (t.first + row / t.group >= block / RUN * RUN) {  // else it has nothing in this run
            int i = h * rows + row;
            merge(s.all, i, s.run.largest[i], s.run.total[i], &s.run.values[i * width], width);
          }
  }
}
