// What sm_90 does beside the threads: copies of tiles, barriers that count bytes, and products of warpgroups, the functions
// of CUDA's prelude in `codegen/c_source/cuda_hopper.py`, as the documentation of PTX describes them.
//
// A copy arrives when no thread can go on without it, and its target is full of NaNs until then; so are sums, from the
// start of their product to the end of the wait for it, which is also when its factors are read. Where the documentation
// allows less, this asks for more: registers are fenced before each group of products.

enum { ONEIR_MOST_SUMS = 128, ONEIR_REGISTERS = 1 << 16, ONEIR_ROW = 128 };

struct oneir_tensor_map {
  uintptr_t address, itemsize, extents[3], strides[2], box[3];
};
struct oneir_barrier {
  int32_t bytes;         // to come in this phase
  int16_t count, state;  // arrivals of a phase; twice those to come in this one, plus its parity
};
struct oneir_tile {
  oneir_tensor_map map;
  intptr_t at[3];
  char* target;
  oneir_barrier* barrier;
};
struct oneir_product {
  void* sums;                      // where the results go
  uint32_t kept[ONEIR_MOST_SUMS];  // what they are added to
  const char *a, *b;
  int a_step, b_step, columns, group;
  bool a_transposed, b_transposed, accumulate, follows;  // whether it adds to a product that is under way
  void (*multiply)(oneir_product&);
};
struct oneir_hopper {
  oneir_product* products;  // under way
  int count, capacity, group, registers;
  bool fenced;
};
static oneir_hopper oneir_hoppers[ONEIR_THREADS];
static oneir_tile* oneir_tiles;
static int oneir_tile_count, oneir_tile_capacity, oneir_free_registers;
static bool oneir_barriers_visible;
static oneir_fiber* oneir_maker;  // of the last barrier
static int oneir_made_after;      // how many meetings of the block

static int oneir_tile_bytes(const oneir_tensor_map& map) {
  return (int)(map.box[0] * map.box[1] * map.box[2] * map.itemsize);
}
// Where a byte of shared memory lies that rows of 128 bytes would have at an address.
static char* oneir_permuted(const char* address) {
  uintptr_t offset = (const unsigned char*)address - oneir_dynamic_shared;
  return (char*)oneir_dynamic_shared + (offset ^ (offset >> 7 & 7) << 4);
}
static oneir_hopper* oneir_mine() { return &oneir_hoppers[oneir_current - oneir_fibers]; }

// -- barriers --

static oneir_barrier* oneir_known(const void* place, int line) {
  oneir_barrier* barrier = (oneir_barrier*)place;
  bool known = oneir_current == oneir_maker || oneir_meetings > oneir_made_after;
  if (barrier->count <= 0 || !known) oneir_fail("in line %d there is no barrier yet", line);
  return barrier;
}
static void oneir_settle(oneir_barrier* barrier) {
  if (barrier->state >> 1 == 0 && barrier->bytes == 0) barrier->state = 2 * barrier->count + !(barrier->state & 1);
}
static void oneir_arrive(void* place, int bytes, int line) {
  oneir_barrier* barrier = oneir_known(place, line);
  if (barrier->state >> 1 == 0) oneir_fail("in line %d more threads arrive than the barrier is for", line);
  barrier->bytes += bytes;
  barrier->state -= 2;
  oneir_settle(barrier);
}
static bool oneir_phase_over(const void* place, int parity) {
  return (((const oneir_barrier*)place)->state & 1) != parity;
}
static void oneir_mbarrier_init(void* place, int count, int line = __builtin_LINE()) {
  if (count < 1 || count > ONEIR_THREADS) oneir_fail("in line %d a barrier is made for %d arrivals", line, count);
  *(oneir_barrier*)place = {0, (int16_t)count, (int16_t)(2 * count)};
  oneir_barriers_visible = false, oneir_maker = oneir_current, oneir_made_after = oneir_meetings;
}
static void oneir_mbarrier_arrive(void* place, int line = __builtin_LINE()) { oneir_arrive(place, 0, line); }
static void oneir_mbarrier_arrive_expect_tx(void* place, int bytes, int line = __builtin_LINE()) {
  oneir_arrive(place, bytes, line);
}
static void oneir_mbarrier_wait(void* place, int parity, int line = __builtin_LINE()) {
  oneir_await(line, oneir_phase_over, oneir_known(place, line), parity);
}
static void oneir_fence_proxy_async() { oneir_barriers_visible = true; }

