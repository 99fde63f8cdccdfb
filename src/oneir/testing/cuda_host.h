// CUDA C++ on the host: what stands above the text of a program, which is compiled as GNU C++14 without a change.
//
// A block runs on one thread of the host. Its threads are fibers, with a stack each; a barrier gives control back to the
// scheduler, which lets every thread come to the barrier, one after the other in a given order, before any goes on. A
// missing barrier then shows in one of the orders, or as the NaNs that shared memory is full of at first. What goes on
// beside the threads, such as copies, does so only once no thread can go on without it.

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

// -- the language --

#define __device__
#define __global__
#define __grid_constant__
#define __launch_bounds__(...)
#define __shared__ static __attribute__((section("oneir_shared")))
#define __syncthreads() oneir_wait(__LINE__, 0)
#define __syncwarp() oneir_wait(__LINE__, 1)
#define oneir_syncwarp() oneir_wait(__LINE__, 1)  // HIP

struct oneir_dim3 {
  unsigned x, y, z;
};
static oneir_dim3 threadIdx, blockIdx, blockDim, gridDim;

// Dynamic shared memory; before compilation, `extern __shared__` becomes `extern`.
alignas(1024) __attribute__((section("oneir_shared"))) unsigned char oneir_dynamic_shared[1 << 18];
// The linker defines where the section of all shared memory begins and ends.
extern "C" __attribute__((visibility("hidden"))) unsigned char __start_oneir_shared[], __stop_oneir_shared[];

static inline float __int_as_float(int bits) {
  float x;
  memcpy(&x, &bits, 4);
  return x;
}
static inline int __clzll(long long x) { return x ? __builtin_clzll(x) : 64; }
static inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }

static inline unsigned short oneir_bits_of_f16(float x) {
  uint32_t bits;
  memcpy(&bits, &x, 4);
  uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return 0x7fff;
  if (magnitude >= 0x477ff000) return sign | 0x7c00;  // 65520 and above
  if (magnitude < 0x38800000) {                       // below 2 ** -14: a multiple of 2 ** -24, ties to even
    float small;
    memcpy(&small, &magnitude, 4);
    return sign | (uint32_t)(int)nearbyintf(small * 16777216.0f);
  }
  uint32_t rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
  return sign | ((rounded - 0x38000000) >> 13);
}
static inline float oneir_f16_of_bits(unsigned short bits) {
  uint32_t exponent = bits >> 10 & 31, fraction = bits & 1023;
  float x = exponent == 0    ? ldexpf(fraction, -24)
            : exponent == 31 ? (fraction ? NAN : INFINITY)
                             : ldexpf(1024 + fraction, (int)exponent - 25);
  return bits & 0x8000 ? -x : x;
}

// -- fibers --

// ONEIR_WARP, the threads of a warp, is given to the compiler.
enum { ONEIR_STACK = 256 << 10, ONEIR_THREADS = 1024, ONEIR_MESSAGE = 256 };

struct oneir_copy {
  void* target;
  const void* source;
  int bytes, valid, group;
};
struct oneir_fiber {
  ucontext_t start;
  jmp_buf place;
  char* stack;
  int line;    // where it waits; 0 before it runs, -1 when it is done
  int warps;   // how many warps meet there; 0 is all of the block's
  bool ready;  // whether it may go on
  bool (*over)(const void* what, int number);  // if not null, it waits alone, until this is true of `what`
  const void* what;
  int number;
  bool table[2];  // which of two tables holds what it brought to the last meeting of its warp, and of several warps
  oneir_copy* pending;  // copies under way
  int copies, capacity, group;  // their number, the most there is room for, and the group that is open
};
static oneir_fiber oneir_fibers[ONEIR_THREADS];
static oneir_fiber* oneir_current;
static int oneir_meetings;  // of all threads of the block
static jmp_buf oneir_scheduler;
static void (*oneir_body)(void**);
static void** oneir_arguments;

// What goes on beside the threads, if the program has such: how that begins with a block, how it takes a step when all
// threads wait (false if none is left that would help), and what is wrong with it when the block ends (null if nothing).
static void (*oneir_begin_beside)();
static bool (*oneir_step_beside)(int threads);
static const char* (*oneir_left_beside)();

static void oneir_yield() {
  if (!_setjmp(oneir_current->place)) _longjmp(oneir_scheduler, 1);
}
// Waits for all threads of so many warps, which begin at a multiple of that number; 0 is for those of the block.
static void oneir_wait(int line, int warps) {
  oneir_current->line = line;
  oneir_current->warps = warps;
  oneir_current->ready = false;
  oneir_yield();
}
// Waits alone, until something is over.
static void oneir_await(int line, bool (*over)(const void*, int), const void* what, int number) {
  if (over(what, number)) return;
  oneir_current->line = line;
  oneir_current->ready = false;
  oneir_current->over = over, oneir_current->what = what, oneir_current->number = number;
  oneir_yield();
  oneir_current->over = 0;
}

