; Temporary memory of devices. What a device is given runs in that order, so memory that is given back here can be used
; by what is launched next. Eight blocks of at most 64 MiB are kept; Python makes and frees them, and all larger ones.
;
;   struct Block { int32_t state, device_type, device, unused; void* address; int64_t bytes; void* stream; } blocks[8];
;
; The order is that of a stream: a block is used again only in the stream in which it was used before.

%Block = type { i32, i32, i32, i32, ptr, i64, ptr }

; The states: 0 empty, 1 idle, 2 in use, 3 locked: one thread reads or writes the other fields.
@blocks = internal global [8 x %Block] zeroinitializer, align 64

declare ptr @oneir_make_device_memory(i32, i32, i64)
declare void @oneir_drop_device_memory(i32, i32, ptr)
declare ptr @oneir_current_stream(i32, i32)

; int lock(Block* block, int32_t state) { return compare_and_swap(&block->state, state, 3); }
define internal i1 @lock(ptr %block, i32 %state) {
  %pair = cmpxchg ptr %block, i32 %state, i32 3 acquire monotonic
  %locked = extractvalue { i32, i1 } %pair, 1
  ret i1 %locked
}

; void* oneir_alloc_device_memory(int32_t type, int32_t device, int64_t bytes)   null where there is no memory
define ptr @oneir_alloc_device_memory(i32 %type, i32 %device, i64 %bytes) {
; if (bytes > 64 MiB) return oneir_make_device_memory(type, device, bytes);
begin:
  %large = icmp ugt i64 %bytes, 67108864
  br i1 %large, label %make.large, label %small
make.large:
  %made.large = call ptr @oneir_make_device_memory(i32 %type, i32 %device, i64 %bytes)
  ret ptr %made.large

; stream = oneir_current_stream(type, device);
; for (i = 0; i != 8; ++i) if (lock(&blocks[i], 1)) {
small:
  %stream = call ptr @oneir_current_stream(i32 %type, i32 %device)
  br label %look
look:
  %i = phi i64 [ 0, %small ], [ %next, %onward ]
  %block = getelementptr [8 x %Block], ptr @blocks, i64 0, i64 %i
  %is.idle = call i1 @lock(ptr %block, i32 1)
  br i1 %is.idle, label %compare, label %onward

;   if (blocks[i] is of the device and the stream and has so many bytes) { blocks[i].state = 2; return blocks[i].address; }
compare:
  %type.at = getelementptr %Block, ptr %block, i64 0, i32 1
  %block.type = load i32, ptr %type.at, align 4
  %same.type = icmp eq i32 %block.type, %type
  %device.at = getelementptr %Block, ptr %block, i64 0, i32 2
  %block.device = load i32, ptr %device.at, align 4
  %same.device = icmp eq i32 %block.device, %device
  %bytes.at = getelementptr %Block, ptr %block, i64 0, i32 5
  %block.bytes = load i64, ptr %bytes.at, align 8
  %enough = icmp uge i64 %block.bytes, %bytes
  %stream.at = getelementptr %Block, ptr %block, i64 0, i32 6
  %block.stream = load ptr, ptr %stream.at, align 8
  %same.stream = icmp eq ptr %block.stream, %stream
  %same.place = and i1 %same.type, %same.device
  %right = and i1 %same.place, %same.stream
  %fits = and i1 %right, %enough
  br i1 %fits, label %take, label %unlock
take:
  %address.at = getelementptr %Block, ptr %block, i64 0, i32 4
  %address = load ptr, ptr %address.at, align 8
  store atomic i32 2, ptr %block release, align 4
  ret ptr %address

;   blocks[i].state = 1; }
unlock:
  store atomic i32 1, ptr %block release, align 4
  br label %onward
onward:
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, 8
  br i1 %more, label %look, label %make

; made = oneir_make_device_memory(type, device, bytes);
; if (made == NULL) return NULL;
make:
  %made = call ptr @oneir_make_device_memory(i32 %type, i32 %device, i64 %bytes)
  %missing = icmp eq ptr %made, null
  br i1 %missing, label %leave, label %place

; for (i = 0; i != 8; ++i) if (lock(&blocks[i], 0)) goto keep;
place:
  %j = phi i64 [ 0, %make ], [ %j.next, %occupied ]
  %free = getelementptr [8 x %Block], ptr @blocks, i64 0, i64 %j
  %is.empty = call i1 @lock(ptr %free, i32 0)
  br i1 %is.empty, label %keep, label %occupied
occupied:
  %j.next = add i64 %j, 1
  %j.more = icmp ult i64 %j.next, 8
  br i1 %j.more, label %place, label %replace

; for (i = 0; i != 8; ++i) if (lock(&blocks[i], 1)) { oneir_drop_device_memory(that of blocks[i]); goto keep; }
; return made;
replace:
  %k = phi i64 [ 0, %occupied ], [ %k.next, %used ]
  %old = getelementptr [8 x %Block], ptr @blocks, i64 0, i64 %k
  %is.old = call i1 @lock(ptr %old, i32 1)
  br i1 %is.old, label %drop, label %used
used:
  %k.next = add i64 %k, 1
  %k.more = icmp ult i64 %k.next, 8
  br i1 %k.more, label %replace, label %leave
drop:
  %old.type.at = getelementptr %Block, ptr %old, i64 0, i32 1
  %old.type = load i32, ptr %old.type.at, align 4
  %old.device.at = getelementptr %Block, ptr %old, i64 0, i32 2
  %old.device = load i32, ptr %old.device.at, align 4
  %old.address.at = getelementptr %Block, ptr %old, i64 0, i32 4
  %old.address = load ptr, ptr %old.address.at, align 8
  call void @oneir_drop_device_memory(i32 %old.type, i32 %old.device, ptr %old.address)
  br label %keep

; keep: blocks[i] = (Block){2, type, device, 0, made, bytes, stream};
keep:
  %new = phi ptr [ %free, %place ], [ %old, %drop ]
  %new.type.at = getelementptr %Block, ptr %new, i64 0, i32 1
  store i32 %type, ptr %new.type.at, align 4
  %new.device.at = getelementptr %Block, ptr %new, i64 0, i32 2
  store i32 %device, ptr %new.device.at, align 4
  %new.address.at = getelementptr %Block, ptr %new, i64 0, i32 4
  store atomic ptr %made, ptr %new.address.at monotonic, align 8
  %new.bytes.at = getelementptr %Block, ptr %new, i64 0, i32 5
  store i64 %bytes, ptr %new.bytes.at, align 8
  %new.stream.at = getelementptr %Block, ptr %new, i64 0, i32 6
  store ptr %stream, ptr %new.stream.at, align 8
  store atomic i32 2, ptr %new release, align 4
  br label %leave

; return made;
leave:
  ret ptr %made
}

