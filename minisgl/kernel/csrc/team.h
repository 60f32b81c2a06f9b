// Threads that go through a whole forward pass together. Leaving and entering OpenMP regions for each of the hundreds of
// small products would cost more than some of the products: here a barrier is a counter that everybody watches.
#pragma once
#include <atomic>
#include <sched.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

class Team {
 public:
  explicit Team(int size) : size(size) {}
  const int size;

  // Every thread calls this with the same arguments; each item is done by one, and all are done when it returns. Items
  // are taken as threads come by, so a thread whose core somebody else uses as well does fewer of them.
  template <class F> void share(int items, F work) {
    int chunk = std::max(1, items / (16 * size));
    for (int begin; (begin = next_.fetch_add(chunk, std::memory_order_relaxed)) < items;)
      for (int i = begin; i < std::min(begin + chunk, items); i++) work(i);
    wait();
  }

 private:
  void wait() {
    unsigned now = generation_.load(std::memory_order_acquire);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == size) {
      arrived_.store(0, std::memory_order_relaxed);
      next_.store(0, std::memory_order_relaxed);
      generation_.store(now + 1, std::memory_order_release);
      return;
    }
    for (int spins = 0; generation_.load(std::memory_order_acquire) == now; spins++) {
      if (spins < 4096) {
#if defined(__x86_64__)
        _mm_pause();
#endif
      } else {
        sched_yield();  // more threads than free cores: let the others reach the barrier
      }
    }
  }

  alignas(64) std::atomic<int> next_{0};
  alignas(64) std::atomic<int> arrived_{0};
  alignas(64) std::atomic<unsigned> generation_{0};
};