// Ends the launch with a message.
static char oneir_failure[ONEIR_MESSAGE];
static void oneir_fail(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(oneir_failure, sizeof oneir_failure, format, arguments);
  va_end(arguments);
  _longjmp(oneir_scheduler, 1);
}

static void oneir_run() {
  oneir_body(oneir_arguments);
  oneir_current->line = -1;
  oneir_current->ready = false;
  _longjmp(oneir_scheduler, 1);
}

// Runs a thread up to its next barrier, or its end.
static void oneir_resume(oneir_fiber* fiber) {
  oneir_current = fiber;
  if (_setjmp(oneir_scheduler)) return;
  if (fiber->line == 0) {
    getcontext(&fiber->start);
    fiber->start.uc_stack.ss_sp = fiber->stack;
    fiber->start.uc_stack.ss_size = ONEIR_STACK;
    fiber->start.uc_link = 0;
    makecontext(&fiber->start, oneir_run, 0);
    setcontext(&fiber->start);
  }
  _longjmp(fiber->place, 1);
}

// The threads of a block, warp after warp, in an order: 0 forward, 1 backward, above that a shuffle of that seed.
static void oneir_permute(int* places, int count, unsigned order) {
  int shuffled[ONEIR_THREADS], filled = 0;
  bool taken[ONEIR_THREADS / ONEIR_WARP] = {};
  for (int i = 0; i < count; ++i) shuffled[i] = order == 1 ? count - 1 - i : i;
  for (int i = count - 1; order > 1 && i > 0; --i) {
    order = order * 1664525u + 1013904223u | 2u;
    int j = (int)((order >> 8) % (unsigned)(i + 1)), other = shuffled[i];
    shuffled[i] = shuffled[j], shuffled[j] = other;
  }
  for (int i = 0; i < count; ++i) {
    int warp = shuffled[i] / ONEIR_WARP;
    for (int j = i; j < count && !taken[warp]; ++j)
      if (shuffled[j] / ONEIR_WARP == warp) places[filled++] = shuffled[j];
    taken[warp] = true;
  }
}

static void oneir_place(const oneir_fiber& fiber, char* text, int size) {
  snprintf(text, size, fiber.line < 0 ? "has ended" : "waits at the barrier in line %d", fiber.line);
}
// Whether threads stand at the same place; if not, a message says where they are.
static bool oneir_together(const int* places, int count, char* message) {
  const oneir_fiber& one = oneir_fibers[places[0]];
  for (int i = 1; i < count; ++i) {
    const oneir_fiber& other = oneir_fibers[places[i]];
    if (one.line == other.line) continue;
    char first[48], second[48];
    oneir_place(one, first, sizeof first), oneir_place(other, second, sizeof second);
    snprintf(message, ONEIR_MESSAGE, "threads of block (%u, %u, %u) diverge: thread %d %s, thread %d %s", blockIdx.x,
             blockIdx.y, blockIdx.z, places[0], first, places[i], second);
    return false;
  }
  return true;
}

// Whether all of some threads wait for so many warps, at one place; they may go on then.
static bool oneir_met(const int* places, int count, int warps) {
  const oneir_fiber& one = oneir_fibers[places[0]];
  for (int i = 0; i < count; ++i) {
    const oneir_fiber& fiber = oneir_fibers[places[i]];
    if (fiber.ready || fiber.over || fiber.line <= 0 || fiber.warps != warps || fiber.line != one.line) return false;
  }
  for (int i = 0; i < count; ++i) oneir_fibers[places[i]].ready = true;
  return true;
}

// How many threads, from a place on, are of the same so many warps, in an order in which those need not be neighbours.
static int oneir_gather(const int* places, int threads, int first, int warps, int* found) {
  int size = warps * ONEIR_WARP, group = places[first] / size, count = 0;
  for (int i = 0; i < threads; ++i)
    if (places[i] / size == group) found[count++] = places[i];
  return count;
}

// Why no thread can go on: some that should meet are apart, or each waits for another.
static void oneir_explain(const int* places, int threads, char* message) {
  int found[ONEIR_THREADS];
  for (int warps = 1; warps <= 4; warps += 3)
    for (int first = 0; first < threads; ++first) {
      int count = oneir_gather(places, threads, first, warps, found);
      bool alone = false, meeting = warps == 1;
      for (int i = 0; i < count; ++i) {
        alone |= oneir_fibers[found[i]].over != 0;
        meeting |= oneir_fibers[found[i]].line > 0 && oneir_fibers[found[i]].warps == warps;
      }
      if (meeting && !alone && !oneir_together(found, count, message)) return;
    }
  for (int i = 0; i < threads; ++i)
    if (oneir_fibers[places[i]].over) {
      snprintf(message, ONEIR_MESSAGE, "threads of block (%u, %u, %u) wait forever: thread %d waits in line %d",
               blockIdx.x, blockIdx.y, blockIdx.z, places[i], oneir_fibers[places[i]].line);
      return;
    }
  oneir_together(places, threads, message);
}

