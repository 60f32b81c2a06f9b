// Vectors of W floats, written once for every CPU: the compiler's own vector types become AVX-512, AVX2, SSE or NEON.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>
#if defined(__AVX512BF16__) || defined(__AVX512VNNI__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
constexpr int W = 16;   // floats in a vector
constexpr int MR = 12;  // rows a tile computes at once: 12 x 2 accumulators of 32 registers
#elif defined(__AVX2__)
constexpr int W = 8;
constexpr int MR = 6;  // 6 x 2 of 16
#elif defined(__aarch64__)
constexpr int W = 4;
constexpr int MR = 12;
#else
constexpr int W = 4;
constexpr int MR = 6;
#endif
constexpr int NR = 2 * W;  // columns a tile computes at once, and the width of a packed panel

typedef float vf __attribute__((vector_size(4 * W)));
typedef int32_t vi __attribute__((vector_size(4 * W)));
typedef uint32_t vu __attribute__((vector_size(4 * W)));
typedef uint16_t vh __attribute__((vector_size(2 * W)));
typedef uint8_t vb __attribute__((vector_size(W)));

struct bf16 {
  uint16_t bits;
};

// A unit is 32 bits: one float, or two neighbouring bf16. All matrix kernels move units and leave the meaning to step().
template <class T> constexpr int PER = 4 / sizeof(T);

constexpr int round_up(int n, int to) { return (n + to - 1) / to * to; }

template <class V> inline V load(const void* from) {
  V v;
  memcpy(&v, from, sizeof v);
  return v;
}
template <class V> inline void store(void* to, V v) { memcpy(to, &v, sizeof v); }
inline vf splat(float x) { return x - vf{}; }
inline vi splat(int32_t x) { return x - vi{}; }

inline vf load_floats(const float* from) { return load<vf>(from); }
inline vf load_floats(const bf16* from) { return (vf)(__builtin_convertvector(load<vh>(from), vu) << 16); }
template <class T> inline vf load_floats(const T* from, int count) {  // zeros after the first `count`
  if (count >= W) return load_floats(from);
  T part[W] = {};
  if (count > 0) memcpy(part, from, count * sizeof(T));
  return load_floats(part);
}
inline vi load_bits(const float* from) { return load<vi>(from); }
inline vi load_bits(const bf16* from) { return __builtin_convertvector(load<vh>(from), vi); }
inline void store_floats(float* to, vf v) { store(to, v); }
inline void store_floats(bf16* to, vf v) {  // to the nearest, ties to even
  vu u = (vu)v;
  store(to, __builtin_convertvector((u + 0x7fff + ((u >> 16) & 1)) >> 16, vh));
}
inline float to_float(float x) { return x; }
inline float to_float(bf16 x) {
  uint32_t u = uint32_t(x.bits) << 16;
  float f;
  memcpy(&f, &u, 4);
  return f;
}
inline void set(float& to, float x) { to = x; }
inline void set(bf16& to, float x) {
  uint32_t u;
  memcpy(&u, &x, 4);
  to.bits = (u + 0x7fff + ((u >> 16) & 1)) >> 16;
}

// acc + w * x for every lane's unit, in float32.
template <class T> inline vf step(vf acc, vi w, vi x) {
  if constexpr (std::is_same_v<T, float>) {
    return acc + (vf)w * (vf)x;
  } else {
#ifdef __AVX512BF16__
    return (vf)_mm512_dpbf16_ps((__m512)acc, (__m512bh)w, (__m512bh)x);
#else
    acc += (vf)(w << 16) * (vf)(x << 16);
    return acc + (vf)(w & int32_t(0xffff0000)) * (vf)(x & int32_t(0xffff0000));
#endif
  }
}

// acc + w * x for every lane's unit of four bytes, those of w from 0 to 255, those of x from -128 to 127.
inline vi step_bytes(vi acc, vi w, vi x) {
#ifdef __AVX512VNNI__
  return (vi)_mm512_dpbusd_epi32((__m512i)acc, (__m512i)w, (__m512i)x);
#else
  for (int shift = 0; shift < 32; shift += 8) acc += (w >> shift & 255) * (x << (24 - shift) >> 24);
  return acc;
#endif
}

// Lane l of the result is lane At::lane(l) of a and b laid end to end.
template <class At, class V, size_t... L> inline V shuffle(V a, V b, std::index_sequence<L...>) {
#ifdef __clang__
  return __builtin_shufflevector(a, b, At::lane(L)...);
#else
  return __builtin_shuffle(a, b, vi{At::lane(L)...});
#endif
}
template <class At, class V> inline V shuffle(V a, V b) { return shuffle<At>(a, b, std::make_index_sequence<W>()); }

template <int S> struct Swapped {
  static constexpr int lane(int l) { return l ^ S; }
};
template <int S> struct Low {
  static constexpr int lane(int l) { return l & S ? W + l - S : l; }
};
template <int S> struct High {
  static constexpr int lane(int l) { return l & S ? W + l : l + S; }
};

template <int S = W / 2> inline float sum(vf v) {
  v += shuffle<Swapped<S>>(v, v);
  if constexpr (S > 1) return sum<S / 2>(v);
  return v[0];
}
template <int S = W / 2> inline float highest(vf v) {
  vf other = shuffle<Swapped<S>>(v, v);
  v = v > other ? v : other;
  if constexpr (S > 1) return highest<S / 2>(v);
  return v[0];
}

// W vectors as the rows of a matrix, turned into its columns.
template <int S = 1> inline void transpose(vi (&rows)[W]) {
#pragma GCC unroll 16
  for (int i = 0; i < W; i++)
    if (!(i & S)) {
      vi a = rows[i], b = rows[i + S];
      rows[i] = shuffle<Low<S>>(a, b);
      rows[i + S] = shuffle<High<S>>(a, b);
    }
  if constexpr (2 * S < W) transpose<2 * S>(rows);
}

// e^x to about one unit in the last place; below -87 exactly 0, above 88 as at 88. The polynomial is that of Cephes' expf.
inline vf exponential(vf x) {
  const vf magic = splat(12582912.f);  // 1.5 * 2^23: adding it rounds to an integer, which then stands in the low bits
  vf high = x > 88.f ? splat(88.f) : x;
  vf shifted = high * 1.44269504f + magic;
  vf n = shifted - magic;
  vf r = high - n * 0.693359375f;
  r = r - n * -2.12194440e-4f;
  vf p = splat(1.9875691500e-4f);
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.f;
  vf power = (vf)(((vi)shifted - (vi)magic + 127) << 23);
  return x < -87.f ? vf{} : p * power;  // a NaN is not below, and stays
}
