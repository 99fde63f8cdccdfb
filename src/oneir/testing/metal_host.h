// The Metal shading language on the host, below `cuda_host.h`, whose fibers and barriers it uses; compiled as C++14.
// Before compilation, `threadgroup` in a declaration of memory becomes `oneir_threadgroup`.

namespace metal {}

#define kernel
#define device
#define constant const
#define thread
#define threadgroup
#define oneir_threadgroup __shared__
#define threadgroup_barrier(flags) oneir_wait(__LINE__, 0)
#define simdgroup_barrier(flags) oneir_wait(__LINE__, 1)

typedef unsigned char uchar;
typedef oneir_dim3 uint3;

struct half {
  unsigned short bits;
  half() = default;
  explicit half(float x) : bits(oneir_bits_of_f16(x)) {}
  explicit operator float() const { return oneir_f16_of_bits(bits); }
};

// Vectors of elements that begin at any element.
template <class T, int N>
struct oneir_packed {
  T lanes[N];
  oneir_packed() = default;
  template <class... Lanes>
  explicit oneir_packed(Lanes... values) : lanes{values...} {
    static_assert(sizeof...(values) == N, "a value for each lane");
  }
  T operator[](int i) const { return lanes[i]; }
};
#define ONEIR_PACKED(T)                      \
  typedef oneir_packed<T, 2> packed_##T##2; \
  typedef oneir_packed<T, 4> packed_##T##4;
ONEIR_PACKED(char)
ONEIR_PACKED(uchar)
ONEIR_PACKED(short)
ONEIR_PACKED(ushort)
ONEIR_PACKED(int)
ONEIR_PACKED(uint)
ONEIR_PACKED(half)
ONEIR_PACKED(float)

template <class T, class F>
static inline T as_type(F value) {
  static_assert(sizeof(T) == sizeof(F), "two types of one size");
  T bits;
  memcpy(&bits, &value, sizeof(T));
  return bits;
}
template <class T>
static inline unsigned long oneir_extended(T value) {
  return (unsigned long)value & (~0ul >> (64 - 8 * sizeof(T)));
}
template <class T>
static inline T clz(T value) {
  unsigned long bits = oneir_extended(value);
  return bits ? __builtin_clzl(bits) - (64 - 8 * (int)sizeof(T)) : 8 * (int)sizeof(T);
}
template <class T>
static inline T popcount(T value) {
  return __builtin_popcountl(oneir_extended(value));
}

// The program's own functions have these names.
#define oneir_bits_of_f16 oneir_program_bits_of_f16
#define oneir_f16_of_bits oneir_program_f16_of_bits
