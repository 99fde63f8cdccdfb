// A CUDA driver without a GPU: what of its interface the runtime calls, over the host's memory.
//
// It is as lazy and as strict as a driver may be. Work is done when somebody waits for it, no sooner, and then only that
// stream's and what it depends on: so an order that nobody asked for is not there. Memory is full of 0xff when it is
// allocated and when it is freed, and stays so. Every use of what is not there (a freed handle, a missing context,
// another device's, memory that is not allocated) is counted, and its description kept: `stub_wrong`.
//
// A program is a text, a line for each kernel: its name, the address of a function that runs it, the bytes of each of its
// arguments, of its static shared memory, and the threads that a block of it may have.

#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef HIP  // the same as HIP's library
#define cuInit hipInit
#define cuDriverGetVersion hipDriverGetVersion
#define cuGetErrorName hipDrvGetErrorName
#define cuGetErrorString hipDrvGetErrorString
#define cuDeviceGetCount hipGetDeviceCount
#define cuDeviceGet hipDeviceGet
#define cuDeviceGetName hipDeviceGetName
#define cuDeviceTotalMem_v2 hipDeviceTotalMem
#define cuDeviceGetAttribute hipDeviceGetAttribute
#define cuDevicePrimaryCtxRetain hipDevicePrimaryCtxRetain
#define cuCtxGetCurrent hipCtxGetCurrent
#define cuCtxSetCurrent hipCtxSetCurrent
#define cuCtxSynchronize hipDeviceSynchronize
#define cuModuleLoadData hipModuleLoadData
#define cuModuleUnload hipModuleUnload
#define cuModuleGetFunction hipModuleGetFunction
#define cuFuncGetAttribute hipFuncGetAttribute
#define cuFuncSetAttribute hipFuncSetAttribute
#define cuLaunchKernel hipModuleLaunchKernel
#define cuMemGetInfo_v2 hipMemGetInfo
#define cuMemAlloc_v2 hipMalloc
#define cuMemFree_v2 hipFree
#define cuDeviceGetDefaultMemPool hipDeviceGetDefaultMemPool
#define cuMemPoolSetAttribute hipMemPoolSetAttribute
#define cuMemPoolTrimTo hipMemPoolTrimTo
#define cuMemAllocAsync hipMallocAsync
#define cuMemFreeAsync hipFreeAsync
#define cuMemcpyAsync hipMemcpyAsync
#define cuStreamCreate hipStreamCreateWithFlags
#define cuStreamDestroy_v2 hipStreamDestroy
#define cuStreamSynchronize hipStreamSynchronize
#define cuStreamWaitEvent hipStreamWaitEvent
#define cuEventCreate hipEventCreateWithFlags
#define cuEventDestroy_v2 hipEventDestroy
#define cuEventRecord hipEventRecord
#define cuEventSynchronize hipEventSynchronize
#define cuEventElapsedTime hipEventElapsedTime
#define cuStreamBeginCapture_v2 hipStreamBeginCapture
#define cuStreamEndCapture hipStreamEndCapture
#define cuGraphInstantiateWithFlags hipGraphInstantiateWithFlags
#define cuGraphLaunch hipGraphLaunch
#define cuGraphDestroy hipGraphDestroy
#define cuGraphExecDestroy hipGraphExecDestroy
#define VERSION 60240091
#define WARP 64
#define ON_HIP 1
#define COPY_KIND int kind,
#else
#define VERSION 12040
#define WARP 32
#define ON_HIP 0
#define COPY_KIND
#endif

#define API __attribute__((visibility("default")))
enum { DEVICES = 2, MOST = 1 << 16, ARGUMENTS = 64, MESSAGE = 256 };
enum { CONTEXT = 1, STREAM, EVENT, MODULE, FUNCTION, POOL, BLOCK, GRAPH, EXECUTABLE, KINDS };

typedef int (*Run)(void** arguments, const int* sizes, unsigned order, char* message);
typedef struct Work Work;
typedef struct Thing Thing;

