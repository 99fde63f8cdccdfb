; How work is given to a Vulkan device: commands are recorded into a buffer, which is submitted when it has 16 of them or
; when somebody waits. A barrier follows each, so all work of a queue runs in order.
;
;   struct Queue {
;     int32_t lock;                  //   0
;     int32_t recorded;              //   4: commands in the open buffer; 0: none is open
;     int64_t submitted;             //   8: the value of the timeline once all that was submitted is done
;     VkDevice device;               //  16
;     VkQueue queue;                 //  24
;     VkCommandBuffer commands[4];   //  32: used in turn, `submitted % 4` next
;     int64_t values[4];             //  64: the timeline's value once a buffer's commands are done
;     VkSemaphore timeline;          //  96
;     int64_t value;                 // 104: what `submit` has the timeline get
;     VkCommandBufferBeginInfo* begin;   // 112
;     VkSubmitInfo* submit;          // 120
;     VkMemoryBarrier* barrier;      // 128
;     vkBeginCommandBuffer* ...;     // 136, then 8 bytes each: vkEndCommandBuffer, vkQueueSubmit, vkWaitSemaphores,
;                                    //      vkCmdPipelineBarrier, vkCmdBindPipeline, vkCmdPushConstants,
;                                    //      vkCmdDispatch, vkCmdCopyBuffer, vkCmdUpdateBuffer, vkCmdWriteTimestamp
;     VkBuffer arguments;            // 224: where arguments lie that are too many for push constants
;     int64_t address;               // 232: of that buffer
;   };
;
;   struct Launch {
;     int32_t (*run)(Launch*, Value*, Value*);   // oneir_vulkan_launch
;     Queue* queue;                  //  8
;     VkPipeline pipeline;           // 16
;     VkPipelineLayout layout;       // 24
;     const uint8_t* kinds;          // 32: a byte for each argument: 0 a pointer, 1 a float32, 2 anything else
;     int32_t arguments;             // 40
;     int32_t in_memory;             // 44: whether the arguments are passed in memory
;     int32_t extents[6];            // 48: where in the values the grid and the block are; -1 for 1
;     uint32_t grid[3];              // 72: the most blocks
;   };
;
; Results are those of Vulkan, or 1 for a grid over the limits. A pointer has bit 60 set, which no address has: so what the
; runtime takes for the device's memory is never an address of the host.

%Value = type { i32, i32, i64 }

@failed = internal constant [27 x i8] c"oneir.runtime.raise_launch\00"

declare i32 @oneir_call_packed(ptr, ptr, i32, ptr)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1 immarg)

; while (!compare_and_swap(&queue->lock, 0, 1));
define internal void @lock(ptr %queue) {
  br label %try
try:
  %pair = cmpxchg weak ptr %queue, i32 0, i32 1 acquire monotonic
  %taken = extractvalue { i32, i1 } %pair, 1
  br i1 %taken, label %leave, label %try
leave:
  ret void
}

define internal void @unlock(ptr %queue) {
  store atomic i32 0, ptr %queue release, align 4
  ret void
}

define internal ptr @pointer(ptr %queue, i64 %offset) {
  %at = getelementptr i8, ptr %queue, i64 %offset
  %value = load ptr, ptr %at, align 8
  ret ptr %value
}

; The place of the buffer that is open, or is the next one.
define internal i64 @slot(ptr %queue) {
  %at = getelementptr i8, ptr %queue, i64 8
  %submitted = load i64, ptr %at, align 8
  %slot = and i64 %submitted, 3
  ret i64 %slot
}

define internal ptr @commands(ptr %queue) {
  %slot = call i64 @slot(ptr %queue)
  %base = getelementptr i8, ptr %queue, i64 32
  %at = getelementptr ptr, ptr %base, i64 %slot
  %commands = load ptr, ptr %at, align 8
  ret ptr %commands
}

