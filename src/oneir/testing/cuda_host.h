// CUDA C++ on the host: what stands above the text of a program, which is compiled as C++17 without a change.
//
// A block runs on one thread of the host. Its threads are fibers, with a stack each; a barrier gives control back to the
// scheduler, which lets every thread come to the barrier, one after the other in a given order, before any goes on. A
// missing barrier then shows in one of the orders, or as the NaNs that shared memory is full of at first.

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
#define __launch_bounds__(threads)
#define __shared__ static __attribute__((section("oneir_shared")))
#define __syncthreads() oneir_wait(__LINE__, false)
#define __syncwarp() oneir_wait(__LINE__, true)
#define oneir_syncwarp() oneir_wait(__LINE__, true)  // HIP

struct oneir_dim3 {
  unsigned x, y, z;
};
static oneir_dim3 threadIdx, blockIdx, blockDim, gridDim;

// Dynamic shared memory; before compilation, `extern __shared__` becomes `extern`.
alignas(128) __attribute__((section("oneir_shared"))) unsigned char oneir_dynamic_shared[1 << 18];
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
  int line;   // of the barrier at which it waits; 0 before it runs, -1 when it is done
  bool warp;  // whether only its warp waits there
  bool table;  // which of two tables holds what it brought to the last meeting of its warp
  oneir_copy* pending;  // copies under way
  int copies, capacity, group;  // their number, the most there is room for, and the group that is open
};
static oneir_fiber oneir_fibers[ONEIR_THREADS];
static oneir_fiber* oneir_current;
static jmp_buf oneir_scheduler;
static void (*oneir_body)(void**);
static void** oneir_arguments;

static void oneir_wait(int line, bool warp) {
  oneir_current->line = line;
  oneir_current->warp = warp;
  if (!_setjmp(oneir_current->place)) _longjmp(oneir_scheduler, 1);
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
  oneir_current->warp = false;
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

// Whether threads stand at the same place; if not, a message says where they are.
static bool oneir_together(const int* places, int count, char* message) {
  const oneir_fiber& one = oneir_fibers[places[0]];
  for (int i = 1; i < count; ++i) {
    const oneir_fiber& other = oneir_fibers[places[i]];
    if (one.line == other.line) continue;
    char first[48], second[48];
    snprintf(first, sizeof first, one.line < 0 ? "has ended" : "waits at the barrier in line %d", one.line);
    snprintf(second, sizeof second, other.line < 0 ? "has ended" : "waits at the barrier in line %d", other.line);
    snprintf(message, ONEIR_MESSAGE, "threads of block (%u, %u, %u) diverge: thread %d %s, thread %d %s", blockIdx.x,
             blockIdx.y, blockIdx.z, places[0], first, places[i], second);
    return false;
  }
  return true;
}

static bool oneir_run_block(const int* places, int threads, char* message) {
  memset(__start_oneir_shared, 0xff, __stop_oneir_shared - __start_oneir_shared);
  for (int i = 0; i < threads; ++i) {
    oneir_fiber& fiber = oneir_fibers[i];
    fiber.line = fiber.copies = fiber.group = fiber.table = 0;
  }
  do {
    for (int first = 0, count; first < threads; first += count) {
      int warp = places[first] / ONEIR_WARP;
      for (count = 1; first + count < threads && places[first + count] / ONEIR_WARP == warp;) ++count;
      do {  // a warp goes on alone up to a barrier of the block
        for (int i = first; i < first + count; ++i) {
          unsigned t = places[i];
          threadIdx = {t % blockDim.x, t / blockDim.x % blockDim.y, t / blockDim.x / blockDim.y};
          oneir_failure[0] = 0;
          oneir_resume(&oneir_fibers[t]);
          if (oneir_failure[0]) {
            snprintf(message, ONEIR_MESSAGE, "thread %u of block (%u, %u, %u): %.180s", t, blockIdx.x, blockIdx.y,
                     blockIdx.z, oneir_failure);
            return false;
          }
        }
        if (!oneir_together(places + first, count, message)) return false;
      } while (oneir_fibers[places[first]].warp);
    }
    if (!oneir_together(places, threads, message)) return false;
  } while (oneir_fibers[0].line > 0);
  return true;
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