struct Work {  // in a stream, in the order of `number`
  enum { LAUNCH, COPY, FREE, RECORD, WAIT, HOST } kind;
  long number;
  Thing *stream, *thing;  // the function, the block, the event
  long event_number;      // which recording of an event is waited for
  void *target, *source;
  size_t bytes;
  int sizes[6];
  unsigned char values[ARGUMENTS][128];
  Work* next;
};

struct Thing {
  int kind, alive, device, blocking;
  long used;                // events: the number of the last record; modules: none
  double time;              // events: when it happened, in ms
  long done;                // events: the last record that happened; blocks: whether they are freed
  char name[1024];          // functions
  Run run;
  int count, sizes[ARGUMENTS], shared, threads, dynamic;
  Thing* owner;             // functions: the module
  unsigned char* memory;    // blocks
  size_t bytes;
  Work *first, *last;       // streams, and captured graphs
  Thing* capture;           // streams: the graph that is captured
};

static Thing* things[MOST];
static int thing_count;
static Thing *contexts[DEVICES], *defaults[DEVICES], *pools[DEVICES];
static __thread Thing* current;
static int retained, sticky[DEVICES];
static long clock_number;
static double now;
static size_t capacity = (size_t)1 << 30, in_use[DEVICES];
static int live[KINDS], wrong_count, calls, launches_run, launches, graph_launches;
static char wrong[4096], kernel_message[MESSAGE];
static char failing[64];
static int failing_code, failing_after;
static int compute_major = 8, compute_minor = 0, has_pools = 1, quick;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int wrong_use(int code, const char* format, ...) {
  char text[256];
  va_list list;
  va_start(list, format);
  vsnprintf(text, sizeof text, format, list);
  va_end(list);
  ++wrong_count;
  if (strlen(wrong) + strlen(text) + 2 < sizeof wrong) strcat(strcat(wrong, text), "\n");
  return code;
}

static Thing* make(int kind, int device) {
  Thing* thing = calloc(1, sizeof *thing);
  thing->kind = kind, thing->alive = 1, thing->device = device;
  if (thing_count == MOST) abort();
  things[thing_count++] = thing;
  ++live[kind];
  return thing;
}

static void end(Thing* thing) {
  thing->alive = 0;
  --live[thing->kind];
}

static int known(Thing* thing, int kind) {
  for (int i = thing_count; i--;)
    if (things[i] == thing) return thing->kind == kind && thing->alive;
  return 0;
}

// What every function begins with: an injected failure, a lost device.
static int begin(const char* name, int needs_context) {
  ++calls;
  if (failing_code && !strcmp(failing, name) && failing_after-- == 0) {
    int code = failing_code;
    failing_code = 0;
    return code;
  }
  if (!retained && needs_context) return wrong_use(3, "%s before cuInit", name);
  if (ON_HIP && needs_context && !current) current = contexts[0];  // every thread has the first device
  if (needs_context && !current) {
    if (strcmp(name, "cuLaunchKernel")) wrong_use(0, "%s without a context", name);
    return 201;
  }
  return needs_context ? sticky[current->device] : 0;
}

#define ENTER(needs_context)                      \
  pthread_mutex_lock(&lock);                      \
  int code = begin(__func__, needs_context);      \
  if (code) return pthread_mutex_unlock(&lock), code
#define LEAVE(value)               \
  do {                             \
    int left = (value);            \
    pthread_mutex_unlock(&lock);   \
    return left;                   \
  } while (0)

static Thing* block_at(uintptr_t address, size_t bytes) {
  for (int i = thing_count; i--;) {
    Thing* b = things[i];
    if (b->kind == BLOCK && b->alive && address >= (uintptr_t)b->memory &&
        address + bytes <= (uintptr_t)b->memory + b->bytes)
      return b;
  }
  return 0;
}

// Whether memory was a block's, and its turn to be freed has come: in the order of its stream, work before may use it.
static int was_freed(uintptr_t address, size_t bytes) {
  int found = 0;
  for (int i = 0; i < thing_count; ++i) {
    Thing* b = things[i];
    if (b->kind != BLOCK || address < (uintptr_t)b->memory || address >= (uintptr_t)b->memory + b->bytes) continue;
    if ((b->alive || !b->done) && address + bytes <= (uintptr_t)b->memory + b->bytes) return 0;
    found = 1;
  }
  return found;
}