; VkSemaphoreWaitInfo info = {type, NULL, 0, 1, &queue->timeline, &value};
; return vkWaitSemaphores(queue->device, &info, UINT64_MAX);
define internal i32 @await(ptr %queue, i64 %value) {
  %info = alloca [40 x i8], align 8
  %wanted = alloca i64, align 8
  store i64 %value, ptr %wanted, align 8
  call void @llvm.memset.p0.i64(ptr %info, i8 0, i64 40, i1 false)
  store i32 1000207004, ptr %info, align 8
  %count.at = getelementptr i8, ptr %info, i64 20
  store i32 1, ptr %count.at, align 4
  %timeline = getelementptr i8, ptr %queue, i64 96
  %semaphores.at = getelementptr i8, ptr %info, i64 24
  store ptr %timeline, ptr %semaphores.at, align 8
  %values.at = getelementptr i8, ptr %info, i64 32
  store ptr %wanted, ptr %values.at, align 8
  %device = call ptr @pointer(ptr %queue, i64 16)
  %wait = call ptr @pointer(ptr %queue, i64 160)
  %code = call i32 %wait(ptr %device, ptr %info, i64 -1)
  ret i32 %code
}

; if (queue->recorded) return 0;
; if (queue->values[slot] && (code = await(queue, queue->values[slot]))) return code;
; return vkBeginCommandBuffer(commands, queue->begin);
define internal i32 @open(ptr %queue) {
  %recorded.at = getelementptr i8, ptr %queue, i64 4
  %recorded = load i32, ptr %recorded.at, align 4
  %is.open = icmp ne i32 %recorded, 0
  br i1 %is.open, label %leave, label %look
leave:
  ret i32 0
look:
  %slot = call i64 @slot(ptr %queue)
  %base = getelementptr i8, ptr %queue, i64 64
  %at = getelementptr i64, ptr %base, i64 %slot
  %value = load i64, ptr %at, align 8
  %is.new = icmp eq i64 %value, 0
  br i1 %is.new, label %begin, label %wait
wait:
  %waited = call i32 @await(ptr %queue, i64 %value)
  %done = icmp eq i32 %waited, 0
  br i1 %done, label %begin, label %fail
fail:
  ret i32 %waited
begin:
  %commands = call ptr @commands(ptr %queue)
  %function = call ptr @pointer(ptr %queue, i64 136)
  %info = call ptr @pointer(ptr %queue, i64 112)
  %code = call i32 %function(ptr %commands, ptr %info)
  ret i32 %code
}

; Orders all before it: vkCmdPipelineBarrier(commands, kernels and copies, these and the host, 0, 1, queue->barrier, ...)
define internal void @order(ptr %queue, ptr %commands) {
  %function = call ptr @pointer(ptr %queue, i64 168)
  %barrier = call ptr @pointer(ptr %queue, i64 128)
  call void %function(ptr %commands, i32 6144, i32 22528, i32 0, i32 1, ptr %barrier, i32 0, ptr null, i32 0, ptr null)
  ret void
}

; order(queue, commands); return ++queue->recorded == 16 ? submit(queue) : 0;
define internal i32 @close(ptr %queue, ptr %commands) {
  call void @order(ptr %queue, ptr %commands)
  %recorded.at = getelementptr i8, ptr %queue, i64 4
  %recorded = load i32, ptr %recorded.at, align 4
  %more = add i32 %recorded, 1
  store i32 %more, ptr %recorded.at, align 4
  %full = icmp eq i32 %more, 16
  br i1 %full, label %flush, label %leave
flush:
  %code = call i32 @submit(ptr %queue)
  ret i32 %code
leave:
  ret i32 0
}

