"""Workspaces, the temporary memory of compiled code: `oneir_alloc_workspace` and `oneir_free_workspace`, in LLVM IR.

The C library's allocator keeps small freed blocks per thread, so that a loop which takes and returns a panel in every
iteration touches the same memory again. Large ones it gives back to the system, which then clears each of their pages
anew: that took four fifths of the time of a convolution of 64 images. So eight large blocks, of 1 GiB together at most,
are kept here for whoever asks next. A thread looks first where it put its last one.
"""

from __future__ import annotations

import ctypes
import functools

from .llvm import LoadedObject, add_symbol
from .once import once
from .resident import resident

_IR = """
@slots = internal global [8 x ptr] zeroinitializer
@kept = internal global i64 0
@turn = internal global i64 0

DECLARE
declare ptr @llvm.frameaddress.p0(i32)

; ptr allocate(int64_t bytes): return malloc(bytes);
define internal ptr @allocate(i64 %bytes) {
ALLOCATE
}

; ptr *slot(int64_t step): return &slots[(frame address / 8 MiB + step) % 8];
; Stacks of threads lie apart, so where the stack is tells which slot is a thread's own.
define internal ptr @slot(i64 %step) {
  %frame = call ptr @llvm.frameaddress.p0(i32 0)
  %address = ptrtoint ptr %frame to i64
  %thread = lshr i64 %address, 23
  %place = add i64 %thread, %step
  %index = and i64 %place, 7
  %slot = getelementptr ptr, ptr @slots, i64 %index
  ret ptr %slot
}

; int64_t capacity(ptr block): return ((int64_t *)block)[-1];
; What lies in front of a block: where its memory begins, and how many bytes it has.
define internal i64 @capacity(ptr %block) {
  %place = getelementptr i8, ptr %block, i64 -8
  %bytes = load i64, ptr %place
  ret i64 %bytes
}

; void give_back(ptr block): free(((ptr *)block)[-2]);
define internal void @give_back(ptr %block) {
  %place = getelementptr i8, ptr %block, i64 -16
  %memory = load ptr, ptr %place
  call void @free(ptr %memory)
  ret void
}

; void forget(ptr block): kept -= capacity(block);
define internal void @forget(ptr %block) {
  %bytes = call i64 @capacity(ptr %block)
  %before = atomicrmw sub ptr @kept, i64 %bytes monotonic
  ret void
}

; ptr kept_block(int64_t bytes, int64_t alignment)
; A kept block of enough bytes, and not of more than twice as many; null if there is none.
define internal ptr @kept_block(i64 %bytes, i64 %alignment) {
entry:
  br label %look
; for (step = 0; step < 8; step++) {
;   if (*slot(step) == NULL) continue;  // read before writing: an empty slot's cache line stays shared
look:
  %step = phi i64 [ 0, %entry ], [ %next, %onward ]
  %slot = call ptr @slot(i64 %step)
  %seen = load atomic ptr, ptr %slot monotonic, align WORD
  %empty = icmp eq ptr %seen, null
  br i1 %empty, label %onward, label %take
;   block = exchange(slot(step), NULL);
;   if (block == NULL) continue;
take:
  %block = atomicrmw xchg ptr %slot, ptr null acq_rel
  %gone = icmp eq ptr %block, null
  br i1 %gone, label %onward, label %measure
;   if (capacity(block) >= bytes && capacity(block) / 2 <= bytes && block % alignment == 0) goto found;
measure:
  %capacity = call i64 @capacity(ptr %block)
  %enough = icmp uge i64 %capacity, %bytes
  %half = lshr i64 %capacity, 1
  %modest = icmp ule i64 %half, %bytes
  %address = ptrtoint ptr %block to i64
  %mask = sub i64 %alignment, 1
  %rest = and i64 %address, %mask
  %aligned = icmp eq i64 %rest, 0
  %of_size = and i1 %enough, %modest
  %fits = and i1 %of_size, %aligned
  br i1 %fits, label %found, label %restore
;   if (compare_exchange(slot(step), NULL, block)) continue;
restore:
  %pair = cmpxchg ptr %slot, ptr null, ptr %block acq_rel monotonic
  %restored = extractvalue { ptr, i1 } %pair, 1
  br i1 %restored, label %onward, label %drop
;   forget(block); give_back(block);  // another thread has filled the slot meanwhile
drop:
  call void @forget(ptr %block)
  call void @give_back(ptr %block)
  br label %onward
; }
onward:
  %next = add i64 %step, 1
  %end = icmp eq i64 %next, 8
  br i1 %end, label %none, label %look
; forget(block); return block;
found:
  call void @forget(ptr %block)
  ret ptr %block
; return NULL;
none:
  ret ptr null
}

; ptr oneir_alloc_workspace(int64_t bytes, int64_t alignment)
; Null for a negative size, and when there is no memory. Blocks are aligned here: glibc's aligned_alloc takes 0.1 us, as
; it keeps no small blocks for a thread, which malloc does.
define ptr @oneir_alloc_workspace(i64 %bytes, i64 %alignment) {
  %positive = icmp ult i64 %bytes, 4611686018427387904
  br i1 %positive, label %allocate, label %refuse
; if (bytes < 256 KiB) goto fresh;
allocate:
  %large = icmp uge i64 %bytes, 262144
  br i1 %large, label %search, label %fresh
; known = kept_block(bytes, alignment);
; if (known == NULL) goto fresh;
search:
  %known = call ptr @kept_block(i64 %bytes, i64 %alignment)
  %found = icmp ne ptr %known, null
  br i1 %found, label %done, label %fresh
; return known;
done:
  ret ptr %known
; step = max(alignment, 64); capacity = bytes rounded up to a multiple of step;
; memory = malloc(capacity + step + 16);
; if (memory == NULL) return NULL;
fresh:
  %narrow = icmp ult i64 %alignment, 64
  %step = select i1 %narrow, i64 64, i64 %alignment
  %last = sub i64 %step, 1
  %sum = add i64 %bytes, %last
  %mask = sub i64 0, %step
  %capacity = and i64 %sum, %mask
  %more = add i64 %step, 16
  %size = add i64 %capacity, %more
  %memory = call ptr @allocate(i64 %size)
  %missing = icmp eq ptr %memory, null
  br i1 %missing, label %refuse, label %made
; block = memory + 16, and on to the next multiple of step; ((ptr *)block)[-2] = memory;
; ((int64_t *)block)[-1] = capacity;
; return block;
made:
  %address = ptrtoint ptr %memory to i64
  %behind = add i64 %address, 15
  %lower = and i64 %behind, %mask
  %aligned = add i64 %lower, %step
  %offset = sub i64 %aligned, %address
  %block = getelementptr i8, ptr %memory, i64 %offset
  %begin = getelementptr i8, ptr %block, i64 -16
  store ptr %memory, ptr %begin
  %extent = getelementptr i8, ptr %block, i64 -8
  store i64 %capacity, ptr %extent
  ret ptr %block
; return NULL;
refuse:
  ret ptr null
}

; void oneir_free_workspace(ptr block)
define void @oneir_free_workspace(ptr %block) {
; if (block == NULL) return;
entry:
  %nothing = icmp eq ptr %block, null
  br i1 %nothing, label %end, label %measure
; if (capacity(block) < 256 KiB) goto drop;
measure:
  %bytes = call i64 @capacity(ptr %block)
  %large = icmp uge i64 %bytes, 262144
  br i1 %large, label %count, label %drop
; kept += capacity(block);
; if (kept > 1 GiB) goto refuse;
count:
  %before = atomicrmw add ptr @kept, i64 %bytes monotonic
  %after = add i64 %before, %bytes
  %many = icmp ugt i64 %after, 1073741824
  br i1 %many, label %refuse, label %look
; for (step = 0; step < 8; step++)
;   if (compare_exchange(slot(step), NULL, block)) return;
look:
  %step = phi i64 [ 0, %count ], [ %next, %onward ]
  %slot = call ptr @slot(i64 %step)
  %pair = cmpxchg ptr %slot, ptr null, ptr %block acq_rel monotonic
  %put = extractvalue { ptr, i1 } %pair, 1
  br i1 %put, label %end, label %onward
onward:
  %next = add i64 %step, 1
  %full = icmp eq i64 %next, 8
  br i1 %full, label %replace, label %look
; // Each slot in its turn, so that blocks which are freed together do not drive each other out.
; old = exchange(slot(turn++), block);
; if (old == NULL) return;
replace:
  %turn = atomicrmw add ptr @turn, i64 1 monotonic
  %place = call ptr @slot(i64 %turn)
  %old = atomicrmw xchg ptr %place, ptr %block acq_rel
  %vacant = icmp eq ptr %old, null
  br i1 %vacant, label %end, label %evict
; forget(old); give_back(old); return;
evict:
  call void @forget(ptr %old)
  call void @give_back(ptr %old)
  br label %end
; forget(block);
refuse:
  call void @forget(ptr %block)
  br label %drop
; give_back(block);
drop:
  call void @give_back(ptr %block)
  br label %end
; return;
end:
  ret void
}
"""