// -- work --

static void drain(Thing* stream, long number);

static void perform(Work* work) {
  int device = work->stream->device;
  now += 0.5;
  if (sticky[device] && work->kind != RECORD) return;
  if (work->kind == LAUNCH) {
    void* arguments[ARGUMENTS];
    for (int i = 0; i < work->thing->count; ++i) arguments[i] = work->values[i];
    if (!work->thing->owner->alive) wrong_use(0, "a kernel runs whose program is unloaded");
    ++launches_run;
    now += 1;
    if (work->thing->run && work->thing->run(arguments, work->sizes, 0, kernel_message)) sticky[device] = 719;
  } else if (work->kind == COPY) {
    for (int i = 0; i < 2; ++i) {
      uintptr_t address = (uintptr_t)(i ? work->source : work->target);
      if (was_freed(address, work->bytes)) wrong_use(0, "a copy of memory that is freed");
    }
    memcpy(work->target, work->source, work->bytes);
  } else if (work->kind == HOST) {
    ((void (*)(void*))work->target)(work->source);
  } else if (work->kind == FREE) {
    work->thing->done = 1;
    memset(work->thing->memory, 0xff, work->thing->bytes);
  } else if (work->kind == RECORD) {
    if (work->thing->alive) work->thing->time = now, work->thing->done = work->number;
  } else if (work->kind == WAIT) {
    for (int i = 0; i < thing_count; ++i)
      if (things[i]->kind == STREAM) {
        for (Work* w = things[i]->first; w; w = w->next)
          if (w->number == work->event_number) {
            drain(things[i], work->event_number + 1);
            break;
          }
      }
  }
}

// Does the work of a stream up to a number; that of the default stream waits for all blocking streams, and they for it.
static void drain(Thing* stream, long number) {
  while (stream->first && stream->first->number < number) {
    Work* work = stream->first;
    stream->first = work->next;
    if (!stream->first) stream->last = 0;
    int is_default = stream == defaults[stream->device];
    for (int i = 0; i < thing_count; ++i) {
      Thing* other = things[i];
      if (other->kind != STREAM || other == stream || other->device != stream->device) continue;
      if (is_default ? other->blocking : stream->blocking && other == defaults[stream->device])
        drain(other, work->number);
    }
    perform(work);
    free(work);
  }
}

static Thing* stream_of(Thing* handle, const char* name, int* code) {
  *code = 0;
  if (!handle || handle == (Thing*)1 || handle == (Thing*)2) return defaults[current->device];
  if (!known(handle, STREAM)) *code = wrong_use(400, "%s in a stream that is not there", name);
  else if (handle->device != current->device) *code = 400;
  return handle;
}

static Work* give(Thing* stream, int kind) {
  Work* work = calloc(1, sizeof *work);
  Thing* queue = stream->capture ? stream->capture : stream;
  work->kind = kind, work->number = ++clock_number, work->stream = stream;
  if (queue->last) queue->last->next = work;
  else queue->first = work;
  return queue->last = work;
}

// -- the tests' side --

API void stub_reset(void) {
  for (int d = 0; d < DEVICES; ++d) sticky[d] = 0;
  wrong_count = 0, *wrong = 0, failing_code = 0, capacity = (size_t)1 << 30, calls = launches_run = 0;
  launches = graph_launches = 0;
  compute_major = 8, compute_minor = 0, has_pools = 1, quick = 0;
}
API const char* stub_wrong(void) { return wrong; }
API const char* stub_message(void) { return kernel_message; }
API int stub_live(int kind) { return live[kind]; }
API int stub_launches(void) { return launches_run; }
API int stub_direct_launches(void) { return launches; }  // by the host, of kernels; those that are captured are none
API int stub_graph_launches(void) { return graph_launches; }
API long stub_in_use(int device) { return in_use[device]; }
API void stub_fail(const char* name, int code, int after) {
  snprintf(failing, sizeof failing, "%s", name);
  failing_code = code, failing_after = after;
}
API void stub_lose(int device, int code) { sticky[device] = code; }
API void stub_capacity(size_t bytes) { capacity = bytes; }
API void stub_is(int major, int minor, int pools) { compute_major = major, compute_minor = minor, has_pools = pools; }
API void stub_quick(int yes) { quick = yes; }  // launches return at once, and nothing runs: for measuring
// Does what is waiting: one piece of work of each stream in turn, so that what streams share, they spoil for each other.
API void stub_alternate(void) {
  for (int left = 1; left;) {
    left = 0;
    for (int i = 0; i < thing_count; ++i)
      if (things[i]->kind == STREAM && things[i]->first) drain(things[i], things[i]->first->number + 1), left = 1;
  }
}
API void stub_drain(void) {
  for (int i = 0; i < thing_count; ++i)
    if (things[i]->kind == STREAM) drain(things[i], clock_number + 1);
}

