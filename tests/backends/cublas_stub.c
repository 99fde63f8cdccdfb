// cuBLAS without a GPU: what of its part cublasLt is called, in the order of streams of the stub of the driver.
//
// As the library's documentation has it: matrices are column by column, with a leading dimension; a description that is
// destroyed is not used any more.

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define API __attribute__((visibility("default")))
typedef struct { int compute, scale, transpose_a, transpose_b, epilogue; const char* bias; } Description;
typedef struct { int type, batches; uint64_t rows, columns; int64_t leading, stride; } Layout;
typedef struct { Description what; Layout a, b, d; const char *at_a, *at_b; char* at_d; } Product;

static int (*launch)(void* stream, void (*function)(void*), void* data);
static int live, failing;

API void stub_cublas(void* launch_host_function) { launch = launch_host_function; }
API int stub_cublas_live(void) { return live; }
API void stub_cublas_fail(int code) { failing = code; }

API int cublasLtCreate(void** handle) { return *handle = &live, 0; }
API int cublasLtMatmulDescCreate(Description** made, int compute, int scale) {
  if (failing) return failing;
  *made = calloc(1, sizeof **made), (*made)->compute = compute, (*made)->scale = scale, ++live;
  return (*made)->epilogue = 1, 0;
}
API int cublasLtMatmulDescSetAttribute(Description* d, int attribute, const void* value, size_t bytes) {
  void* fields[] = {[3] = &d->transpose_a, [4] = &d->transpose_b, [7] = &d->epilogue, [8] = &d->bias};
  if (attribute < 3 || attribute > 8 || !fields[attribute] || bytes != (attribute == 8 ? 8 : 4)) return 7;
  return memcpy(fields[attribute], value, bytes), 0;
}
API int cublasLtMatmulDescDestroy(Description* d) { return --live, free(d), 0; }
API int cublasLtMatrixLayoutCreate(Layout** made, int type, uint64_t rows, uint64_t columns, int64_t leading) {
  if (leading < (int64_t)rows) return 7;
  *made = calloc(1, sizeof **made), ++live;
  return **made = (Layout){type, 1, rows, columns, leading, 0}, 0;
}
API int cublasLtMatrixLayoutSetAttribute(Layout* l, int attribute, const void* value, size_t bytes) {
  void* fields[] = {[5] = &l->batches, [6] = &l->stride};
  if (attribute < 5 || attribute > 6 || bytes != (attribute == 5 ? 4 : 8)) return 7;
  return memcpy(fields[attribute], value, bytes), 0;
}
API int cublasLtMatrixLayoutDestroy(Layout* l) { return --live, free(l), 0; }

static double get(int type, const char* at, int64_t place) {
  if (type == 0) return ((const float*)at)[place];
  if (type == 1) return ((const double*)at)[place];
  if (type == 2) return ((const _Float16*)at)[place];
  uint32_t bits = (uint32_t)((const uint16_t*)at)[place] << 16;
  float value;
  return memcpy(&value, &bits, 4), value;
}
static void put(int type, char* at, int64_t place, double value) {
  if (type == 0) ((float*)at)[place] = value;
  else if (type == 1) ((double*)at)[place] = value;
  else if (type == 2) ((_Float16*)at)[place] = value;
  else {
    float rounded = value;
    uint32_t bits;
    memcpy(&bits, &rounded, 4);
    ((uint16_t*)at)[place] = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  }
}
static void compute(void* data) {
  Product* p = data;
  uint64_t inner = p->what.transpose_a ? p->a.rows : p->a.columns;
  for (int batch = 0; batch < p->d.batches; ++batch)
    for (uint64_t i = 0; i < p->d.rows; ++i)
      for (uint64_t j = 0; j < p->d.columns; ++j) {
        double sum = 0;
        for (uint64_t k = 0; k < inner; ++k)
          sum += get(p->a.type, p->at_a, batch * p->a.stride + (p->what.transpose_a ? k + i * p->a.leading : i + k * p->a.leading)) *
                 get(p->b.type, p->at_b, batch * p->b.stride + (p->what.transpose_b ? j + k * p->b.leading : k + j * p->b.leading));
        int epilogue = p->what.epilogue;
        if (epilogue & 4) sum += get(p->d.type, p->what.bias, i);
        if (epilogue & 2) sum = sum > 0 ? sum : 0;
        if (epilogue & 32) sum *= 0.5 * (1 + tanh(0.7978845608028654 * (sum + 0.044715 * sum * sum * sum)));
        put(p->d.type, p->at_d, batch * p->d.stride + i + j * p->d.leading, sum);
      }
  free(p);
}
API int cublasLtMatmul(void* handle, Description* what, const void* alpha, const void* at_a, Layout* a, const void* at_b,
                       Layout* b, const void* beta, const void* at_c, Layout* c, void* at_d, Layout* d, const void* algorithm,
                       void* workspace, size_t bytes, void* stream) {
  uint64_t inner = what->transpose_a ? a->rows : a->columns, rows = what->transpose_a ? a->columns : a->rows;
  if (rows != d->rows || inner != (what->transpose_b ? b->columns : b->rows) || handle != &live) return 7;
  if (a->type != b->type || what->compute != (a->type == 1 ? 70 : 68)) return 15;
  double one = what->scale == 1 ? *(double*)alpha : *(float*)alpha, zero = what->scale == 1 ? *(double*)beta : *(float*)beta;
  if (one != 1 || zero != 0) return 7;
  Product* p = malloc(sizeof *p);
  *p = (Product){*what, *a, *b, *d, at_a, at_b, at_d};
  return launch(stream, compute, p) ? 14 : 0;
}
