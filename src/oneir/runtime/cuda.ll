; How a kernel is launched on a CUDA device.
;
;   struct Launch {
;     int32_t (*run)(Launch*, Value*, Value*);   // oneir_cuda_launch
;     CUfunction function;                       //   8
;     CUcontext context;                         //  16
;     cuLaunchKernel* launch;                    //  24
;     cuCtxGetCurrent* get_context;              //  32
;     cuCtxSetCurrent* set_context;              //  40
;     const int32_t* floats;                     //  48: which arguments are float32
;     int32_t arguments;                         //  56
;     int32_t float_count;                       //  60
;     int32_t places[7];                         //  64: where in the values the grid, the block and the bytes of dynamic
;                                                //      shared memory are; -1 for 1 (of an axis) and 0 (bytes)
;     int32_t limits[7];                         //  92: how large each may be
;     int32_t threads;                           // 120: how many threads a block may have
;     int32_t device_type, device;               // 124, 128
;     int32_t map_count;                         // 132
;     const int32_t* maps;                       // 136: which arguments are tensor maps; see tensor_map.py
;     cuTensorMapEncodeTiled* encode;            // 144
;     int32_t enters;                            // 152: whether to see to the context before the launch
;   };

%Value = type { i32, i32, i64 }

@ones = internal constant [3 x i32] [i32 1, i32 1, i32 1]
@failed = internal constant [27 x i8] c"oneir.runtime.raise_launch\00"

declare i32 @oneir_call_packed(ptr, ptr, i32, ptr)
declare ptr @oneir_current_stream(i32, i32)

; int64_t extent(Launch* launch, Value* values, int i) {
;   int place = launch->places[i];
;   return place < 0 ? i != 6 : values[place].integer;
; }
define internal i64 @extent(ptr %launch, ptr %values, i64 %i) alwaysinline {
  %at.offset = mul i64 %i, 4
  %offset = add i64 %at.offset, 64
  %at = getelementptr i8, ptr %launch, i64 %offset
  %place = load i32, ptr %at, align 4
  %none = icmp slt i32 %place, 0
  br i1 %none, label %absent, label %given
absent:
  %is.axis = icmp ne i64 %i, 6
  %one = zext i1 %is.axis to i64
  ret i64 %one
given:
  %index = zext i32 %place to i64
  %value = getelementptr %Value, ptr %values, i64 %index, i32 2
  %extent = load i64, ptr %value, align 8
  ret i64 %extent
}

; int over(Launch* launch, int i, int64_t extent) { return (uint64_t)extent > launch->limits[i]; }
define internal i1 @over(ptr %launch, i64 %i, i64 %extent) alwaysinline {
  %at.offset = mul i64 %i, 4
  %offset = add i64 %at.offset, 92
  %at = getelementptr i8, ptr %launch, i64 %offset
  %limit = load i32, ptr %at, align 4
  %wide = zext i32 %limit to i64
  %over = icmp ugt i64 %extent, %wide
  ret i1 %over
}