// -- copies --

static void oneir_copy_tile(void* target, const oneir_tensor_map* map, void* place, int x, int y, int z,
                            int line = __builtin_LINE()) {
  oneir_barrier* barrier = oneir_known(place, line);
  uintptr_t offset = (unsigned char*)target - oneir_dynamic_shared, least = map->address | map->strides[0];
  if (!oneir_barriers_visible) oneir_fail("in line %d copies may not see the barrier yet: no fence after it", line);
  if (offset % 128 || offset >= sizeof oneir_dynamic_shared)
    oneir_fail("in line %d a tile does not go to a multiple of 128 bytes of dynamic shared memory", line);
  if (map->box[0] * map->itemsize != ONEIR_ROW || map->box[1] > 256 || map->box[2] > 256)
    oneir_fail("in line %d the rows of a tile do not have 128 bytes, or there are more than 256", line);
  if ((least | map->strides[1]) % 16) oneir_fail("in line %d rows of a tensor do not begin at 16 bytes", line);
  if (x * (int)map->itemsize % 16) oneir_fail("in line %d a tile does not begin at 16 bytes of a row", line);
  if (oneir_tile_count == oneir_tile_capacity) {
    oneir_tile_capacity = oneir_tile_capacity ? 2 * oneir_tile_capacity : 64;
    oneir_tiles = (oneir_tile*)realloc(oneir_tiles, oneir_tile_capacity * sizeof(oneir_tile));
  }
  oneir_tiles[oneir_tile_count++] = {*map, {x, y, z}, (char*)target, barrier};
  memset(target, 0xff, oneir_tile_bytes(*map));
}
static void oneir_land(const oneir_tile& tile) {
  const oneir_tensor_map& map = tile.map;
  char* target = tile.target;
  for (uintptr_t z = 0; z < map.box[2]; ++z)
    for (uintptr_t y = 0; y < map.box[1]; ++y)
      for (uintptr_t x = 0; x < map.box[0]; ++x, target += map.itemsize) {
        uintptr_t at[3] = {tile.at[0] + x, tile.at[1] + y, tile.at[2] + z};  // negative ones are large
        bool inside = at[0] < map.extents[0] && at[1] < map.extents[1] && at[2] < map.extents[2];
        const char* source = (const char*)(map.address + at[2] * map.strides[1] + at[1] * map.strides[0]);
        if (inside) memcpy(oneir_permuted(target), source + at[0] * map.itemsize, map.itemsize);
        else memset(oneir_permuted(target), 0, map.itemsize);
      }
  tile.barrier->bytes -= oneir_tile_bytes(map);
  oneir_settle(tile.barrier);
}
// The oldest copy arrives at whose barrier a thread waits.
static bool oneir_step_of_copies(int threads) {
  for (int i = 0; i < oneir_tile_count; ++i)
    for (int t = 0; t < threads; ++t) {
      if (oneir_fibers[t].over != oneir_phase_over || oneir_fibers[t].what != oneir_tiles[i].barrier) continue;
      oneir_tile tile = oneir_tiles[i];
      memmove(oneir_tiles + i, oneir_tiles + i + 1, (--oneir_tile_count - i) * sizeof(oneir_tile));
      oneir_land(tile);
      return true;
    }
  return false;
}

// -- registers --

