"""The runtime of programs that stand alone: what compiled code calls, without a process of Python, as LLVM IR.

It is a few KB of machine code in the exported file itself (`standalone.ll`): temporary memory, the loops' threads where
they are wanted, weights, errors. It needs nothing but the C library.
"""

from __future__ import annotations

import enum
import re
from pathlib import Path

from .pool import pool_ir
from .signals import poll_ir
from .workspace import workspace_ir


class Status(enum.IntEnum):
    """What functions of an exported program return."""

    OK = 0
    INVALID = 1
    """An argument is not what the function takes."""
    NO_MEMORY = 2
    BAD_WEIGHTS = 3
    """The file of weights cannot be read, or is another one."""
    FAILED = 4
    """The computation failed."""


OWN = "own_"
OWN_FUNCTIONS = (
    "oneir_parallel_for",
    "oneir_drop_error",
    "oneir_alloc_workspace",
    "oneir_free_workspace",
    "oneir_poll_signals",
)
"""Those of `symbols.RUNTIME_FUNCTIONS` that need no Python. A shared library calls them through a table, in which these
are until a process of Python loads it."""

_own = re.compile(rf"@({'|'.join(OWN_FUNCTIONS)})\b")

# ptr read_file(const char *path, int64_t bytes): a file's memory; NULL for one of another size.
_MAPPED = """
declare i32 @open(ptr, i32, ...)
declare i32 @close(i32)
declare i64 @lseek(i32, i64, i32)
declare ptr @mmap(ptr, i64, i32, i32, i32, i64)
declare i32 @munmap(ptr, i64)

; file = open(path, O_RDONLY); if (file < 0) return NULL;
; memory = lseek(file, 0, SEEK_END) == bytes ? mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, file, 0) : MAP_FAILED;
; close(file); return memory == MAP_FAILED ? NULL : memory;
define internal ptr @read_file(ptr %path, i64 %bytes) {
  %file = call i32 (ptr, i32, ...) @open(ptr %path, i32 0)
  %closed = icmp slt i32 %file, 0
  br i1 %closed, label %nothing, label %measure
measure:
  %size = call i64 @lseek(i32 %file, i64 0, i32 2)
  %whole = icmp eq i64 %size, %bytes
  br i1 %whole, label %map, label %leave
map:
  %mapped = call ptr @mmap(ptr null, i64 %bytes, i32 1, i32 2, i32 %file, i64 0)
  br label %leave
leave:
  %memory = phi ptr [ inttoptr (i64 -1 to ptr), %measure ], [ %mapped, %map ]
  %ignored = call i32 @close(i32 %file)
  %failed = icmp eq ptr %memory, inttoptr (i64 -1 to ptr)
  br i1 %failed, label %nothing, label %done
done:
  ret ptr %memory
nothing:
  ret ptr null
}

define internal void @close_file(ptr %memory, i64 %bytes) {
  %ignored = call i32 @munmap(ptr %memory, i64 %bytes)
  ret void
}
"""

# Where files are not mapped, they are read.
_READ = """
@mode = private constant [3 x i8] c"rb\\00"
declare ptr @fopen(ptr, ptr)
declare SIZE @fread(ptr, SIZE, SIZE, ptr)
declare i32 @fgetc(ptr)
declare i32 @fclose(ptr)

; file = fopen(path, "rb"); if (file == NULL) return NULL;
; memory = oneir_alloc_workspace(bytes, 128);
; if (memory == NULL || fread(memory, 1, bytes, file) != bytes || fgetc(file) != EOF) { free it; memory = NULL; }
; fclose(file); return memory;
define internal ptr @read_file(ptr %path, i64 %bytes) {
  %file = call ptr @fopen(ptr %path, ptr @mode)
  %closed = icmp eq ptr %file, null
  br i1 %closed, label %nothing, label %take
take:
  %memory = call ptr @oneir_alloc_workspace(i64 %bytes, i64 128)
  %none = icmp eq ptr %memory, null
  br i1 %none, label %leave, label %read
read:
  %size = SIZE.OF.BYTES
  %count = call SIZE @fread(ptr %memory, SIZE 1, SIZE %size, ptr %file)
  %few = icmp ne SIZE %count, %size
  %next = call i32 @fgetc(ptr %file)
  %more = icmp sge i32 %next, 0
  %other = or i1 %few, %more
  br i1 %other, label %drop, label %leave
drop:
  call void @oneir_free_workspace(ptr %memory)
  br label %leave
leave:
  %found = phi ptr [ null, %take ], [ %memory, %read ], [ null, %drop ]
  %ignored = call i32 @fclose(ptr %file)
  ret ptr %found
nothing:
  ret ptr null
}

define internal void @close_file(ptr %memory, i64 %bytes) {
  call void @oneir_free_workspace(ptr %memory)
  ret void
}
"""


def system_of(triple: str) -> str:
    """The operating system of a target triple, as `sys.platform` names it; "" for any but Linux, macOS and Windows."""
    rest = triple.split("-", 1)[-1]
    names = {"linux": "linux", "darwin": "darwin", "macos": "darwin", "windows": "win32", "mingw": "win32"}
    return next((system for name, system in names.items() if name in rest), "")


def runtime_ir(triple: str, architecture: str, pointer_bytes: int, threads: bool) -> list[str]:
    """The modules of the runtime, for machines of a target triple; `architecture` is its processor family.

    Each uses only what those behind it define.

    They define what generated functions use (standalone.ll), and the functions of `OWN_FUNCTIONS`, whose names begin
    with `OWN` here. Without `threads`, loops run in their caller.
    """
    system = system_of(triple)
    files = (
        _MAPPED
        if pointer_bytes == 8 and system in ("linux", "darwin")
        else _READ.replace("SIZE.OF.BYTES", _SIZE_OF_BYTES[pointer_bytes])
    )
    own = Path(__file__).with_name("standalone.ll").read_text(encoding="utf-8")
    memory = workspace_ir(pointer_bytes) + own + files.replace("SIZE", f"i{8 * pointer_bytes}")
    pool = pool_ir(system if threads else "", architecture)
    return [_own.sub(rf"@{OWN}\1", text) for text in (memory, pool, poll_ir(""))]


_SIZE_OF_BYTES = {8: "or i64 %bytes, 0", 4: "trunc i64 %bytes to i32"}


def has_threads(triple: str, architecture: str) -> bool:
    """Whether there is a pool for machines of a target triple."""
    return pool_ir(system_of(triple), architecture) != pool_ir("", "")