; void oneir_free_device_memory(int32_t type, int32_t device, void* address)
define void @oneir_free_device_memory(i32 %type, i32 %device, ptr %address) {
; for (i = 0; i != 8; ++i)
;   if (blocks[i].state == 2 && blocks[i] is of the device && blocks[i].address == address) { blocks[i].state = 1; return; }
begin:
  br label %look
look:
  %i = phi i64 [ 0, %begin ], [ %next, %onward ]
  %block = getelementptr [8 x %Block], ptr @blocks, i64 0, i64 %i
  %state = load atomic i32, ptr %block acquire, align 4
  %in.use = icmp eq i32 %state, 2
  br i1 %in.use, label %compare, label %onward
; A block in use is changed by nobody but its user, so the one that matches is the caller's.
compare:
  %type.at = getelementptr %Block, ptr %block, i64 0, i32 1
  %block.type = load i32, ptr %type.at, align 4
  %same.type = icmp eq i32 %block.type, %type
  %device.at = getelementptr %Block, ptr %block, i64 0, i32 2
  %block.device = load i32, ptr %device.at, align 4
  %same.device = icmp eq i32 %block.device, %device
  %address.at = getelementptr %Block, ptr %block, i64 0, i32 4
  %block.address = load atomic ptr, ptr %address.at monotonic, align 8
  %same.address = icmp eq ptr %block.address, %address
  %same.place = and i1 %same.type, %same.device
  %found = and i1 %same.place, %same.address
  br i1 %found, label %own, label %onward
own:
  store atomic i32 1, ptr %block release, align 4
  ret void
onward:
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, 8
  br i1 %more, label %look, label %drop

; oneir_drop_device_memory(type, device, address);
drop:
  call void @oneir_drop_device_memory(i32 %type, i32 %device, ptr %address)
  ret void
}

; int64_t oneir_drop_kept_memory(int32_t type, int32_t device)    gives back what is idle; returns how many bytes
define i64 @oneir_drop_kept_memory(i32 %type, i32 %device) {
; for (i = 0; i != 8; ++i)
;   if (lock(&blocks[i], 1)) {
begin:
  br label %look
look:
  %i = phi i64 [ 0, %begin ], [ %next, %onward ]
  %sum = phi i64 [ 0, %begin ], [ %sum.next, %onward ]
  %block = getelementptr [8 x %Block], ptr @blocks, i64 0, i64 %i
  %is.idle = call i1 @lock(ptr %block, i32 1)
  br i1 %is.idle, label %compare, label %onward

;     if (blocks[i] is of the device) { sum += blocks[i].bytes; oneir_drop_device_memory(that of blocks[i]); state = 0; }
;     else state = 1;
;   }
compare:
  %type.at = getelementptr %Block, ptr %block, i64 0, i32 1
  %block.type = load i32, ptr %type.at, align 4
  %device.at = getelementptr %Block, ptr %block, i64 0, i32 2
  %block.device = load i32, ptr %device.at, align 4
  %same.type = icmp eq i32 %block.type, %type
  %same.device = icmp eq i32 %block.device, %device
  %found = and i1 %same.type, %same.device
  br i1 %found, label %drop, label %unlock
drop:
  %address.at = getelementptr %Block, ptr %block, i64 0, i32 4
  %address = load ptr, ptr %address.at, align 8
  %bytes.at = getelementptr %Block, ptr %block, i64 0, i32 5
  %bytes = load i64, ptr %bytes.at, align 8
  call void @oneir_drop_device_memory(i32 %type, i32 %device, ptr %address)
  br label %unlock
unlock:
  %state = phi i32 [ 1, %compare ], [ 0, %drop ]
  %dropped = phi i64 [ 0, %compare ], [ %bytes, %drop ]
  store atomic i32 %state, ptr %block release, align 4
  br label %onward
onward:
  %more.bytes = phi i64 [ 0, %look ], [ %dropped, %unlock ]
  %sum.next = add i64 %sum, %more.bytes
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, 8
  br i1 %more, label %look, label %leave
leave:
  ret i64 %sum.next
}
