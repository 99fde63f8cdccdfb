; How a kernel is launched on an OpenCL device.
;
;   struct Launch {
;     int32_t (*run)(Launch*, Value*, Value*);   // oneir_opencl_launch
;     cl_kernel kernel;                          //  8
;     cl_command_queue queue;                    // 16: the device's default one
;     clSetKernelArg* set_argument;              // 24
;     clSetKernelArgSVMPointer* set_pointer;     // 32
;     clEnqueueNDRangeKernel* enqueue;           // 40
;     const uint8_t* kinds;                      // 48: a byte for each argument: 0 a pointer, 4 + 64 a float32,
;                                                //     else the bytes of an integer or a float64
;     int32_t arguments;                         // 56
;     int32_t lock;                              // 60: a kernel's arguments are one thread's at a time
;     int32_t extents[6];                        // 64: where in the values the grid and the block are; -1 for 1
;     int32_t device;                            // 88
;   };

%Value = type { i32, i32, i64 }

@failed = internal constant [27 x i8] c"oneir.runtime.raise_launch\00"

declare i32 @oneir_call_packed(ptr, ptr, i32, ptr)
declare ptr @oneir_current_stream(i32, i32)

; int64_t extent(Launch* launch, Value* values, int axis) {
;   int place = launch->extents[axis];
;   return place < 0 ? 1 : values[place].integer;
; }
define internal i64 @extent(ptr %launch, ptr %values, i64 %axis) {
  %base = getelementptr i8, ptr %launch, i64 64
  %at = getelementptr i32, ptr %base, i64 %axis
  %place = load i32, ptr %at, align 4
  %none = icmp slt i32 %place, 0
  br i1 %none, label %one, label %given
one:
  ret i64 1
given:
  %index = zext i32 %place to i64
  %value = getelementptr %Value, ptr %values, i64 %index, i32 2
  %extent = load i64, ptr %value, align 8
  ret i64 %extent
}

