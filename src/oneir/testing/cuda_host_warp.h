// What threads of a warp do together, and copies that they do not wait for: the functions of CUDA's prelude that are
// assembly on a GPU (`codegen/c_source/cuda_tensor.py`), as the documentation of PTX describes them.
//
// Threads that meet put down what they bring, wait for the others of their warp, and read what these brought. A copy
// arrives when its thread waits for it, and not before: until then its target is full of NaNs.

// -- meetings --

enum { ONEIR_BROUGHT = 64 };
static unsigned char oneir_brought[2][2][ONEIR_THREADS][ONEIR_BROUGHT];

// Puts down a value and waits; the result is what the first thread of the warps brought, those of the others follow. Two
// tables take turns, so that a thread that is ahead does not overwrite what another has yet to read.
template <class T>
static const unsigned char* oneir_meet(int line, const T& value, int warps = 1) {
  static_assert(sizeof(T) <= ONEIR_BROUGHT, "what a thread brings");
  int thread = (int)(oneir_current - oneir_fibers), several = warps > 1, size = warps * ONEIR_WARP;
  bool table = oneir_current->table[several] = !oneir_current->table[several];
  memcpy(oneir_brought[several][table][thread], &value, sizeof(T));
  oneir_wait(line, warps);
  return oneir_brought[several][table][thread / size * size];
}
template <class T>
static T oneir_brought_by(const unsigned char* warp, int lane) {
  T value;
  memcpy(&value, warp + lane * ONEIR_BROUGHT, sizeof(T));
  return value;
}
static int oneir_lane() { return (int)(oneir_current - oneir_fibers) % ONEIR_WARP; }
static void oneir_need_warp(const char* what) {
  if (blockDim.x * blockDim.y * blockDim.z % ONEIR_WARP) oneir_fail("%s needs whole warps of 32 threads", what);
}

// -- values --

template <class T>
static T oneir_exchange(int line, T value, int lane, int width) {
  int first = oneir_lane() / width * width, threads = blockDim.x * blockDim.y * blockDim.z;
  const unsigned char* warp = oneir_meet(line, value);
  int warps_first = (int)(oneir_current - oneir_fibers) / ONEIR_WARP * ONEIR_WARP;
  bool there = lane >= first && lane < first + width && warps_first + lane < threads;
  return there ? oneir_brought_by<T>(warp, lane) : value;
}
#define __activemask() 0xffffffffu
#define oneir_shuffle(mask, value, lane, width) \
  oneir_exchange(__LINE__, value, oneir_lane() / (width) * (width) + (int)(lane) % (width), width)
#define oneir_shuffle_up(mask, value, distance, width) \
  oneir_exchange(__LINE__, value, oneir_lane() - (int)(distance), width)
#define oneir_shuffle_down(mask, value, distance, width) \
  oneir_exchange(__LINE__, value, oneir_lane() + (int)(distance), width)

// -- matrices --

struct oneir_half {
  typedef uint16_t bits;
  static float value(bits x) { return oneir_f16_of_bits(x); }
};
struct oneir_bfloat {
  typedef uint16_t bits;
  static float value(bits x) {
    uint32_t wide = (uint32_t)x << 16;
    float y;
    memcpy(&y, &wide, 4);
    return y;
  }
};
struct oneir_byte {
  typedef int8_t bits;
  static int value(bits x) { return x; }
};
template <class S>
static S oneir_sum_of(S x) { return x; }
static float oneir_sum_of(uint16_t x) { return oneir_f16_of_bits(x); }
static void oneir_set_sum(uint16_t* x, float sum) { *x = oneir_bits_of_f16(sum); }
template <class S>
static void oneir_set_sum(S* x, S sum) { *x = sum; }

// c += a * b with 16 rows, 8 columns and K products. A thread holds, in groups of 4 bytes, of `a` the rows lane / 4 and
// lane / 4 + 8, of `b` the column lane / 4, of `c` those rows and the columns lane % 4 * 2 and the next one.
template <class F, int K, class S>
static void oneir_mma(int line, S* c, const typename F::bits* a, const typename F::bits* b) {
  typedef typename F::bits bits;
  enum { PACKED = 4 / sizeof(bits) };
  struct held {
    bits a[4 * PACKED], b[2 * PACKED];
  } mine;
  oneir_need_warp("mma");
  memcpy(mine.a, a, sizeof mine.a);
  memcpy(mine.b, b, sizeof mine.b);
  const unsigned char* warp = oneir_meet(line, mine);
  int lane = oneir_lane();
  held rows[4], columns[2][4];
  for (int t = 0; t < 4; ++t) {
    rows[t] = oneir_brought_by<held>(warp, lane / 4 * 4 + t);
    for (int j = 0; j < 2; ++j) columns[j][t] = oneir_brought_by<held>(warp, (lane % 4 * 2 + j) * 4 + t);
  }
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 2; ++j) {
      auto sum = oneir_sum_of(c[2 * i + j]);
      for (int half = 0; half < 2; ++half)
        for (int t = 0; t < 4; ++t)
          for (int p = 0; p < PACKED; ++p)
            sum += F::value(rows[t].a[(2 * half + i) * PACKED + p]) * F::value(columns[j][t].b[half * PACKED + p]);
      oneir_set_sum(&c[2 * i + j], sum);
    }
}
#define oneir_mma_m16n8k16_f32_f16(c, a, b) oneir_mma<oneir_half, 16>(__LINE__, c, a, b)
#define oneir_mma_m16n8k16_f16_f16(c, a, b) oneir_mma<oneir_half, 16>(__LINE__, c, a, b)
#define oneir_mma_m16n8k16_f32_bf16(c, a, b) oneir_mma<oneir_bfloat, 16>(__LINE__, c, a, b)
#define oneir_mma_m16n8k32_i32_i8(c, a, b) oneir_mma<oneir_byte, 32>(__LINE__, c, a, b)

