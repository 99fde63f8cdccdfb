// TVM_FFI_DLL_EXPORT_TYPED_FUNC(name, function): a C++ function that programs call, by the packed convention.
//
// Its parameters are tensors (DLTensor*), numbers, bools, texts (const char*) and pointers (void*); it returns a number
// or nothing. `__oneir_<name>` is the function, `__oneir_params_<name>` writes a letter for each of its parameters.
#pragma once

#include <dlpack/dlpack.h>

#include <cstdint>
#include <type_traits>
#include <utility>

namespace oneir {

struct Value {
  int32_t code;
  int32_t flags;
  union {
    int64_t i;
    double f;
    void* p;
  };
};

struct Failure {
  const char* kind;
  const char* message;
};

enum Code : int32_t { kNone = 0, kInt = 1, kBool = 2, kFloat = 3, kPointer = 4, kTensor = 7, kText = 8, kFailure = 64 };

template <typename T, typename = void>
struct Argument;

template <>
struct Argument<DLTensor*> {
  static constexpr char kind = 't';
  static bool fits(const Value& value) { return value.code == kTensor; }
  static DLTensor* get(const Value& value) { return static_cast<DLTensor*>(value.p); }
};

template <>
struct Argument<const char*> {
  static constexpr char kind = 'p';
  static bool fits(const Value& value) { return value.code == kText; }
  static const char* get(const Value& value) { return static_cast<const char*>(value.p); }
};

template <>
struct Argument<void*> {
  static constexpr char kind = 'p';
  static bool fits(const Value& value) { return value.code == kPointer || value.code == kNone; }
  static void* get(const Value& value) { return value.code == kNone ? nullptr : value.p; }
};

template <typename T>
struct Argument<T, std::enable_if_t<std::is_integral_v<T>>> {
  static constexpr char kind = std::is_same_v<T, bool> ? 'b' : 'i';
  static bool fits(const Value& value) { return value.code == kInt || value.code == kBool; }
  static T get(const Value& value) { return static_cast<T>(value.i); }
};

template <typename T>
struct Argument<T, std::enable_if_t<std::is_floating_point_v<T>>> {
  static constexpr char kind = 'f';
  static bool fits(const Value& value) { return value.code == kFloat || value.code == kInt; }
  static T get(const Value& value) { return static_cast<T>(value.code == kInt ? double(value.i) : value.f); }
};

template <typename F>
struct Exported;

template <typename R, typename... A>
struct Exported<R (*)(A...)> {
  static void describe(char* out) {
    const char kinds[] = {Argument<std::decay_t<A>>::kind..., '\0'};
    for (unsigned i = 0; i <= sizeof...(A); ++i) out[i] = kinds[i];
  }

  static int32_t call(R (*function)(A...), const Value* args, int32_t count, Value* result) {
    if (count != static_cast<int32_t>(sizeof...(A))) return refuse(result);
    return invoke(function, args, result, std::index_sequence_for<A...>{});
  }

 private:
  static int32_t refuse(Value* result) {
    static Failure failure = {"TypeError", "the arguments are not those of the function's C++ declaration"};
    result->code = kFailure;
    result->p = &failure;
    return -1;
  }

  template <std::size_t... I>
  static int32_t invoke(R (*function)(A...), const Value* args, Value* result, std::index_sequence<I...>) {
    if (!(Argument<std::decay_t<A>>::fits(args[I]) && ...)) return refuse(result);
    result->code = kNone;
    if constexpr (std::is_void_v<R>) {
      function(Argument<std::decay_t<A>>::get(args[I])...);
    } else {
      auto value = function(Argument<std::decay_t<A>>::get(args[I])...);
      if constexpr (std::is_floating_point_v<R>) {
        result->code = kFloat;
        result->f = value;
      } else {
        result->code = kInt;
        result->i = value;
      }
    }
    return 0;
  }
};

}  // namespace oneir

#define TVM_FFI_DLL_EXPORT_TYPED_FUNC(Name, Function)                                                               \
  extern "C" int32_t __oneir_##Name(void*, const oneir::Value* args, int32_t count, oneir::Value* result) {         \
    return oneir::Exported<decltype(+Function)>::call(+Function, args, count, result);                              \
  }                                                                                                                 \
  extern "C" void __oneir_params_##Name(char* out) { oneir::Exported<decltype(+Function)>::describe(out); }

#define TVM_DLL_EXPORT_TYPED_FUNC(Name, Function) TVM_FFI_DLL_EXPORT_TYPED_FUNC(Name, Function)