; int32_t oneir_cuda_launch(Launch* launch, Value* values, Value* result)
define i32 @oneir_cuda_launch(ptr %launch, ptr %values, ptr %result) {
; for (i = 0; i < 7; ++i) e[i] = extent(launch, values, i);
; if (e[0] * e[1] * e[2] * e[3] * e[4] * e[5] == 0) return 0;    // an empty tensor: nothing to do
begin:
  %e0 = call i64 @extent(ptr %launch, ptr %values, i64 0)
  %e1 = call i64 @extent(ptr %launch, ptr %values, i64 1)
  %e2 = call i64 @extent(ptr %launch, ptr %values, i64 2)
  %e3 = call i64 @extent(ptr %launch, ptr %values, i64 3)
  %e4 = call i64 @extent(ptr %launch, ptr %values, i64 4)
  %e5 = call i64 @extent(ptr %launch, ptr %values, i64 5)
  %e6 = call i64 @extent(ptr %launch, ptr %values, i64 6)
  %rows = mul i64 %e0, %e1
  %blocks = mul i64 %rows, %e2
  %plane = mul i64 %e3, %e4
  %threads = mul i64 %plane, %e5
  %volume = mul i64 %blocks, %threads
  %empty = icmp eq i64 %volume, 0
  br i1 %empty, label %maybe.nothing, label %check
; A product of six may be 0 by overflow.
maybe.nothing:
  %z0 = icmp eq i64 %e0, 0
  %z1 = icmp eq i64 %e1, 0
  %z2 = icmp eq i64 %e2, 0
  %z3 = icmp eq i64 %e3, 0
  %z4 = icmp eq i64 %e4, 0
  %z5 = icmp eq i64 %e5, 0
  %z01 = or i1 %z0, %z1
  %z23 = or i1 %z2, %z3
  %z45 = or i1 %z4, %z5
  %z0123 = or i1 %z01, %z23
  %zero = or i1 %z0123, %z45
  br i1 %zero, label %nothing, label %check
nothing:
  ret i32 0

; if (over(launch, i, e[i]) for any i || e[3] * e[4] * e[5] > launch->threads) { code = -1; goto refused; }
check:
  %o0 = call i1 @over(ptr %launch, i64 0, i64 %e0)
  %o1 = call i1 @over(ptr %launch, i64 1, i64 %e1)
  %o2 = call i1 @over(ptr %launch, i64 2, i64 %e2)
  %o3 = call i1 @over(ptr %launch, i64 3, i64 %e3)
  %o4 = call i1 @over(ptr %launch, i64 4, i64 %e4)
  %o5 = call i1 @over(ptr %launch, i64 5, i64 %e5)
  %o6 = call i1 @over(ptr %launch, i64 6, i64 %e6)
  %threads.at = getelementptr i8, ptr %launch, i64 120
  %most.threads = load i32, ptr %threads.at, align 4
  %most = zext i32 %most.threads to i64
  %o7 = icmp ugt i64 %threads, %most
  %o01 = or i1 %o0, %o1
  %o23 = or i1 %o2, %o3
  %o45 = or i1 %o4, %o5
  %o67 = or i1 %o6, %o7
  %o0123 = or i1 %o01, %o23
  %o4567 = or i1 %o45, %o67
  %over = or i1 %o0123, %o4567
  br i1 %over, label %refused, label %fits, !prof !1

; for (i = 0; i != float_count; ++i) { Value* v = &values[floats[i]]; v->narrow = (float)v->real; }
; The values are this launch's own: host code writes them anew for the next.
fits:
  %floats.at = getelementptr i8, ptr %launch, i64 48
  %floats = load ptr, ptr %floats.at, align 8
  %float.count.at = getelementptr i8, ptr %launch, i64 60
  %float.count = load i32, ptr %float.count.at, align 4
  br label %narrow
narrow:
  %f = phi i32 [ 0, %fits ], [ %f.next, %one.float ]
  %more.floats = icmp ult i32 %f, %float.count
  br i1 %more.floats, label %one.float, label %point
one.float:
  %f.wide = zext i32 %f to i64
  %which.at = getelementptr i32, ptr %floats, i64 %f.wide
  %which = load i32, ptr %which.at, align 4
  %which.wide = zext i32 %which to i64
  %real.at = getelementptr %Value, ptr %values, i64 %which.wide, i32 2
  %real = load double, ptr %real.at, align 8
  %short = fptrunc double %real to float
  store float %short, ptr %real.at, align 8
  %f.next = add i32 %f, 1
  br label %narrow

; void* arguments[launch->arguments] = {&values[0].payload, ...};    the low bytes of integers come first
point:
  %count.at = getelementptr i8, ptr %launch, i64 56
  %count = load i32, ptr %count.at, align 8
  %arguments = alloca ptr, i32 %count, align 16
  %wide.count = zext i32 %count to i64
  br label %fill
fill:
  %i = phi i64 [ 0, %point ], [ %i.next, %one.argument ]
  %more = icmp ult i64 %i, %wide.count
  br i1 %more, label %one.argument, label %describe
one.argument:
  %payload = getelementptr %Value, ptr %values, i64 %i, i32 2
  %slot = getelementptr ptr, ptr %arguments, i64 %i
  store ptr %payload, ptr %slot, align 8
  %i.next = add i64 %i, 1
  br label %fill

; char maps[map_count][128];
; for (i = 0; i != map_count; ++i) {
;   TensorMap* d = values[maps[i]].pointer;
;   uint32_t box[3] = {d->box[0], d->box[1], d->box[2]};
;   if (code = encode(maps[i], d->itemsize / 2, 3, d->address, d->extents, d->strides, box, {1, 1, 1}, 0, 3, 2, 0)) goto refused;
;   arguments[maps[i]] = maps[i];
; }
; The numbers are those of unsigned integers of 8, 16 or 32 bits, three dimensions, no interleaving, the permutation of
; 128 bytes, fetches of 128 bytes into the second-level cache, and zeros beyond the end.
describe:
  %map.count.at = getelementptr i8, ptr %launch, i64 132
  %map.count = load i32, ptr %map.count.at, align 4
  %maps.at = getelementptr i8, ptr %launch, i64 136
  %maps = load ptr, ptr %maps.at, align 8
  %encode.at = getelementptr i8, ptr %launch, i64 144
  %encode = load ptr, ptr %encode.at, align 8
  %made = alloca [128 x i8], i32 %map.count, align 64
  %box = alloca [3 x i32], align 4
  br label %each.map
each.map:
  %m = phi i32 [ 0, %describe ], [ %m.next, %store.map ]
  %more.maps = icmp ult i32 %m, %map.count
  br i1 %more.maps, label %one.map, label %go
one.map:
  %m.wide = zext i32 %m to i64
  %map.at = getelementptr i32, ptr %maps, i64 %m.wide
  %map.place = load i32, ptr %map.at, align 4
  %map.index = zext i32 %map.place to i64
  %described.at = getelementptr %Value, ptr %values, i64 %map.index, i32 2
  %described = load ptr, ptr %described.at, align 8
  %address = load ptr, ptr %described, align 8
  %itemsize.at = getelementptr i8, ptr %described, i64 8
  %itemsize = load i64, ptr %itemsize.at, align 8
  %half.size = lshr i64 %itemsize, 1
  %kind = trunc i64 %half.size to i32
  %dimensions = getelementptr i8, ptr %described, i64 16
  %strides = getelementptr i8, ptr %described, i64 40
  %box0.at = getelementptr i8, ptr %described, i64 56
  %box1.at = getelementptr i8, ptr %described, i64 64
  %box2.at = getelementptr i8, ptr %described, i64 72
  %box0 = load i32, ptr %box0.at, align 8
  %box1 = load i32, ptr %box1.at, align 8
  %box2 = load i32, ptr %box2.at, align 8
  %box1.to = getelementptr i32, ptr %box, i64 1
  %box2.to = getelementptr i32, ptr %box, i64 2
  store i32 %box0, ptr %box, align 4
  store i32 %box1, ptr %box1.to, align 4
  store i32 %box2, ptr %box2.to, align 4
  %map = getelementptr [128 x i8], ptr %made, i64 %m.wide
  %encoded = call i32 %encode(ptr %map, i32 %kind, i32 3, ptr %address, ptr %dimensions, ptr %strides, ptr %box,
                              ptr @ones, i32 0, i32 3, i32 2, i32 0)
  %is.made = icmp eq i32 %encoded, 0
  br i1 %is.made, label %store.map, label %refused, !prof !0
store.map:
  %map.slot = getelementptr ptr, ptr %arguments, i64 %map.index
  store ptr %map, ptr %map.slot, align 8
  %m.next = add i32 %m, 1
  br label %each.map

; stream = oneir_current_stream(device_type, device);
; code = 0;
; if (!launch->enters) code = cuLaunchKernel(function, e[0], ..., e[5], e[6], stream, arguments, NULL);
; if (!launch->enters && code == 0) return 0;
go:
  %type.at = getelementptr i8, ptr %launch, i64 124
  %type = load i32, ptr %type.at, align 4
  %device.at = getelementptr i8, ptr %launch, i64 128
  %device = load i32, ptr %device.at, align 8
  %stream = call ptr @oneir_current_stream(i32 %type, i32 %device)
  %function.at = getelementptr i8, ptr %launch, i64 8
  %function = load ptr, ptr %function.at, align 8
  %launch.at = getelementptr i8, ptr %launch, i64 24
  %cuLaunchKernel = load ptr, ptr %launch.at, align 8
  %n0 = trunc i64 %e0 to i32
  %n1 = trunc i64 %e1 to i32
  %n2 = trunc i64 %e2 to i32
  %n3 = trunc i64 %e3 to i32
  %n4 = trunc i64 %e4 to i32
  %n5 = trunc i64 %e5 to i32
  %n6 = trunc i64 %e6 to i32
  %enters.at = getelementptr i8, ptr %launch, i64 152
  %enters = load i32, ptr %enters.at, align 8
  %enters.first = icmp ne i32 %enters, 0
  br i1 %enters.first, label %look, label %first.try
first.try:
  %code = call i32 %cuLaunchKernel(ptr %function, i32 %n0, i32 %n1, i32 %n2, i32 %n3, i32 %n4, i32 %n5, i32 %n6,
                                   ptr %stream, ptr %arguments, ptr null)
  %fine = icmp eq i32 %code, 0
  br i1 %fine, label %nothing, label %look, !prof !0

; CUDA refuses a launch in a thread whose current context is none, or another device's, with one error or another.
; Looking at it before would cost every launch; HIP may launch on the other device, so there it must be.
; void* before = NULL; get_context(&before);
; if (before == context) { if (code || (code = the launch)) goto refused; return 0; }
look:
  %tried = phi i32 [ 0, %go ], [ %code, %first.try ]
  %before.at = alloca ptr, align 8
  store ptr null, ptr %before.at, align 8
  %get.at = getelementptr i8, ptr %launch, i64 32
  %get = load ptr, ptr %get.at, align 8
  %got = call i32 %get(ptr %before.at)
  %before = load ptr, ptr %before.at, align 8
  %context.at = getelementptr i8, ptr %launch, i64 16
  %context = load ptr, ptr %context.at, align 8
  %same = icmp eq ptr %before, %context
  br i1 %same, label %inside, label %again
inside:
  %refused.before = icmp ne i32 %tried, 0
  br i1 %refused.before, label %refused, label %first.inside
first.inside:
  %in.place = call i32 %cuLaunchKernel(ptr %function, i32 %n0, i32 %n1, i32 %n2, i32 %n3, i32 %n4, i32 %n5, i32 %n6,
                                       ptr %stream, ptr %arguments, ptr null)
  br label %done

; set_context(context); code = the same launch; if (before) set_context(before);
again:
  %set.at = getelementptr i8, ptr %launch, i64 40
  %set = load ptr, ptr %set.at, align 8
  %entered = call i32 %set(ptr %context)
  %second = call i32 %cuLaunchKernel(ptr %function, i32 %n0, i32 %n1, i32 %n2, i32 %n3, i32 %n4, i32 %n5, i32 %n6,
                                     ptr %stream, ptr %arguments, ptr null)
  %had.none = icmp eq ptr %before, null
  br i1 %had.none, label %done, label %restore
restore:
  %left = call i32 %set(ptr %before)
  br label %done
done:
  %last = phi i32 [ %in.place, %first.inside ], [ %second, %again ], [ %second, %restore ]
  %fine.now = icmp eq i32 %last, 0
  br i1 %fine.now, label %nothing, label %refused

; Value arguments[9] = {launch, code, e[0], ..., e[6]}; Python raises what the code means.
refused:
  %why = phi i32 [ -1, %check ], [ %encoded, %one.map ], [ %tried, %inside ], [ %last, %done ]
  %told = alloca [9 x %Value], align 8
  call void @llvm.memset.p0.i64(ptr %told, i8 0, i64 144, i1 false)
  store i32 4, ptr %told, align 8
  %first = getelementptr i8, ptr %told, i64 8
  store ptr %launch, ptr %first, align 8
  %why.wide = sext i32 %why to i64
  call void @integer(ptr %told, i64 1, i64 %why.wide)
  call void @integer(ptr %told, i64 2, i64 %e0)
  call void @integer(ptr %told, i64 3, i64 %e1)
  call void @integer(ptr %told, i64 4, i64 %e2)
  call void @integer(ptr %told, i64 5, i64 %e3)
  call void @integer(ptr %told, i64 6, i64 %e4)
  call void @integer(ptr %told, i64 7, i64 %e5)
  call void @integer(ptr %told, i64 8, i64 %e6)
  %raised = call i32 @oneir_call_packed(ptr @failed, ptr %told, i32 9, ptr %result)
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
!1 = !{!"branch_weights", i32 1, i32 2000}