// Lets threads go on, each up to where it waits next; false with a message if one failed.
static bool oneir_advance(const int* places, int count, bool* moved, char* message) {
  for (int i = 0; i < count; ++i) {
    unsigned t = places[i];
    oneir_fiber& fiber = oneir_fibers[t];
    if (!fiber.ready && !(fiber.over && fiber.over(fiber.what, fiber.number))) continue;
    threadIdx = {t % blockDim.x, t / blockDim.x % blockDim.y, t / blockDim.x / blockDim.y};
    oneir_failure[0] = 0;
    oneir_resume(&fiber);
    *moved = true;
    if (!oneir_failure[0]) continue;
    snprintf(message, ONEIR_MESSAGE, "thread %u of block (%u, %u, %u): %.180s", t, blockIdx.x, blockIdx.y, blockIdx.z,
             oneir_failure);
    return false;
  }
  return true;
}

static bool oneir_run_block(const int* places, int threads, char* message) {
  memset(__start_oneir_shared, 0xff, __stop_oneir_shared - __start_oneir_shared);
  for (int i = 0; i < threads; ++i) {
    oneir_fiber& fiber = oneir_fibers[i];
    fiber.line = fiber.copies = fiber.group = fiber.table[0] = fiber.table[1] = 0;
    fiber.over = 0, fiber.ready = true;
  }
  if (oneir_begin_beside) oneir_begin_beside();
  int found[ONEIR_THREADS];
  for (;;) {
    bool moved = false;
    for (int first = 0, count; first < threads; first += count) {
      int warp = places[first] / ONEIR_WARP;
      for (count = 1; first + count < threads && places[first + count] / ONEIR_WARP == warp;) ++count;
      do {  // a warp goes on alone for as long as it can
        if (!oneir_advance(places + first, count, &moved, message)) return false;
      } while (oneir_met(places + first, count, 1));
    }
    for (int first = 0; first < threads; ++first)
      moved |= oneir_fibers[places[first]].warps == 4 && !oneir_fibers[places[first]].ready &&
               oneir_met(found, oneir_gather(places, threads, first, 4, found), 4);
    if (moved) continue;
    if (oneir_met(places, threads, 0)) {
      ++oneir_meetings;
      continue;
    }
    int ended = 0;
    for (int i = 0; i < threads; ++i) ended += oneir_fibers[i].line < 0;
    if (ended == threads) break;
    if (oneir_step_beside && oneir_step_beside(threads)) continue;
    oneir_explain(places, threads, message);
    return false;
  }
  const char* left = oneir_left_beside ? oneir_left_beside() : 0;
  if (left) snprintf(message, ONEIR_MESSAGE, "block (%u, %u, %u): %.180s", blockIdx.x, blockIdx.y, blockIdx.z, left);
  return !left;
}

static int oneir_launch(void (*body)(void**), void** arguments, const int* sizes, unsigned order, char* message) {
  gridDim = {(unsigned)sizes[0], (unsigned)sizes[1], (unsigned)sizes[2]};
  blockDim = {(unsigned)sizes[3], (unsigned)sizes[4], (unsigned)sizes[5]};
  int threads = sizes[3] * sizes[4] * sizes[5], blocks = sizes[0] * sizes[1] * sizes[2];
  oneir_body = body, oneir_arguments = arguments;
  for (int i = 0; i < threads; ++i) {
    if (oneir_fibers[i].stack) continue;
    void* stack = mmap(0, ONEIR_STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stack == MAP_FAILED) {
      snprintf(message, ONEIR_MESSAGE, "there is no memory for the stacks of %d threads", threads);
      return 1;
    }
    oneir_fibers[i].stack = (char*)stack;
  }
  int places[ONEIR_THREADS];
  oneir_permute(places, threads, order);
  for (int i = 0; i < blocks; ++i) {
    unsigned b = order == 1 ? blocks - 1 - i : i;
    blockIdx = {b % gridDim.x, b / gridDim.x % gridDim.y, b / gridDim.x / gridDim.y};
    if (!oneir_run_block(places, threads, message)) return 1;
  }
  return 0;
}

// -- the program, whose 64-bit integers are `long long`, as on GPUs --

#define int64_t oneir_int64_t
#define uint64_t oneir_uint64_t