; if (!queue->recorded) return 0;
; queue->recorded = 0;
; if (code = vkEndCommandBuffer(commands)) return code;
; queue->value = queue->submitted + 1; queue->submit->pCommandBuffers = &queue->commands[slot];
; if (code = vkQueueSubmit(queue->queue, 1, queue->submit, NULL)) return code;
; queue->values[slot] = ++queue->submitted; return 0;
define internal i32 @submit(ptr %queue) {
  %recorded.at = getelementptr i8, ptr %queue, i64 4
  %recorded = load i32, ptr %recorded.at, align 4
  %nothing = icmp eq i32 %recorded, 0
  br i1 %nothing, label %leave, label %end
leave:
  ret i32 0
end:
  store i32 0, ptr %recorded.at, align 4
  %slot = call i64 @slot(ptr %queue)
  %commands = call ptr @commands(ptr %queue)
  %end.function = call ptr @pointer(ptr %queue, i64 144)
  %ended = call i32 %end.function(ptr %commands)
  %end.good = icmp eq i32 %ended, 0
  br i1 %end.good, label %give, label %fail
give:
  %submitted.at = getelementptr i8, ptr %queue, i64 8
  %submitted = load i64, ptr %submitted.at, align 8
  %next = add i64 %submitted, 1
  %value.at = getelementptr i8, ptr %queue, i64 104
  store i64 %next, ptr %value.at, align 8
  %info = call ptr @pointer(ptr %queue, i64 120)
  %base = getelementptr i8, ptr %queue, i64 32
  %buffer.at = getelementptr ptr, ptr %base, i64 %slot
  %info.at = getelementptr i8, ptr %info, i64 48
  store ptr %buffer.at, ptr %info.at, align 8
  %vulkan.queue = call ptr @pointer(ptr %queue, i64 24)
  %function = call ptr @pointer(ptr %queue, i64 152)
  %given = call i32 %function(ptr %vulkan.queue, i32 1, ptr %info, ptr null)
  %give.good = icmp eq i32 %given, 0
  br i1 %give.good, label %note, label %fail
note:
  %values = getelementptr i8, ptr %queue, i64 64
  %at = getelementptr i64, ptr %values, i64 %slot
  store i64 %next, ptr %at, align 8
  store i64 %next, ptr %submitted.at, align 8
  ret i32 0
fail:
  %code = phi i32 [%ended, %end], [%given, %give]
  ret i32 %code
}

; int32_t oneir_vulkan_wait(Queue* queue)    until all that was recorded is done
define i32 @oneir_vulkan_wait(ptr %queue) {
  call void @lock(ptr %queue)
  %code = call i32 @submit(ptr %queue)
  %at = getelementptr i8, ptr %queue, i64 8
  %value = load i64, ptr %at, align 8
  call void @unlock(ptr %queue)
  %good = icmp eq i32 %code, 0
  br i1 %good, label %wait, label %fail
wait:
  %waited = call i32 @await(ptr %queue, i64 %value)
  ret i32 %waited
fail:
  ret i32 %code
}

; int32_t oneir_vulkan_copy(Queue* queue, VkBuffer source, VkBuffer target, VkBufferCopy* region)
define i32 @oneir_vulkan_copy(ptr %queue, i64 %source, i64 %target, ptr %region) {
  call void @lock(ptr %queue)
  %opened = call i32 @open(ptr %queue)
  %good = icmp eq i32 %opened, 0
  br i1 %good, label %record, label %leave
record:
  %commands = call ptr @commands(ptr %queue)
  %function = call ptr @pointer(ptr %queue, i64 200)
  call void %function(ptr %commands, i64 %source, i64 %target, i32 1, ptr %region)
  %closed = call i32 @close(ptr %queue, ptr %commands)
  br label %leave
leave:
  %code = phi i32 [%opened, %0], [%closed, %record]
  call void @unlock(ptr %queue)
  ret i32 %code
}

; int32_t oneir_vulkan_timestamp(Queue* queue, VkQueryPool pool, uint32_t query)    when all before it is done
define i32 @oneir_vulkan_timestamp(ptr %queue, i64 %pool, i32 %query) {
  call void @lock(ptr %queue)
  %opened = call i32 @open(ptr %queue)
  %good = icmp eq i32 %opened, 0
  br i1 %good, label %record, label %leave
record:
  %commands = call ptr @commands(ptr %queue)
  %function = call ptr @pointer(ptr %queue, i64 216)
  call void %function(ptr %commands, i32 8192, i64 %pool, i32 %query)
  %closed = call i32 @close(ptr %queue, ptr %commands)
  br label %leave
leave:
  %code = phi i32 [%opened, %0], [%closed, %record]
  call void @unlock(ptr %queue)
  ret i32 %code
}