static bool oneir_enough_registers(const void*, int more) { return oneir_free_registers >= more; }
template <int COUNT>
static void oneir_setmaxnreg(int line, int sign) {
  static_assert(COUNT >= 24 && COUNT <= 256 && COUNT % 8 == 0, "registers of a thread");
  oneir_wait(line, 4);
  int more = COUNT - oneir_mine()->registers;
  if (more * sign < 0) oneir_fail("in line %d a thread that has %d registers asks for %d", line, COUNT - more, COUNT);
  oneir_await(line, oneir_enough_registers, 0, more);
  oneir_free_registers -= more;
  oneir_mine()->registers = COUNT;
}
template <int COUNT>
static void oneir_setmaxnreg_inc(int line = __builtin_LINE()) { oneir_setmaxnreg<COUNT>(line, 1); }
template <int COUNT>
static void oneir_setmaxnreg_dec(int line = __builtin_LINE()) { oneir_setmaxnreg<COUNT>(line, -1); }

// -- products --

static void oneir_wgmma_fence(int line = __builtin_LINE()) {
  oneir_wait(line, 1);
  oneir_mine()->fenced = true;
}
static void oneir_wgmma_commit_group(int line = __builtin_LINE()) {
  oneir_wait(line, 1);
  ++oneir_mine()->group;
}
// Starts a product. What the threads of a warpgroup give must be the same.
static void oneir_wgmma(int line, oneir_product product) {
  struct {
    const char *a, *b;
    int a_step, b_step, accumulate, line;
  } mine = {product.a, product.b, product.a_step, product.b_step, product.accumulate, line}, first;
  memcpy(&first, oneir_meet(line, mine, 4), sizeof first);
  if (memcmp(&first, &mine, sizeof mine)) oneir_fail("in line %d threads of a warpgroup multiply other matrices", line);
  oneir_hopper* own = oneir_mine();
  if (!own->fenced) oneir_fail("in line %d a product begins without a fence for its registers", line);
  if ((uintptr_t)product.a % 16 || (uintptr_t)product.b % 16 || product.a_step % 16 || product.b_step % 16)
    oneir_fail("in line %d a matrix does not begin at 16 bytes", line);
  size_t size = product.columns / 2 * sizeof(uint32_t);
  for (int i = 0; i < own->count; ++i) product.follows |= own->products[i].sums == product.sums;
  memcpy(product.kept, product.sums, size);
  memset(product.sums, 0xff, size);
  if (product.follows && memcmp(product.kept, product.sums, size))
    oneir_fail("in line %d sums have changed while they are computed", line);
  product.group = own->group;
  if (own->count == own->capacity) {
    own->capacity = own->capacity ? 2 * own->capacity : 8;
    own->products = (oneir_product*)realloc(own->products, own->capacity * sizeof(oneir_product));
  }
  own->products[own->count++] = product;
}
// An element of a factor: rows (or columns) of 128 bytes along the sum, or across it.
template <class F>
static auto oneir_factor(const char* matrix, int step, bool transposed, int i, int k) {
  typename F::bits bits;
  int size = sizeof bits, row = ONEIR_ROW / size;
  const char* at = matrix + (transposed ? i / row * step + i % row * size + k * ONEIR_ROW : i * ONEIR_ROW + k * size);
  memcpy(&bits, oneir_permuted(at), sizeof bits);
  return F::value(bits);
}
// A thread has, for each 8 columns, two neighbouring ones of the rows lane / 4 and lane / 4 + 8 of its warp's 16.
template <class F>
static void oneir_multiply(oneir_product& product) {
  typedef decltype(F::value(0)) number;
  enum { LENGTH = 32 / sizeof(typename F::bits) };
  int thread = (int)(oneir_current - oneir_fibers) % (4 * ONEIR_WARP), lane = thread % ONEIR_WARP;
  number rows[2][LENGTH], *sums = (number*)product.kept;
  for (int half = 0; half < 2; ++half)
    for (int k = 0; k < LENGTH; ++k)
      rows[half][k] = oneir_factor<F>(product.a, product.a_step, product.a_transposed,
                                      thread / ONEIR_WARP * 16 + half * 8 + lane / 4, k);
  for (int j = 0; j < product.columns / 4; ++j) {
    number column[LENGTH];
    for (int k = 0; k < LENGTH; ++k)
      column[k] = oneir_factor<F>(product.b, product.b_step, product.b_transposed, j / 2 * 8 + lane % 4 * 2 + j % 2, k);
    for (int half = 0; half < 2; ++half) {
      number* sum = &sums[j / 2 * 4 + half * 2 + j % 2];
      if (!product.accumulate) *sum = 0;
      for (int k = 0; k < LENGTH; ++k) *sum += rows[half][k] * column[k];
    }
  }
}
// The products of all closed groups but the last GROUPS are done.
template <int GROUPS, int SIZE>
static void oneir_wgmma_wait_group(void* sums, int line = __builtin_LINE()) {
  oneir_wait(line, 4);  // so that others go on while the products are under way
  oneir_hopper* own = oneir_mine();
  int done = 0;
  for (; done < own->count && own->products[done].group < own->group - GROUPS; ++done) {
    oneir_product& product = own->products[done];
    product.multiply(product);
    void* result = product.sums;
    for (int i = own->count - 1; i > done; --i)
      if (own->products[i].sums == product.sums) result = own->products[i].kept;
    memcpy(result, product.kept, product.columns / 2 * sizeof(uint32_t));
  }
  memmove(own->products, own->products + done, (own->count -= done) * sizeof(oneir_product));
  own->fenced = false;
}
#define ONEIR_WGMMA(name, factor, n)                                                                                 \
  template <int A_TRANSPOSED, int B_TRANSPOSED>                                                                      \
  static void oneir_wgmma_m64n##n##name(void* sums, const void* a, int a_step, const void* b, int b_step,            \
                                        bool accumulate, int line = __builtin_LINE()) {                              \
    oneir_wgmma(line, {sums, {}, (const char*)a, (const char*)b, a_step, b_step, n, 0, A_TRANSPOSED, B_TRANSPOSED,   \
                       accumulate, false, oneir_multiply<factor>});                                                  \
  }