// Matrices of 8 rows of 8 elements of 16 bits. Thread 8 * m + r gives the address of row r of matrix m, and gets two
// neighbouring elements of each matrix: of row lane / 4, or, transposed, of column lane / 4.
template <class T>
static void oneir_ldmatrix(int line, int count, bool transposed, T* registers, const T* row) {
  struct eight {
    uint16_t element[8];
  } mine = {};
  oneir_need_warp("ldmatrix");
  int lane = oneir_lane();
  if (lane < 8 * count) {
    if ((uintptr_t)row % 16) oneir_fail("ldmatrix in line %d reads a row that does not begin at 16 bytes", line);
    memcpy(&mine, row, sizeof mine);
  }
  const unsigned char* warp = oneir_meet(line, mine);
  uint16_t* target = (uint16_t*)registers;
  for (int matrix = 0; matrix < count; ++matrix)
    for (int i = 0; i < 2; ++i) {
      int r = transposed ? lane % 4 * 2 + i : lane / 4, c = transposed ? lane / 4 : lane % 4 * 2 + i;
      target[2 * matrix + i] = oneir_brought_by<eight>(warp, 8 * matrix + r).element[c];
    }
}
#define oneir_ldmatrix_x1(registers, row) oneir_ldmatrix(__LINE__, 1, false, registers, row)
#define oneir_ldmatrix_x2(registers, row) oneir_ldmatrix(__LINE__, 2, false, registers, row)
#define oneir_ldmatrix_x4(registers, row) oneir_ldmatrix(__LINE__, 4, false, registers, row)
#define oneir_ldmatrix_x1_trans(registers, row) oneir_ldmatrix(__LINE__, 1, true, registers, row)
#define oneir_ldmatrix_x2_trans(registers, row) oneir_ldmatrix(__LINE__, 2, true, registers, row)
#define oneir_ldmatrix_x4_trans(registers, row) oneir_ldmatrix(__LINE__, 4, true, registers, row)

// -- copies --

static void oneir_cp_async(int size, void* target, const void* source, int valid) {
  oneir_fiber* fiber = oneir_current;
  if ((uintptr_t)target % size) oneir_fail("cp.async of %d bytes to an address that they do not divide", size);
  if (valid < 0 || valid > size) oneir_fail("cp.async of %d bytes, of which %d are valid", size, valid);
  if (fiber->copies == fiber->capacity) {
    fiber->capacity = fiber->capacity ? 2 * fiber->capacity : 64;
    fiber->pending = (oneir_copy*)realloc(fiber->pending, fiber->capacity * sizeof(oneir_copy));
  }
  fiber->pending[fiber->copies++] = {target, source, size, valid, fiber->group};
  memset(target, 0xff, size);
}
#define oneir_cp_async4(target, source, valid) oneir_cp_async(4, target, source, valid)
#define oneir_cp_async8(target, source, valid) oneir_cp_async(8, target, source, valid)
#define oneir_cp_async16(target, source, valid) oneir_cp_async(16, target, source, valid)
template <class T>
static void oneir_ldg32(T* target, bool valid, const T* source) {
  *target = valid ? *source : T(0);
}
static void oneir_cp_async_commit() { ++oneir_current->group; }
// The copies of all closed groups but the last N arrive.
template <int N>
static void oneir_cp_async_wait() {
  oneir_fiber* fiber = oneir_current;
  int kept = 0;
  for (int i = 0; i < fiber->copies; ++i) {
    oneir_copy copy = fiber->pending[i];
    if (copy.group >= fiber->group - N) {
      fiber->pending[kept++] = copy;
      continue;
    }
    memcpy(copy.target, copy.source, copy.valid);
    memset((char*)copy.target + copy.valid, 0, copy.bytes - copy.valid);
  }
  fiber->copies = kept;
}
