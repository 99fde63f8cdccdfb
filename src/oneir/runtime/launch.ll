; How host code launches a kernel.
;
;   struct Kernel { Launch* launches[16]; ... }      the record in the program's data; see codegen/c_source/launch.py
;   struct Launch { int32_t (*run)(Launch*, Value* values, Value* result); ... }    what a driver's `prepare` makes
;
;   int32_t oneir_launch_kernel(Kernel* kernel, int32_t device, Value* values, int32_t count, Value* result)
;
; `values` are the kernel's arguments, then the extents of its threads. Returns 0, or an error that is in `*result`.

%Value = type { i32, i32, i64 }

@prepare = internal constant [29 x i8] c"oneir.runtime.prepare_kernel\00"

declare i32 @oneir_call_packed(ptr, ptr, i32, ptr)

define i32 @oneir_launch_kernel(ptr %kernel, i32 %device, ptr %values, i32 %count, ptr %result) {
; if ((uint32_t)device < 16 && kernel->launches[device]) goto known;
begin:
  %inside = icmp ult i32 %device, 16
  br i1 %inside, label %look, label %unknown
look:
  %index = zext i32 %device to i64
  %slot = getelementptr ptr, ptr %kernel, i64 %index
  %launch = load atomic ptr, ptr %slot acquire, align 8
  %missing = icmp eq ptr %launch, null
  br i1 %missing, label %unknown, label %known, !prof !0

; known: return launch->run(launch, values, result);
known:
  %run = load ptr, ptr %launch, align 8
  %code = tail call i32 %run(ptr %launch, ptr %values, ptr %result)
  ret i32 %code

; unknown: the first launch on the device. Python compiles the program and fills the slot, or raises.
;   Value arguments[2] = {kernel, device};
;   if (error = oneir_call_packed("oneir.runtime.prepare_kernel", arguments, 2, result)) return error;
unknown:
  %arguments = alloca [2 x %Value], align 8
  store i32 4, ptr %arguments, align 8
  %flags0 = getelementptr i8, ptr %arguments, i64 4
  store i32 0, ptr %flags0, align 4
  %address = getelementptr i8, ptr %arguments, i64 8
  store ptr %kernel, ptr %address, align 8
  %second = getelementptr i8, ptr %arguments, i64 16
  store i32 1, ptr %second, align 8
  %flags1 = getelementptr i8, ptr %arguments, i64 20
  store i32 0, ptr %flags1, align 4
  %number = getelementptr i8, ptr %arguments, i64 24
  %wide = sext i32 %device to i64
  store i64 %wide, ptr %number, align 8
  %failed = call i32 @oneir_call_packed(ptr @prepare, ptr %arguments, i32 2, ptr %result)
  %fine = icmp eq i32 %failed, 0
  br i1 %fine, label %again, label %leave

; again: launch = kernel->launches[device]; return launch->run(launch, values, result);
again:
  %index2 = zext i32 %device to i64
  %slot2 = getelementptr ptr, ptr %kernel, i64 %index2
  %launch2 = load atomic ptr, ptr %slot2 acquire, align 8
  %run2 = load ptr, ptr %launch2, align 8
  %code2 = call i32 %run2(ptr %launch2, ptr %values, ptr %result)
  ret i32 %code2
leave:
  ret i32 %failed
}

!0 = !{!"branch_weights", i32 1, i32 2000}