_ALLOCATE = {
    8: """  %memory = call ptr @malloc(i64 %bytes)
  ret ptr %memory""",
    4: """  %size = trunc i64 %bytes to i32
  %again = zext i32 %size to i64
  %fits = icmp eq i64 %again, %bytes
  br i1 %fits, label %take, label %refuse
take:
  %memory = call ptr @malloc(i32 %size)
  ret ptr %memory
refuse:
  ret ptr null""",
}


def workspace_ir(pointer_bytes: int) -> str:
    """The two functions in LLVM IR, for machines whose pointers, and C's `size_t`, have 8 or 4 bytes."""
    declared = f"declare noalias ptr @malloc(i{8 * pointer_bytes})\ndeclare void @free(ptr)"
    text = _IR.replace("ALLOCATE", _ALLOCATE[pointer_bytes]).replace("DECLARE", declared)
    return text.replace("WORD", str(pointer_bytes))


@once
def _workspace() -> LoadedObject:
    text = workspace_ir(ctypes.sizeof(ctypes.c_void_p))
    return resident("the workspace allocator", lambda: text, text)


def workspace_address(name: str) -> int:
    """The address of one of the two functions."""
    return _workspace().symbol(name)


for _name in ("oneir_alloc_workspace", "oneir_free_workspace"):
    add_symbol(_name, functools.partial(workspace_address, _name))