// -- devices and contexts --

API int cuInit(unsigned flags) {
  pthread_mutex_lock(&lock);
  int code = begin(__func__, 0);
  if (!code) retained = 1;
  LEAVE(code);
}
API int cuDriverGetVersion(int* version) { return *version = VERSION, 0; }
API int cuGetErrorName(int code, const char** name) {
  static const struct { int code; const char* name; } names[] = {
      {1, "CUDA_ERROR_INVALID_VALUE"}, {2, "CUDA_ERROR_OUT_OF_MEMORY"}, {46, "CUDA_ERROR_DEVICE_UNAVAILABLE"},
      {201, "CUDA_ERROR_INVALID_CONTEXT"}, {209, "CUDA_ERROR_NO_BINARY_FOR_GPU"}, {218, "CUDA_ERROR_INVALID_PTX"},
      {400, "CUDA_ERROR_INVALID_HANDLE"}, {500, "CUDA_ERROR_NOT_FOUND"}, {700, "CUDA_ERROR_ILLEGAL_ADDRESS"},
      {701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"}, {719, "CUDA_ERROR_LAUNCH_FAILED"}, {0, "CUDA_SUCCESS"}};
  for (unsigned i = 0; i < sizeof names / sizeof *names; ++i)
    if (names[i].code == code) return *name = names[i].name, 0;
  return 1;
}
API int cuGetErrorString(int code, const char** text) {
  const char* name;
  return *text = "as the stub was told", cuGetErrorName(code, &name);
}
API int cuDeviceGetCount(int* count) { return *count = DEVICES, 0; }
API int cuDeviceGet(int* device, int ordinal) {
  ENTER(0);
  if (ordinal < 0 || ordinal >= DEVICES) LEAVE(101);
  *device = ordinal + 100;  // no number that happens to be right
  LEAVE(0);
}
API int cuDeviceGetName(char* name, int size, int device) { return snprintf(name, size, "stub %d", device - 100), 0; }
API int cuDeviceTotalMem_v2(size_t* bytes, int device) { return *bytes = capacity, 0; }
API int cuDeviceGetAttribute(int* value, int attribute, int device) {
  static const int facts[128] = {[1] = 1024, [2] = 1024, [3] = 1024, [4] = 64, [5] = 2147483647, [6] = 65535,
                                 [7] = 65535, [8] = 49152, [10] = WARP, [13] = 1500000, [16] = 4, [38] = 1 << 20,
                                 [97] = 166912};
#ifdef HIP  // the numbers of CUDA, by those of HIP
  static const int numbers[128] = {[56] = 1, [26] = 2, [27] = 3, [28] = 4, [29] = 5, [30] = 6, [31] = 7, [74] = 8,
                                   [87] = 10, [5] = 13, [63] = 16, [19] = 38, [23] = 75, [61] = 76, [88] = 115};
  attribute = attribute < 0 || attribute > 127 ? 0 : numbers[attribute];
  if (!attribute) return 1;
#endif
  if (device < 100 || device >= 100 + DEVICES || attribute < 0 || attribute > 127) return 1;
  *value = attribute == 75 ? compute_major : attribute == 76 ? compute_minor : attribute == 115 ? has_pools
           : facts[attribute];
  return 0;
}
API int cuDevicePrimaryCtxRetain(Thing** context, int device) {
  ENTER(0);
  int d = device - 100;
  if (d < 0 || d >= DEVICES) LEAVE(101);
  if (!contexts[d]) contexts[d] = make(CONTEXT, d), defaults[d] = make(STREAM, d), pools[d] = make(POOL, d);
  if (defaults[d]) live[STREAM] -= defaults[d]->blocking ? 0 : 1, defaults[d]->blocking = 1;
  *context = contexts[d];
  LEAVE(0);
}
#ifdef HIP
// Where the architecture is differs between versions: it is behind the device's name, which takes 256 bytes.
API int hipGetDevicePropertiesR0600(char* properties, int ordinal) {
  if (ordinal < 0 || ordinal >= DEVICES) return 101;
  memset(properties, 0x5a, 1472);
  snprintf(properties, 256, "gfxstub %d", ordinal);
  strcpy(properties + 1160, compute_major == 9 ? "gfx90a:sramecc+:xnack-" : "gfx803");
  return 0;
}
#endif
API int cuCtxGetCurrent(Thing** context) { return *context = current ? current : ON_HIP ? contexts[0] : 0, 0; }
API int cuCtxSetCurrent(Thing* context) {
  ENTER(0);
  if (context && !known(context, CONTEXT)) LEAVE(wrong_use(201, "cuCtxSetCurrent of what is no context"));
  current = context;
  LEAVE(0);
}
API int cuCtxSynchronize(void) {
  ENTER(1);
  for (int i = 0; i < thing_count; ++i)
    if (things[i]->kind == STREAM && things[i]->device == current->device) drain(things[i], clock_number + 1);
  LEAVE(sticky[current->device]);
}

// -- programs --

API int cuModuleLoadData(Thing** module, const char* image) {
  ENTER(1);
  Thing* made = make(MODULE, current->device);
  const char* line = image;
  if (!memcmp(image, "\177ELF", 4)) line = "";  // machine code: no kernel of it is run
  else if (memcmp(image, "stub\n", 5)) LEAVE((end(made), 218));
  else line += 5;
  while (*line) {
    Thing* f = make(FUNCTION, current->device);
    unsigned long long address;
    int used;
    --live[FUNCTION];
    f->owner = made;
    sscanf(line, "%1023s %llu %d %d %d%n", f->name, &address, &f->shared, &f->threads, &f->count, &used);
    line += used;
    for (int i = 0; i < f->count; ++i) sscanf(line, "%d%n", &f->sizes[i], &used), line += used;
    f->run = (Run)address, f->dynamic = 49152 - (ON_HIP ? f->shared : 0);
    while (*line == '\n') ++line;
  }
  *module = made;
  LEAVE(0);
}
API int cuModuleUnload(Thing* module) {
  ENTER(1);
  if (!known(module, MODULE)) LEAVE(wrong_use(400, "cuModuleUnload of what is no program"));
  if (module->device != current->device) LEAVE(wrong_use(400, "cuModuleUnload in another device's context"));
  end(module);
  LEAVE(0);
}
API int cuModuleGetFunction(Thing** function, Thing* module, const char* name) {
  ENTER(1);
  if (!known(module, MODULE)) LEAVE(wrong_use(400, "cuModuleGetFunction of what is no program"));
  for (int i = 0; i < thing_count; ++i)
    if (things[i]->kind == FUNCTION && things[i]->owner == module && !strcmp(things[i]->name, name)) {
      *function = things[i];
      LEAVE(0);
    }
  LEAVE(500);
}
API int cuFuncGetAttribute(int* value, int attribute, Thing* f) {
  ENTER(1);
  if (!known(f, FUNCTION) || !f->owner->alive) LEAVE(wrong_use(400, "cuFuncGetAttribute of what is no kernel"));
  *value = attribute == 0 ? f->threads : attribute == 1 ? f->shared : f->dynamic;
  LEAVE(0);
}
API int cuFuncSetAttribute(Thing* f, int attribute, int value) {
  ENTER(1);
  if (!known(f, FUNCTION) || !f->owner->alive) LEAVE(wrong_use(400, "cuFuncSetAttribute of what is no kernel"));
  if (ON_HIP) LEAVE(wrong_use(98, "hipFuncSetAttribute of a kernel of a program"));
  if (attribute != 8 || value + f->shared > 166912) LEAVE(1);
  f->dynamic = value;
  LEAVE(0);
}
API int cuLaunchKernel(Thing* f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                       unsigned shared, Thing* stream, void** arguments, void** extra) {
  if (quick) return 0;
  ENTER(1);
  if (!known(f, FUNCTION) || !f->owner->alive) LEAVE(wrong_use(400, "a launch of what is no kernel"));
  if (f->device != current->device) LEAVE(ON_HIP ? wrong_use(0, "a launch on another device") : 400);
  Thing* queue = stream_of(stream, __func__, &code);
  if (code) LEAVE(code);
  if (!gx || !gy || !gz || !bx || !by || !bz) LEAVE(wrong_use(1, "a launch without threads"));
  if (bx > 1024 || by > 1024 || bz > 64 || gy > 65535 || gz > 65535 || bx * by * bz > (unsigned)f->threads)
    LEAVE(wrong_use(1, "a launch of `%s` over the limits", f->name));
  if (shared > (unsigned)f->dynamic) LEAVE(wrong_use(1, "%u bytes of shared memory for `%s`", shared, f->name));
  launches += !queue->capture;
  Work* work = give(queue, LAUNCH);
  work->thing = f;
  int sizes[6] = {gx, gy, gz, bx, by, bz};
  memcpy(work->sizes, sizes, sizeof sizes);
  for (int i = 0; i < f->count; ++i) memcpy(work->values[i], arguments[i], f->sizes[i]);
  LEAVE(0);
}

// What `oneir.runtime.tensor_map.TensorMap` has; a kernel that the host runs takes that for a tensor map.
API int cuTensorMapEncodeTiled(uint64_t* map, int kind, unsigned rank, void* address, const uint64_t* extents,
                               const uint64_t* strides, const unsigned* box, const unsigned* steps, int interleave,
                               int swizzle, int promotion, int fill) {
  ENTER(0);
  uint64_t size = (uint64_t)1 << kind, bad = (uint64_t)address % 16 || (uint64_t)map % 64;
  if (kind < 0 || kind > 2 || rank != 3 || interleave || swizzle != 3 || promotion < 0 || promotion > 3 || fill) bad = 1;
  for (int i = 0; i < 3; ++i) {
    bad |= !extents[i] || extents[i] > (uint64_t)1 << 32 || !box[i] || box[i] > 256 || steps[i] != 1;
    if (i < 2) bad |= strides[i] % 16 || strides[i] >= (uint64_t)1 << 40;
  }
  if (bad || box[0] * size > 128) LEAVE(1);
  uint64_t words[10] = {(uint64_t)address, size,   extents[0], extents[1], extents[2],
                        strides[0],        strides[1], box[0],     box[1],     box[2]};
  memset(map, 0xff, 128);
  memcpy(map, words, sizeof words);
  LEAVE(0);
}

// -- memory --

static int allocate(uint64_t* address, size_t bytes) {
  int d = current->device;
  if (!bytes) return wrong_use(1, "an allocation of no bytes");
  if (in_use[d] + bytes > capacity) return 2;
  Thing* b = make(BLOCK, d);
  b->bytes = bytes, in_use[d] += bytes;
  b->memory = aligned_alloc(256, (bytes + 255) / 256 * 256);
  memset(b->memory, 0xff, bytes);
  return *address = (uint64_t)b->memory, 0;
}
static Thing* freed(uint64_t address, const char* name, int* code) {
  Thing* b = block_at(address, 1);
  if (!b || (uint64_t)b->memory != address) *code = wrong_use(1, "%s of what is not allocated", name);
  else if (b->device != current->device) *code = wrong_use(1, "%s in another device's context", name);
  else {
    end(b), in_use[b->device] -= b->bytes;
    return b;
  }
  return 0;
}
API int cuMemGetInfo_v2(size_t* left, size_t* total) {
  ENTER(1);
  *total = capacity, *left = capacity - in_use[current->device];
  LEAVE(0);
}
API int cuMemAlloc_v2(uint64_t* address, size_t bytes) {
  ENTER(1);
  LEAVE(allocate(address, bytes));
}
API int cuMemFree_v2(uint64_t address) {
  ENTER(1);
  for (int i = 0; i < thing_count; ++i)
    if (things[i]->kind == STREAM && things[i]->device == current->device) drain(things[i], clock_number + 1);
  Thing* b = freed(address, __func__, &code);
  if (b) b->done = 1, memset(b->memory, 0xff, b->bytes);
  LEAVE(code);
}
API int cuDeviceGetDefaultMemPool(Thing** pool, int device) { return *pool = pools[device - 100], 0; }
API int cuMemPoolSetAttribute(Thing* pool, int attribute, void* value) { return known(pool, POOL) ? 0 : 1; }
API int cuMemPoolTrimTo(Thing* pool, size_t bytes) { return known(pool, POOL) ? 0 : 1; }
API int cuMemAllocAsync(uint64_t* address, size_t bytes, Thing* stream) {
  ENTER(1);
  Thing* queue = stream_of(stream, __func__, &code);
  if (!code && queue->capture) LEAVE(wrong_use(1, "an allocation in a stream that is captured"));
  LEAVE(code ? code : allocate(address, bytes));
}
API int cuMemFreeAsync(uint64_t address, Thing* stream) {
  ENTER(1);
  Thing *queue = stream_of(stream, __func__, &code), *b = code ? 0 : freed(address, __func__, &code);
  if (b && queue->capture) LEAVE(wrong_use(1, "memory is freed in a stream that is captured"));
  if (b) give(queue, FREE)->thing = b;
  LEAVE(code);
}
API int cuMemcpyAsync(uint64_t target, uint64_t source, size_t bytes, COPY_KIND Thing* stream) {
  ENTER(1);
#ifdef HIP
  if (kind != 4) LEAVE(wrong_use(1, "a copy of the kind %d", kind));
#endif
  Thing* queue = stream_of(stream, __func__, &code);
  if (code) LEAVE(code);
  if (!block_at(target, bytes) && !block_at(source, bytes))
    LEAVE(wrong_use(1, "a copy of %zu bytes none of which is the device's", bytes));
  Work* work = give(queue, COPY);
  work->target = (void*)target, work->source = (void*)source, work->bytes = bytes;
  LEAVE(0);
}

API int cuLaunchHostFunc(Thing* stream, void (*function)(void*), void* data) {
  ENTER(1);
  Thing* queue = stream_of(stream, __func__, &code);
  if (code) LEAVE(code);
  Work* work = give(queue, HOST);
  work->target = (void*)function, work->source = data;
  LEAVE(0);
}

// -- streams and events --

API int cuStreamCreate(Thing** stream, unsigned flags) {
  ENTER(1);
  (*stream = make(STREAM, current->device))->blocking = !(flags & 1);
  LEAVE(0);
}
API int cuStreamDestroy_v2(Thing* stream) {
  ENTER(1);
  if (!known(stream, STREAM)) LEAVE(wrong_use(400, "cuStreamDestroy of what is no stream"));
  drain(stream, clock_number + 1);
  if (stream->capture) end(stream->capture);
  end(stream);
  LEAVE(0);
}
API int cuStreamSynchronize(Thing* stream) {
  ENTER(1);
  Thing* queue = stream_of(stream, __func__, &code);
  if (!code && queue->capture) LEAVE((queue->capture->used = 1, 900));
  if (!code) drain(queue, clock_number + 1);
  LEAVE(code ? code : sticky[current->device]);
}
API int cuStreamWaitEvent(Thing* stream, Thing* event, unsigned flags) {
  ENTER(1);
  Thing* queue = stream_of(stream, __func__, &code);
  if (!code && !known(event, EVENT)) code = wrong_use(400, "cuStreamWaitEvent of what is no event");
  if (!code) give(queue, WAIT)->event_number = event->used;
  LEAVE(code);
}
API int cuEventCreate(Thing** event, unsigned flags) {
  ENTER(1);
  *event = make(EVENT, current->device);
  LEAVE(0);
}
API int cuEventDestroy_v2(Thing* event) {
  ENTER(1);
  if (!known(event, EVENT)) LEAVE(wrong_use(400, "cuEventDestroy of what is no event"));
  end(event);
  LEAVE(0);
}
API int cuEventRecord(Thing* event, Thing* stream) {
  ENTER(1);
  Thing* queue = stream_of(stream, __func__, &code);
  if (!code && !known(event, EVENT)) code = wrong_use(400, "cuEventRecord of what is no event");
  if (code) LEAVE(code);
  Work* work = give(queue, RECORD);
  work->thing = event, event->used = work->number;
  LEAVE(0);
}
API int cuEventSynchronize(Thing* event) {
  ENTER(1);
  if (!known(event, EVENT)) LEAVE(wrong_use(400, "cuEventSynchronize of what is no event"));
  for (int i = 0; i < thing_count; ++i)
    if (things[i]->kind == STREAM)
      for (Work* w = things[i]->first; w; w = w->next)
        if (w->number == event->used) {
          drain(things[i], event->used + 1);
          break;
        }
  LEAVE(sticky[current->device]);
}
API int cuEventElapsedTime(float* milliseconds, Thing* begin_event, Thing* end_event) {
  ENTER(1);
  if (!known(begin_event, EVENT) || !known(end_event, EVENT)) LEAVE(wrong_use(400, "the time of what is no event"));
  if (begin_event->done != begin_event->used || end_event->done != end_event->used) LEAVE(600);
  *milliseconds = end_event->time - begin_event->time;
  LEAVE(0);
}

// -- graphs --

API int cuStreamBeginCapture_v2(Thing* stream, int mode) {
  ENTER(1);
  Thing* queue = stream_of(stream, __func__, &code);
  if (code) LEAVE(code);
  if (queue == defaults[queue->device] || queue->capture) LEAVE(900);
  queue->capture = make(GRAPH, queue->device);
  LEAVE(0);
}
// A capture that something spoiled (`used`) ends with an error, and gives no graph.
API int cuStreamEndCapture(Thing* stream, Thing** graph) {
  ENTER(1);
  Thing* queue = stream_of(stream, __func__, &code);
  if (code) LEAVE(code);
  if (!queue->capture) LEAVE(wrong_use(901, "cuStreamEndCapture of what is not captured"));
  *graph = queue->capture, queue->capture = 0;
  if ((*graph)->used) LEAVE((end(*graph), *graph = 0, 901));
  LEAVE(0);
}
API int cuGraphInstantiateWithFlags(Thing** executable, Thing* graph, unsigned long long flags) {
  ENTER(1);
  if (!known(graph, GRAPH)) LEAVE(wrong_use(400, "cuGraphInstantiate of what is no graph"));
  Thing* made = *executable = make(EXECUTABLE, graph->device);
  for (Work* w = graph->first; w; w = w->next) {
    Work* copy = malloc(sizeof *copy);
    *copy = *w, copy->next = 0;
    made->last = *(made->last ? &made->last->next : &made->first) = copy;
  }
  LEAVE(0);
}
API int cuGraphLaunch(Thing* executable, Thing* stream) {
  ENTER(1);
  Thing* queue = stream_of(stream, __func__, &code);
  if (code) LEAVE(code);
  if (!known(executable, EXECUTABLE)) LEAVE(wrong_use(400, "cuGraphLaunch of what is no graph"));
  ++graph_launches;
  for (Work* w = executable->first; w; w = w->next) {
    Work *work = give(queue, w->kind), *next = work->next;
    long number = work->number;
    *work = *w, work->number = number, work->stream = queue, work->next = next;
  }
  LEAVE(0);
}
API int cuGraphDestroy(Thing* graph) {
  ENTER(1);
  if (!known(graph, GRAPH)) LEAVE(wrong_use(400, "cuGraphDestroy of what is no graph"));
  end(graph);
  LEAVE(0);
}
API int cuGraphExecDestroy(Thing* executable) {
  ENTER(1);
  if (!known(executable, EXECUTABLE)) LEAVE(wrong_use(400, "cuGraphExecDestroy of what is no graph"));
  end(executable);
  LEAVE(0);
}
