"""Temporary memory for compiled code: `oneir_alloc_workspace` and `oneir_free_workspace`, in LLVM IR over the C
library.

The C library's allocator keeps freed blocks per thread, so that a loop which takes and returns a panel in every
iteration touches the same memory again.
"""

from __future__ import annotations

import functools

from .llvm import LoadedObject, add_symbol, compile_ir, host_cpu, host_triple, link
from .object_cache import cache_key, get, put

WORKSPACE_IR = """
declare noalias ptr @aligned_alloc(i64, i64)
declare void @free(ptr)

; Null for a negative size, and when there is no memory. The C library wants a size that is a multiple of the alignment.
define ptr @oneir_alloc_workspace(i64 %bytes, i64 %alignment) {
  %positive = icmp sgt i64 %bytes, -1
  br i1 %positive, label %allocate, label %refuse
allocate:
  %last = sub i64 %alignment, 1
  %sum = add i64 %bytes, %last
  %mask = sub i64 0, %alignment
  %rounded = and i64 %sum, %mask
  %empty = icmp eq i64 %rounded, 0
  %size = select i1 %empty, i64 %alignment, i64 %rounded
  %memory = call ptr @aligned_alloc(i64 %alignment, i64 %size)
  ret ptr %memory
refuse:
  ret ptr null
}

define void @oneir_free_workspace(ptr %memory) {
  call void @free(ptr %memory)
  ret void
}
"""


@functools.cache
def _workspace() -> LoadedObject:
    key = cache_key("workspace", WORKSPACE_IR, host_triple(), host_cpu())
    data = get(key)
    if data is None:
        data = compile_ir(WORKSPACE_IR, name="the workspace allocator")
        put(key, data)
    return link(data, what="the workspace allocator")


def workspace_address(name: str) -> int:
    """The address of one of the two functions."""
    return _workspace().symbol(name)


for _name in ("oneir_alloc_workspace", "oneir_free_workspace"):
    add_symbol(_name, functools.partial(workspace_address, _name))
