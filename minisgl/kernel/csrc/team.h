// Threads that go through a whole forward pass together. Leaving and entering OpenMP regions for each of the hundreds of
// small products would cost more than some of the products.
#pragma once
#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <sched.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

// What a step's time goes to; the order is that of PARTS in minisgl/kernel/native.py.
enum Part { EMBED, NORM, QKV, ROTATE, ATTEND, OUTPUT, GATE_UP, DOWN, HEAD, ROUND, WAIT, PARTS };

// One piece of work of all: which items were taken, and how many are done.
struct Phase {
  alignas(64) std::atomic<int> next{0};
  alignas(64) std::atomic<int> done{0};
};

class Team {
 public:
  // For a pass of so many phases; before the threads start.
  void begin(int phases) {
    if (phases > size_) {
      size_ = phases;
      phases_ = std::make_unique<Phase[]>(phases);
    }
    for (int i = 0; i < phases; i++) phases_[i].next = phases_[i].done = 0;
  }
  Phase& phase(int i) { return phases_[i]; }

 private:
  std::unique_ptr<Phase[]> phases_;
  int size_ = 0;
};

// One thread's way through the phases. All go the same way, but not in step: a phase is over when its items are done, not
// when everybody has been there. So nobody waits for a thread whose core is busy with something else, unless it has an
// item in hand, and such a thread catches up by finding that everything is done.
struct Member {
  Team& team;
  const int thread, threads;
  double* const seconds;  // [PARTS]: what this thread's time goes to is added there, if not null
  int at = 0;
  double last = seconds ? now() : 0;

  // Every thread calls this with the same arguments; each item is done by one, and all are done when it returns.
  template <class F> void share(Part part, int items, F work) {
    Phase& phase = team.phase(at++);
    int chunk = std::max(1, items / (16 * threads));
    for (int begin; (begin = phase.next.fetch_add(chunk, std::memory_order_relaxed)) < items;) {
      int end = std::min(begin + chunk, items);
      for (int i = begin; i < end; i++) work(i);
      phase.done.fetch_add(end - begin, std::memory_order_acq_rel);
    }
    if (seconds) clock(part);
    for (int spins = 0; phase.done.load(std::memory_order_acquire) < items; spins++) {
      if (spins > 4096) sched_yield();
#if defined(__x86_64__)
      _mm_pause();
#endif
    }
    if (seconds) clock(WAIT);
  }

  static double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }
  void clock(Part part) {
    double time = now();
    seconds[part] += time - last;
    last = time;
  }
};
