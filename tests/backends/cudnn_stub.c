// cuDNN without a GPU: what of it is called, in the order of streams of the stub of the driver.
//
// As the library's documentation has it: only what a create function gave is a descriptor, until it is destroyed; the
// fused call takes a relu that makes zeros of NaNs; the algorithm and the memory for it are what the library proposed,
// of which the first need not work.

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define API __attribute__((visibility("default")))
enum { TENSOR = 0x7e4504, FILTER, CONVOLUTION, ACTIVATION, ALGORITHM = 6, WORKSPACE = 1000 };
enum { BAD_PARAM = 2000, NOT_SUPPORTED = 3000, EXECUTION_FAILED = 5000 };
typedef struct { int kind, set, format, type, n, c, h, w, pad[2], stride[2], dilation[2], groups, math; } Descriptor;
typedef struct { int algorithm, status; float time; size_t memory; int determinism, math, reserved[3]; } Proposal;
typedef struct { Descriptor x, w, y, c; const char *at_x, *at_w, *bias; char *at_y, *space; int convolve, relu; } Work;

static int (*launch)(void* stream, void (*function)(void*), void* data);
static int live, made, failing;
static void* current;

API void stub_cudnn(void* launch_host_function) { launch = launch_host_function; }
API int stub_cudnn_live(void) { return live; }
API int stub_cudnn_made(void) { return made; }
API void stub_cudnn_fail(int code) { failing = code; }

API const char* cudnnGetErrorString(int code) {
  return code == BAD_PARAM ? "CUDNN_STATUS_BAD_PARAM" : code == NOT_SUPPORTED ? "CUDNN_STATUS_NOT_SUPPORTED"
       : code == EXECUTION_FAILED ? "CUDNN_STATUS_EXECUTION_FAILED" : "?";
}
API int cudnnCreate(void** handle) { return *handle = &live, 0; }
API int cudnnSetStream(void* handle, void* stream) { return handle == &live ? (current = stream, 0) : BAD_PARAM; }

static int create(Descriptor** d, int kind) {
  *d = calloc(1, sizeof **d), (*d)->kind = kind, ++live, ++made;
  return 0;
}
static int destroy(Descriptor* d, int kind) {
  if (!d || d->kind != kind) return BAD_PARAM;
  return d->kind = 0, --live, free(d), 0;
}
#define KIND(name, kind) \
  API int cudnnCreate##name##Descriptor(Descriptor** d) { return create(d, kind); } \
  API int cudnnDestroy##name##Descriptor(Descriptor* d) { return destroy(d, kind); }
KIND(Tensor, TENSOR) KIND(Filter, FILTER) KIND(Convolution, CONVOLUTION) KIND(Activation, ACTIVATION)

static int set4(Descriptor* d, int kind, int format, int type, int n, int c, int h, int w) {
  if (!d || d->kind != kind || format < 0 || format > 1 || n < 1 || c < 1 || h < 1 || w < 1) return BAD_PARAM;
  if (type != 0 && type != 2) return NOT_SUPPORTED;
  d->set = 1, d->format = format, d->type = type, d->n = n, d->c = c, d->h = h, d->w = w;
  return 0;
}
API int cudnnSetTensor4dDescriptor(Descriptor* d, int format, int type, int n, int c, int h, int w) {
  return set4(d, TENSOR, format, type, n, c, h, w);
}
API int cudnnSetFilter4dDescriptor(Descriptor* d, int type, int format, int n, int c, int h, int w) {
  return set4(d, FILTER, format, type, n, c, h, w);
}
API int cudnnSetConvolution2dDescriptor(Descriptor* d, int pad_h, int pad_w, int stride_h, int stride_w, int dilation_h,
                                        int dilation_w, int mode, int type) {
  if (!d || d->kind != CONVOLUTION || pad_h < 0 || pad_w < 0 || stride_h < 1 || stride_w < 1 || dilation_h < 1 ||
      dilation_w < 1 || mode != 1 || type != 0)
    return BAD_PARAM;
  int both[] = {pad_h, pad_w, stride_h, stride_w, dilation_h, dilation_w};
  memcpy(d->pad, both, 8), memcpy(d->stride, both + 2, 8), memcpy(d->dilation, both + 4, 8);
  return d->set = d->groups = 1, 0;
}
API int cudnnSetConvolutionGroupCount(Descriptor* d, int groups) {
  return d && d->kind == CONVOLUTION && d->set && groups > 0 ? (d->groups = groups, 0) : BAD_PARAM;
}
API int cudnnSetConvolutionMathType(Descriptor* d, int math) {
  return d && d->kind == CONVOLUTION && d->set && math >= 0 && math < 4 ? (d->math = math, 0) : BAD_PARAM;
}
API int cudnnSetActivationDescriptor(Descriptor* d, int mode, int nan, double ceiling) {
  if (!d || d->kind != ACTIVATION || mode != 1 || nan != 0) return BAD_PARAM;
  return d->set = 1, 0;
}