; int64_t extent(Launch* launch, Value* values, int axis) {
;   int place = launch->extents[axis];
;   return place < 0 ? 1 : values[place].integer;
; }
define internal i64 @extent(ptr %launch, ptr %values, i64 %axis) {
  %base = getelementptr i8, ptr %launch, i64 48
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

define i32 @oneir_vulkan_launch(ptr %launch, ptr %values, ptr %result) {
; int64_t grid[3]; for (axis = 0; axis < 3; ++axis) grid[axis] = extent(launch, values, axis);
begin:
  %grid = alloca [3 x i64], align 8
  %count.at = getelementptr i8, ptr %launch, i64 40
  %count = load i32, ptr %count.at, align 4
  %data = alloca i64, i32 %count, align 8
  %limits = getelementptr i8, ptr %launch, i64 72
  br label %sizes
sizes:
  %axis = phi i64 [0, %begin], [%next.axis, %sizes]
  %empty = phi i1 [false, %begin], [%next.empty, %sizes]
  %over = phi i1 [false, %begin], [%next.over, %sizes]
  %blocks = call i64 @extent(ptr %launch, ptr %values, i64 %axis)
  %grid.at = getelementptr i64, ptr %grid, i64 %axis
  store i64 %blocks, ptr %grid.at, align 8
  %limit.at = getelementptr i32, ptr %limits, i64 %axis
  %limit.short = load i32, ptr %limit.at, align 4
  %limit = zext i32 %limit.short to i64
  %is.over = icmp ugt i64 %blocks, %limit
  %is.empty = icmp eq i64 %blocks, 0
  %next.over = or i1 %over, %is.over
  %next.empty = or i1 %empty, %is.empty
  %next.axis = add i64 %axis, 1
  %more = icmp ult i64 %next.axis, 3
  br i1 %more, label %sizes, label %sized

; if (grid is empty) return 0;  if (grid is over the limits) { code = 1; goto refused; }
sized:
  br i1 %next.empty, label %nothing, label %check
nothing:
  ret i32 0
check:
  br i1 %next.over, label %refused, label %arguments

; for (i = 0; i != launch->arguments; ++i) data[i] = the argument in 8 bytes;
arguments:
  %kinds = call ptr @pointer(ptr %launch, i64 32)
  br label %test
test:
  %i = phi i32 [0, %arguments], [%next, %put]
  %left = icmp ult i32 %i, %count
  br i1 %left, label %argument, label %record
argument:
  %index = zext i32 %i to i64
  %payload = getelementptr %Value, ptr %values, i64 %index, i32 2
  %bits = load i64, ptr %payload, align 8
  %kind.at = getelementptr i8, ptr %kinds, i64 %index
  %kind = load i8, ptr %kind.at, align 1
  switch i8 %kind, label %put [ i8 0, label %address
                                i8 1, label %float ]
address: ; without bit 60
  %plain = and i64 %bits, -1152921504606846977
  br label %put
float:
  %double = bitcast i64 %bits to double
  %single = fptrunc double %double to float
  %short = bitcast float %single to i32
  %wide = zext i32 %short to i64
  br label %put
put:
  %word = phi i64 [%bits, %argument], [%plain, %address], [%wide, %float]
  %data.at = getelementptr i64, ptr %data, i64 %index
  store i64 %word, ptr %data.at, align 8
  %next = add i32 %i, 1
  br label %test

; lock(queue); if (code = open(queue)) goto unlock;
record:
  %queue = call ptr @pointer(ptr %launch, i64 8)
  call void @lock(ptr %queue)
  %opened = call i32 @open(ptr %queue)
  %open.good = icmp eq i32 %opened, 0
  br i1 %open.good, label %bind, label %end

; vkCmdBindPipeline(commands, COMPUTE, launch->pipeline);
bind:
  %commands = call ptr @commands(ptr %queue)
  %bind.function = call ptr @pointer(ptr %queue, i64 176)
  %pipeline.at = getelementptr i8, ptr %launch, i64 16
  %pipeline = load i64, ptr %pipeline.at, align 8
  call void %bind.function(ptr %commands, i32 1, i64 %pipeline)
  %layout.at = getelementptr i8, ptr %launch, i64 24
  %layout = load i64, ptr %layout.at, align 8
  %push = call ptr @pointer(ptr %queue, i64 184)
  %nbytes = mul i32 %count, 8
  %none = icmp eq i32 %count, 0
  br i1 %none, label %dispatch, label %pass
pass:
  %in.memory.at = getelementptr i8, ptr %launch, i64 44
  %in.memory = load i32, ptr %in.memory.at, align 4
  %pushed = icmp eq i32 %in.memory, 0
  br i1 %pushed, label %push.all, label %push.address

; vkCmdPushConstants(commands, launch->layout, COMPUTE, 0, 8 * launch->arguments, data);
push.all:
  call void %push(ptr %commands, i64 %layout, i32 32, i32 0, i32 %nbytes, ptr %data)
  br label %dispatch

; vkCmdUpdateBuffer(commands, queue->arguments, 0, 8 * launch->arguments, data); order(queue, commands);
; vkCmdPushConstants(commands, launch->layout, COMPUTE, 0, 8, &queue->address);
push.address:
  %update = call ptr @pointer(ptr %queue, i64 208)
  %buffer.at = getelementptr i8, ptr %queue, i64 224
  %buffer = load i64, ptr %buffer.at, align 8
  %size = zext i32 %nbytes to i64
  call void %update(ptr %commands, i64 %buffer, i64 0, i64 %size, ptr %data)
  call void @order(ptr %queue, ptr %commands)
  %address.at = getelementptr i8, ptr %queue, i64 232
  call void %push(ptr %commands, i64 %layout, i32 32, i32 0, i32 8, ptr %address.at)
  br label %dispatch

; vkCmdDispatch(commands, grid[0], grid[1], grid[2]); code = close(queue, commands);
dispatch:
  %x.wide = load i64, ptr %grid, align 8
  %y.at = getelementptr i64, ptr %grid, i64 1
  %y.wide = load i64, ptr %y.at, align 8
  %z.at = getelementptr i64, ptr %grid, i64 2
  %z.wide = load i64, ptr %z.at, align 8
  %x = trunc i64 %x.wide to i32
  %y = trunc i64 %y.wide to i32
  %z = trunc i64 %z.wide to i32
  %dispatch.function = call ptr @pointer(ptr %queue, i64 192)
  call void %dispatch.function(ptr %commands, i32 %x, i32 %y, i32 %z)
  %closed = call i32 @close(ptr %queue, ptr %commands)
  br label %end

; unlock(queue); if (!code) return 0;
end:
  %code = phi i32 [%opened, %record], [%closed, %dispatch]
  call void @unlock(ptr %queue)
  %fine = icmp eq i32 %code, 0
  br i1 %fine, label %nothing, label %refused, !prof !0

; Value arguments[9] = {launch, code, grid, block, 0}; Python raises what the code means.
refused:
  %why = phi i32 [1, %check], [%code, %end]
  %told = alloca [9 x %Value], align 8
  call void @llvm.memset.p0.i64(ptr %told, i8 0, i64 144, i1 false)
  store i32 4, ptr %told, align 8
  %first = getelementptr i8, ptr %told, i64 8
  store ptr %launch, ptr %first, align 8
  %why.wide = sext i32 %why to i64
  call void @integer(ptr %told, i64 1, i64 %why.wide)
  br label %fill
fill:
  %axis2 = phi i64 [0, %refused], [%axis3, %fill]
  %from = call i64 @extent(ptr %launch, ptr %values, i64 %axis2)
  %to = add i64 %axis2, 2
  call void @integer(ptr %told, i64 %to, i64 %from)
  %axis3 = add i64 %axis2, 1
  %again = icmp ult i64 %axis3, 6
  br i1 %again, label %fill, label %tell
tell:
  call void @integer(ptr %told, i64 8, i64 0)
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

!0 = !{!"branch_weights", i32 2000, i32 1}
