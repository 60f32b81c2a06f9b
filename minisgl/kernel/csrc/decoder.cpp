// A whole forward pass of a Llama-like decoder on a CPU: embedding, layers, logits, in one parallel region. The same
// mathematics as minisgl/models/decoder.py, which is its reference. Sums and the residual are float32; what enters a
// product, and KV, have the model's dtype; before int8 weights it is made integers as well.
#include <omp.h>

#include <vector>

#include "attention.h"

extern "C" {

// These four mirror the ctypes structures of minisgl/kernel/native.py.
struct Layer {
  Linear qkv, output, gate_up, down;
  const float *input_norm, *post_norm, *q_norm, *k_norm;  // padded to whole panels; the last two may be null
};

struct Model {
  int32_t layers, hidden, heads, kv_heads, head_dim, intermediate, vocab;
  float eps;
  const Layer* layer;
  const float* norm;
  Linear embedding, head;      // the same panels if tied
  const float *cosine, *sine;  // [positions][head_dim / 2]
};

struct Pool {  // K and V: [2][layers][slots][kv_heads][head_dim]
  void* data;
  int64_t slots;
};

struct Batch {  // request i computes its tokens [starts[i], ends[i]) through row rows[i]
  int32_t requests, width;
  const int32_t *rows, *starts, *ends, *samples;  // samples[i]: which row of logits it fills, or -1
  const int32_t *page_table, *token_pool;         // [rows][width]
  float* logits;                                  // [samples][vocab]
  double* seconds;                                // [threads][PARTS]: what the threads' time went to is added; or null
};
}