static int is(const Descriptor* d, int kind) { return d && d->kind == kind && d->set; }
static int room(int size, int pad, int window, int dilation, int stride) {
  return (size + 2 * pad - ((window - 1) * dilation + 1)) / stride + 1;
}
static int fits(const Descriptor* x, const Descriptor* w, const Descriptor* c, const Descriptor* y) {
  if (!is(x, TENSOR) || !is(w, FILTER) || !is(c, CONVOLUTION) || !is(y, TENSOR)) return BAD_PARAM;
  if (x->type != w->type || x->type != y->type || x->format != w->format || x->format != y->format) return BAD_PARAM;
  if (c->math != (x->type == 0 ? 3 : 1)) return NOT_SUPPORTED;
  if (x->c != w->c * c->groups || w->n % c->groups || y->n != x->n || y->c != w->n) return BAD_PARAM;
  if (y->h != room(x->h, c->pad[0], w->h, c->dilation[0], c->stride[0])) return BAD_PARAM;
  return y->w != room(x->w, c->pad[1], w->w, c->dilation[1], c->stride[1]) ? BAD_PARAM : 0;
}
API int cudnnGetConvolutionForwardAlgorithm_v7(void* handle, Descriptor* x, Descriptor* w, Descriptor* c, Descriptor* y,
                                               int asked, int* found, Proposal* proposals) {
  int code = handle == &live && asked >= 2 ? fits(x, w, c, y) : BAD_PARAM;
  if (code) return code;
  proposals[0] = (Proposal){.algorithm = 7, .status = NOT_SUPPORTED, .time = -1};
  proposals[1] = (Proposal){.algorithm = ALGORITHM, .time = -1, .memory = WORKSPACE, .math = c->math};
  return *found = failing == NOT_SUPPORTED ? 1 : 2, 0;
}