#define ONEIR_WGMMAS(name, factor)                                                             \
  ONEIR_WGMMA(name, factor, 16) ONEIR_WGMMA(name, factor, 32) ONEIR_WGMMA(name, factor, 64)    \
  ONEIR_WGMMA(name, factor, 96) ONEIR_WGMMA(name, factor, 128) ONEIR_WGMMA(name, factor, 192)  \
  ONEIR_WGMMA(name, factor, 256)
ONEIR_WGMMAS(k16_f32_f16, oneir_half)
ONEIR_WGMMAS(k16_f32_bf16, oneir_bfloat)
ONEIR_WGMMAS(k32_s32_s8, oneir_byte)

// -- a block --

static void oneir_begin_hopper() {
  int threads = blockDim.x * blockDim.y * blockDim.z;
  int registers = ONEIR_REGISTERS / threads / 8 * 8;
  registers = registers > 248 ? 248 : registers;
  oneir_tile_count = 0, oneir_free_registers = ONEIR_REGISTERS - threads * registers;
  for (int i = 0; i < threads; ++i) {
    oneir_hopper& own = oneir_hoppers[i];
    own.count = own.group = 0, own.fenced = false, own.registers = registers;
  }
}
static const char* oneir_left_of_copies() {
  return oneir_tile_count ? "a tile is still being copied when the block has ended" : 0;
}
static const bool oneir_has_hopper =
    (oneir_begin_beside = oneir_begin_hopper, oneir_step_beside = oneir_step_of_copies,
     oneir_left_beside = oneir_left_of_copies, true);