namespace {

struct Token {
  int32_t request, row, position, sample;
};

struct Item {  // tokens of one request that attend together, for some heads; the token counts within its window
  int32_t token, count, head, heads;
  int32_t begin, end;  // keys
  int32_t part;        // where the sums of a single run go, or -1: the item has all of them
};

struct Split {  // a token and head whose runs were computed apart
  int32_t token, head, part, parts;
};

// Tokens go through the layers at most this many at a time: activations stay in the cache and memory stays flat.
constexpr int WINDOW = 512;

struct Window {
  int begin, count;  // of the batch's tokens
  std::vector<Item> items;
  std::vector<Split> splits;
};

template <class T> struct Decoder {
  const Model& m;
  const Pool pool;
  const int group, part_width, q_size, kv_size, hidden_width, hidden_units, qkv_width, attended_units, gated_units, head_units,
      record_units;
  // [tokens][*_width or *_units]; a unit is 32 bits
  std::vector<float> residual, qkv;
  std::vector<int32_t> normed, queries, attended, gated, sampled, records;
  std::vector<float> parts;  // sums of single runs: [parts][group][part_width], a row's values, largest, total
  std::vector<AttentionScratch<T>> scratch;
  std::vector<Token> tokens;
  std::vector<Item> spans;
  std::vector<Window> windows;
  Team team;

  // The extra vector keeps rows from lying a power of two apart, where they would share few lines of the cache.
  static int padded(int units) { return round_up(units, NR) + W; }

  Decoder(const Model& model, Pool pool)
      : m(model),
        pool(pool),
        group(m.heads / m.kv_heads),
        part_width(round_up(m.head_dim, NR) + 2),
        q_size(m.heads * m.head_dim),
        kv_size(m.kv_heads * m.head_dim),
        hidden_width(padded(m.hidden)),
        hidden_units(padded(round_up(m.hidden, PER<T>) / PER<T>)),
        qkv_width(padded(q_size + 2 * kv_size)),
        attended_units(padded(q_size / PER<T>)),
        gated_units(padded(round_up(m.intermediate, PER<T>) / PER<T>)),
        head_units(m.head_dim / PER<T>),
        record_units(padded(round_up(std::max({m.hidden, q_size, m.intermediate}), GROUP) / GROUP * RECORD)) {}

  void forward(const Batch& b, int threads) {
    tokens.clear();
    int samples = 0;
    for (int i = 0; i < b.requests; i++) {
      for (int p = b.starts[i]; p < b.ends[i]; p++) tokens.push_back({i, b.rows[i], p, -1});
      tokens.back().sample = b.samples[i];
      samples += b.samples[i] >= 0;
    }
    windows.resize((tokens.size() + WINDOW - 1) / WINDOW);
    for (size_t i = 0; i < windows.size(); i++) {
      windows[i].begin = i * WINDOW;
      windows[i].count = std::min<int>(WINDOW, tokens.size() - i * WINDOW);
      find_items(windows[i], threads);
    }
    resize(windows[0].count, samples, threads);
    team.begin(windows.size() * (2 + 13 * m.layers) + 2);
#pragma omp parallel num_threads(threads)
    {
      Member member{team, omp_get_thread_num(), threads, b.seconds ? b.seconds + omp_get_thread_num() * PARTS : nullptr};
      for (const Window& w : windows) pass(member, b, w);
      product(member, HEAD, sampled, hidden_units, samples, m.head, [&](int row, int panel, const float* piece) {
        int begin = panel * NR;
        memcpy(b.logits + int64_t(row) * m.vocab + begin, piece, std::min(NR, m.vocab - begin) * sizeof(float));
      });
    }
  }

 private:
  void resize(int count, int samples, int threads) {
    grow(residual, count * hidden_width);
    grow(normed, count * hidden_units);
    grow(qkv, count * qkv_width);
    grow(queries, count * m.heads * head_units);
    grow(attended, count * attended_units);
    grow(gated, count * gated_units);
    grow(sampled, samples * hidden_units);
    if (m.head.scale) grow(records, round_up(std::max(count, samples), MR) * record_units);
    if (int(scratch.size()) < threads) scratch.resize(threads);
  }

  // x [rows][units], of the model's dtype, times w.
  template <class F>
  void product(Member& team, Part part, const std::vector<int32_t>& x, int units, int rows, const Linear& w, F finish) {
    if (!w.scale) return multiply<T>(team, part, x.data(), units, rows, w, finish);
    int groups = (w.in + GROUP - 1) / GROUP, blocks = (rows + MR - 1) / MR;
    team.share(ROUND, blocks * groups, [&](int item) {
      int block = item / groups, begin = item % groups * GROUP;
      int32_t* to = &records[block * MR * record_units + item % groups * RECORD * MR];
      for (int i = block * MR; i < std::min(rows, (block + 1) * MR); i++)
        quantize((const T*)&x[i * units] + begin, w.in - begin, to + i % MR);
    });
    multiply<T>(team, part, records.data(), record_units, rows, w, finish);
  }

  // One token's heads stay together if there are enough requests to go round, as their KV lies side by side.
  void find_items(Window& w, int threads) {
    const Token* t = &tokens[w.begin];
    int most = std::max(1, ROWS / group);
    spans.clear();
    for (int i = 0; i < w.count; i++) {
      bool joins = i && t[i].request == t[i - 1].request && spans.back().count < most;
      if (joins)
        spans.back().count++, spans.back().end++;
      else
        spans.push_back({i, 1, 0, m.kv_heads, 0, t[i].position + 1, -1});
    }
    w.items.clear();
    w.splits.clear();
    int part = 0;
    for (Item span : spans) {
      bool few_rows = span.count * group <= MR, enough = int(spans.size()) >= 4 * threads;
      if (few_rows && enough) {
        w.items.push_back(span);
        continue;
      }
      for (span.head = 0, span.heads = 1; span.head < m.kv_heads; span.head++) {
        if (span.count > 1 || span.end <= RUN) {
          w.items.push_back(span);
          continue;
        }
        w.splits.push_back({span.token, span.head, part, (span.end + RUN - 1) / RUN});
        for (int begin = 0; begin < span.end; begin += RUN)
          w.items.push_back({span.token, 1, span.head, 1, begin, std::min(begin + RUN, span.end), part++});
      }
    }
    grow(parts, size_t(part) * group * part_width);
  }

  void pass(Member& team, const Batch& b, const Window& w) {
    const Token* t = &tokens[w.begin];
    const std::vector<Item>& items = w.items;
    int count = w.count, width = round_up(m.head_dim, NR);
    auto add = [&](int row, int panel, const float* piece) {
      float* to = &residual[row * hidden_width + panel * NR];
      for (int half = 0; half < NR; half += W) store(to + half, load<vf>(to + half) + load<vf>(piece + half));
    };
    team.share(EMBED, count, [&](int i) { embed(b.token_pool[t[i].row * int64_t(b.width) + t[i].position], i); });
    for (int l = 0; l < m.layers; l++) {
      const Layer& layer = m.layer[l];
      T* keys = (T*)pool.data + l * pool.slots * kv_size;
      T* values = keys + m.layers * pool.slots * kv_size;
      team.share(NORM, count, [&](int i) { norm(i, layer.input_norm, &normed[i * hidden_units]); });
      product(team, QKV, normed, hidden_units, count, layer.qkv, [&](int row, int panel, const float* piece) {
        memcpy(&qkv[row * qkv_width + panel * NR], piece, NR * sizeof(float));
      });
      team.share(ROTATE, count, [&](int i) {
        int64_t slot = b.page_table[t[i].row * int64_t(b.width) + t[i].position];
        rotate_and_store(layer, i, t[i].position, count, keys + slot * kv_size, values + slot * kv_size);
      });
      auto result = [&](int token, int kv_head, int row) {
        return (T*)&attended[token * attended_units] + (kv_head * group + row) * m.head_dim;
      };
      auto paged = [&](const Item& item) {
        int64_t offset = item.head * m.head_dim;
        return Paged<T>{keys + offset, values + offset, kv_size, b.page_table + t[item.token].row * int64_t(b.width)};
      };
      team.share(ATTEND, items.size(), [&](int i) {
        const Item& item = items[i];
        int64_t line = group * head_units;  // of a token's rows
        Task<T> task{paged(item), &queries[(int64_t(item.head) * count + item.token) * line], count * line, item.heads,
                     group, m.head_dim, t[item.token].position, item.count, item.begin, item.end};
        Paged<T> after{};
        int after_keys = 0;
        if (i + 1 < int(items.size())) {
          const Item& next = items[i + 1];
          after = paged(next);
          after.slots += next.begin;
          after_keys = std::min(KEYS, next.end - next.begin);
        }
        AttentionScratch<T>& s = scratch[team.thread];
        attend<T>(s, task, after_keys ? &after : nullptr, after_keys);
        int rows = item.count * group;
        if (item.part >= 0)
          for (int row = 0; row < rows; row++) {
            float* line = part_row(item.part, row);
            std::copy_n(&s.all.values[row * width], width, line);
            line[width] = s.all.largest[row], line[width + 1] = s.all.total[row];
          }
        else
          for (int h = 0; h < item.heads; h++)
            for (int row = 0; row < rows; row++)
              write_result(s.all, h * rows + row, width, m.head_dim,
                           result(item.token + row / group, item.head + h, row % group));
      });
      team.share(ATTEND, w.splits.size(), [&](int i) {
        const Split& split = w.splits[i];
        Sums& all = scratch[team.thread].all;
        all.begin(group, width);
        for (int row = 0; row < group; row++) {
          for (int part = 0; part < split.parts; part++) {
            const float* line = part_row(split.part + part, row);
            merge(all, row, line[width], line[width + 1], line, width);
          }
          write_result(all, row, width, m.head_dim, result(split.token, split.head, row));
        }
      });
      product(team, OUTPUT, attended, attended_units, count, layer.output, add);
      team.share(NORM, count, [&](int i) { norm(i, layer.post_norm, &normed[i * hidden_units]); });
      product(team, GATE_UP, normed, hidden_units, count, layer.gate_up, [&](int row, int panel, const float* piece) {
        vf gate = load<vf>(piece), up = load<vf>(piece + W);  // a panel holds W of either
        store_floats((T*)&gated[row * gated_units] + panel * W, gate / (1.f + exponential(-gate)) * up);
      });
      product(team, DOWN, gated, gated_units, count, layer.down, add);
    }
    team.share(NORM, count, [&](int i) {
      if (t[i].sample >= 0) norm(i, m.norm, &sampled[t[i].sample * hidden_units]);
    });
  }

  float* part_row(int part, int row) { return &parts[(size_t(part) * group + row) * part_width]; }

  // A token's vector out of the packed panels, so that a tied model keeps its largest weight once. What fills the row up
  // is 0 again: NaN of a token before would stay there for ever.
  void embed(int token, int row) {
    float* line = &residual[row * hidden_width];
    std::fill(line, line + hidden_width, 0.f);
    if (m.embedding.scale) {
      const int32_t* column = m.embedding.panels + int64_t(token / NR) * round_up(m.hidden, GROUP) / 4 * NR + token % NR;
      for (int i = 0; i < m.hidden; i++)
        line[i] = ((column[i / 4 * NR] >> i % 4 * 8 & 255) - 128) * m.embedding.scale[token];
      return;
    }
    int steps = round_up(m.hidden, PER<T>) / PER<T>;
    const int32_t* column = m.embedding.panels + int64_t(token / NR) * steps * NR + token % NR;
    for (int k = 0; k < steps; k++) {
      T unit[PER<T>];
      memcpy(unit, column + k * NR, 4);
      for (int i = 0; i < PER<T>; i++) line[k * PER<T> + i] = to_float(unit[i]);
    }
  }

  // RMSNorm (Zhang & Sennrich 2019) of a token's residual.
  void norm(int row, const float* weight, int32_t* to) {
    const float* x = &residual[row * hidden_width];
    vf squares{};
    for (int i = 0; i < m.hidden; i += W) squares += load<vf>(x + i) * load<vf>(x + i);
    float scale = 1.f / std::sqrt(sum(squares) / m.hidden + m.eps);
    for (int i = 0; i < m.hidden; i += W) store_floats((T*)to + i, load<vf>(x + i) * scale * load<vf>(weight + i));
  }

  // Norm (Qwen3) and rotary embedding (Su et al. 2021) of a token's heads; K and V go to the pool, q scaled to `queries`,
  // where the rows of one KV head lie together: [kv_heads][tokens][group][units].
  void rotate_and_store(const Layer& layer, int row, int position, int count, T* key, T* value) {
    float* line = &qkv[row * qkv_width];
    int half = m.head_dim / 2;
    const float *cosine = m.cosine + int64_t(position) * half, *sine = m.sine + int64_t(position) * half;
    auto rotate = [&](float* x, const float* weight, float scale, T* to) {
      if (weight) {
        float squares = 0;
        for (int i = 0; i < m.head_dim; i++) squares += x[i] * x[i];
        float inverse = 1.f / std::sqrt(squares / m.head_dim + m.eps);
        for (int i = 0; i < m.head_dim; i++) x[i] *= inverse * weight[i];
      }
      for (int i = 0; i < half; i++) {
        set(to[i], (x[i] * cosine[i] - x[i + half] * sine[i]) * scale);
        set(to[i + half], (x[i + half] * cosine[i] + x[i] * sine[i]) * scale);
      }
    };
    float scale = 1.f / std::sqrt(float(m.head_dim));
    for (int h = 0; h < m.heads; h++) {
      int place = (h / group * count + row) * group + h % group;
      rotate(line + h * m.head_dim, layer.q_norm, scale, (T*)&queries[place * head_units]);
    }
    for (int h = 0; h < m.kv_heads; h++) rotate(line + q_size + h * m.head_dim, layer.k_norm, 1.f, key + h * m.head_dim);
    for (int i = 0; i < kv_size; i++) set(value[i], line[q_size + kv_size + i]);
  }
};

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

int vector_width() { return W; }

void* new_decoder(const Model* model, void* pool, int64_t slots, int is_bf16) {
  if (is_bf16) return new Decoder<bf16>(*model, {pool, slots});
  return new Decoder<float>(*model, {pool, slots});
}

void forward(void* decoder, int is_bf16, const Batch* batch, int threads) {
  if (is_bf16)
    ((Decoder<bf16>*)decoder)->forward(*batch, threads);
  else
    ((Decoder<float>*)decoder)->forward(*batch, threads);
}

void delete_decoder(void* decoder, int is_bf16) {
  if (is_bf16)
    delete (Decoder<bf16>*)decoder;
  else
    delete (Decoder<float>*)decoder;
}
}
#pragma GCC visibility pop