define i32 @oneir_opencl_launch(ptr %launch, ptr %values, ptr %result) {
; size_t global[3], local[3];
; for (axis = 0; axis < 3; ++axis) { local[axis] = extent(3 + axis); global[axis] = extent(axis) * local[axis]; }
begin:
  %global = alloca [3 x i64], align 8
  %local = alloca [3 x i64], align 8
  %short = alloca float, align 4
  br label %sizes
sizes:
  %axis = phi i64 [0, %begin], [%next.axis, %sizes]
  %volume = phi i64 [1, %begin], [%next.volume, %sizes]
  %blocks = call i64 @extent(ptr %launch, ptr %values, i64 %axis)
  %thread.axis = add i64 %axis, 3
  %threads = call i64 @extent(ptr %launch, ptr %values, i64 %thread.axis)
  %all = mul i64 %blocks, %threads
  %global.at = getelementptr i64, ptr %global, i64 %axis
  store i64 %all, ptr %global.at, align 8
  %local.at = getelementptr i64, ptr %local, i64 %axis
  store i64 %threads, ptr %local.at, align 8
  %next.volume = mul i64 %volume, %all
  %next.axis = add i64 %axis, 1
  %more = icmp ult i64 %next.axis, 3
  br i1 %more, label %sizes, label %launching

; if (global[0] * global[1] * global[2] == 0) return 0;  // an empty tensor: nothing to do
launching:
  %empty = icmp eq i64 %next.volume, 0
  br i1 %empty, label %nothing, label %take
nothing:
  ret i32 0

; while (!compare_and_swap(&launch->lock, 0, 1));
take:
  %lock = getelementptr i8, ptr %launch, i64 60
  %swap = cmpxchg weak ptr %lock, i32 0, i32 1 acquire monotonic
  %taken = extractvalue { i32, i1 } %swap, 1
  br i1 %taken, label %locked, label %take
locked:
  %kernel.at = getelementptr i8, ptr %launch, i64 8
  %kernel = load ptr, ptr %kernel.at, align 8
  %queue.at = getelementptr i8, ptr %launch, i64 16
  %default = load ptr, ptr %queue.at, align 8
  %device.at = getelementptr i8, ptr %launch, i64 88
  %device = load i32, ptr %device.at, align 4
  %stream = call ptr @oneir_current_stream(i32 4, i32 %device)
  %chosen = icmp ne ptr %stream, null
  %queue = select i1 %chosen, ptr %stream, ptr %default
  %set.at = getelementptr i8, ptr %launch, i64 24
  %set = load ptr, ptr %set.at, align 8
  %pointer.at = getelementptr i8, ptr %launch, i64 32
  %set.pointer = load ptr, ptr %pointer.at, align 8
  %enqueue.at = getelementptr i8, ptr %launch, i64 40
  %enqueue = load ptr, ptr %enqueue.at, align 8
  %kinds.at = getelementptr i8, ptr %launch, i64 48
  %kinds = load ptr, ptr %kinds.at, align 8
  %count.at = getelementptr i8, ptr %launch, i64 56
  %count = load i32, ptr %count.at, align 4
  br label %test

; for (i = 0; i < arguments; ++i) set(kernel, i, values[i]);
test:
  %i = phi i32 [0, %locked], [%next, %counted]
  %go = icmp slt i32 %i, %count
  br i1 %go, label %argument, label %run
argument:
  %index = zext i32 %i to i64
  %payload = getelementptr %Value, ptr %values, i64 %index, i32 2
  %kind.at = getelementptr i8, ptr %kinds, i64 %index
  %kind = load i8, ptr %kind.at, align 1
  switch i8 %kind, label %number [ i8 0, label %pointer
                                   i8 68, label %float ]
pointer: ; clSetKernelArgSVMPointer(kernel, i, value.pointer)
  %address = load ptr, ptr %payload, align 8
  %code.pointer = call i32 %set.pointer(ptr %kernel, i32 %i, ptr %address)
  br label %checked
float: ; float short = value.real; clSetKernelArg(kernel, i, 4, &short)
  %double = load double, ptr %payload, align 8
  %narrow = fptrunc double %double to float
  store float %narrow, ptr %short, align 4
  %code.float = call i32 %set(ptr %kernel, i32 %i, i64 4, ptr %short)
  br label %checked
number: ; clSetKernelArg(kernel, i, bytes, &value.integer): the low bytes come first
  %bytes = zext i8 %kind to i64
  %code.number = call i32 %set(ptr %kernel, i32 %i, i64 %bytes, ptr %payload)
  br label %checked
checked:
  %code = phi i32 [%code.pointer, %pointer], [%code.float, %float], [%code.number, %number]
  %good = icmp eq i32 %code, 0
  br i1 %good, label %counted, label %unlock
counted:
  %next = add i32 %i, 1
  br label %test

; clEnqueueNDRangeKernel(queue, kernel, 3, NULL, global, local, 0, NULL, NULL)
run:
  %ran = call i32 %enqueue(ptr %queue, ptr %kernel, i32 3, ptr null, ptr %global, ptr %local, i32 0, ptr null, ptr null)
  br label %unlock

; launch->lock = 0; if (!code) return 0;
unlock:
  %end = phi i32 [%code, %checked], [%ran, %run]
  store atomic i32 0, ptr %lock release, align 4
  %fine = icmp eq i32 %end, 0
  br i1 %fine, label %nothing, label %refused, !prof !0

; Value arguments[9] = {launch, code, grid, block, 0}; Python raises what the code means.
refused:
  %arguments = alloca [9 x %Value], align 8
  call void @llvm.memset.p0.i64(ptr %arguments, i8 0, i64 144, i1 false)
  store i32 4, ptr %arguments, align 8
  %first = getelementptr i8, ptr %arguments, i64 8
  store ptr %launch, ptr %first, align 8
  %wide = sext i32 %end to i64
  call void @integer(ptr %arguments, i64 1, i64 %wide)
  br label %fill
fill:
  %axis2 = phi i64 [0, %refused], [%axis3, %fill]
  %from = call i64 @extent(ptr %launch, ptr %values, i64 %axis2)
  %to = add i64 %axis2, 2
  call void @integer(ptr %arguments, i64 %to, i64 %from)
  %axis3 = add i64 %axis2, 1
  %again = icmp ult i64 %axis3, 6
  br i1 %again, label %fill, label %tell
tell:
  call void @integer(ptr %arguments, i64 8, i64 0)
  %raised = call i32 @oneir_call_packed(ptr @failed, ptr %arguments, i32 9, ptr %result)
  ret i32 %raised
}

; values[place] = {INT, 0, number}
define internal void @integer(ptr %values, i64 %place, i64 %number) {
  %code = getelementptr %Value, ptr %values, i64 %place, i32 0
  store i32 1, ptr %code, align 8
  %payload = getelementptr %Value, ptr %values, i64 %place, i32 2
  store i64 %number, ptr %payload, align 8
  ret void
}

declare void @llvm.memset.p0.i64(ptr, i8, i64, i1 immarg)

!0 = !{!"branch_weights", i32 2000, i32 1}