static int64_t place(const Descriptor* d, int n, int c, int h, int w) {
  return d->format == 0 ? (((int64_t)n * d->c + c) * d->h + h) * d->w + w : (((int64_t)n * d->h + h) * d->w + w) * d->c + c;
}
static double get(const Descriptor* d, const char* at, int64_t i) {
  return d->type == 0 ? ((const float*)at)[i] : (double)((const _Float16*)at)[i];
}
static double sum_at(const Work* p, int n, int k, int i, int j) {
  double sum = 0;
  int first = k / (p->w.n / p->c.groups) * p->w.c;
  for (int c = 0; c < p->w.c; ++c)
    for (int r = 0; r < p->w.h; ++r)
      for (int s = 0; s < p->w.w; ++s) {
        int h = i * p->c.stride[0] - p->c.pad[0] + r * p->c.dilation[0];
        int w = j * p->c.stride[1] - p->c.pad[1] + s * p->c.dilation[1];
        if (h >= 0 && h < p->x.h && w >= 0 && w < p->x.w)
          sum += get(&p->x, p->at_x, place(&p->x, n, first + c, h, w)) * get(&p->w, p->at_w, place(&p->w, k, c, r, s));
      }
  return sum;
}
static void compute(void* data) {
  Work* p = data;
  if (p->space) memset(p->space, 0xa5, WORKSPACE);
  for (int n = 0; n < p->y.n; ++n)
    for (int k = 0; k < p->y.c; ++k)
      for (int i = 0; i < p->y.h; ++i)
        for (int j = 0; j < p->y.w; ++j) {
          int64_t at = place(&p->y, n, k, i, j);
          double sum = p->convolve ? sum_at(p, n, k, i, j) : get(&p->y, p->at_y, at);
          if (p->bias) sum += get(&p->y, p->bias, k);
          if (p->relu) sum = sum > 0 ? sum : 0;
          if (p->y.type == 0) ((float*)p->at_y)[at] = sum;
          else ((_Float16*)p->at_y)[at] = sum;
        }
  free(p);
}
static int give(Work work) {
  uintptr_t all = (uintptr_t)work.at_x | (uintptr_t)work.at_w | (uintptr_t)work.at_y | (uintptr_t)work.bias;
  if (all % 16 || !work.at_y) return BAD_PARAM;
  if (failing) return failing;
  Work* p = malloc(sizeof *p);
  *p = work;
  return launch(current, compute, p) ? EXECUTION_FAILED : 0;
}
static int is_bias(const Descriptor* b, const Descriptor* y) {
  return is(b, TENSOR) && b->type == y->type && b->n == 1 && b->c == y->c && b->h == 1 && b->w == 1;
}
static int convolve(void* handle, const float* alpha, Descriptor* x, const void* at_x, Descriptor* w, const void* at_w,
                    Descriptor* c, int algorithm, void* space, size_t bytes, const float* beta, Descriptor* y, void* at_y,
                    const void* bias, int relu) {
  int code = handle == &live ? fits(x, w, c, y) : BAD_PARAM;
  if (code) return code;
  if (algorithm != ALGORITHM || bytes < WORKSPACE || !space || *alpha != 1 || *beta != 0) return BAD_PARAM;
  return give((Work){*x, *w, *y, *c, at_x, at_w, bias, at_y, space, 1, relu});
}
API int cudnnConvolutionForward(void* handle, const float* alpha, Descriptor* x, const void* at_x, Descriptor* w,
                                const void* at_w, Descriptor* c, int algorithm, void* space, size_t bytes,
                                const float* beta, Descriptor* y, void* at_y) {
  return convolve(handle, alpha, x, at_x, w, at_w, c, algorithm, space, bytes, beta, y, at_y, 0, 0);
}
API int cudnnConvolutionBiasActivationForward(void* handle, const float* alpha, Descriptor* x, const void* at_x,
                                              Descriptor* w, const void* at_w, Descriptor* c, int algorithm, void* space,
                                              size_t bytes, const float* beta, Descriptor* z, const void* at_z,
                                              Descriptor* b, const void* bias, Descriptor* activation, Descriptor* y,
                                              void* at_y) {
  if (!is(z, TENSOR) || !at_z || !is_bias(b, y) || !bias || !is(activation, ACTIVATION)) return BAD_PARAM;
  return convolve(handle, alpha, x, at_x, w, at_w, c, algorithm, space, bytes, beta, y, at_y, bias, 1);
}
API int cudnnAddTensor(void* handle, const float* alpha, Descriptor* b, const void* bias, const float* beta, Descriptor* y,
                       void* at_y) {
  if (handle != &live || !is(y, TENSOR) || !is_bias(b, y) || !bias || *alpha != 1 || *beta != 1) return BAD_PARAM;
  return give((Work){.y = *y, .bias = bias, .at_y = at_y});
}
