"""Intrinsics of some devices only: threads, matrix units, asynchronous copies, packed lanes; and of the runtime.

Each is a `Call` of an operator registered here, which the code generators lower. The fact `pointer_accesses` of an
operator says which arguments point to memory that it reads ("r") or writes ("w").
"""

from __future__ import annotations

from typing import Any

from ..ir import operators as ops
from ..ir.dtype import BOOL, HANDLE, VOID, DataType
from ..ir.expr import Call, CallEffectKind, PrimExpr, Var, as_expr
from ..runtime.error import TypeMismatch
from .op import OPAQUE, PURE, READ, register

# -- threads --

register("tvm_thread_allreduce", OPAQUE)
register("tvm_thread_invariant", PURE, num_inputs=1)
register("tvm_storage_sync", OPAQUE)
for _name in ("tvm_warp_shuffle", "tvm_warp_shuffle_up", "tvm_warp_shuffle_down"):
    register(_name, OPAQUE, num_inputs=5)
register("tvm_warp_activemask", OPAQUE, num_inputs=0)


def tvm_thread_allreduce(*freduce_args: Any) -> PrimExpr:
    """A reduction over the threads of a block: count, values, condition, results, thread indices."""
    return Call(HANDLE, "tir.tvm_thread_allreduce", freduce_args)


def tvm_thread_invariant(cond: Any) -> PrimExpr:
    """`cond`, which is the same in every thread."""
    cond = as_expr(cond)
    return Call(cond.dtype, "tir.tvm_thread_invariant", [cond])


def tvm_storage_sync(storage_scope: str, is_load: bool = False, num_blocks: int = -1) -> PrimExpr:
    """A barrier of the threads that share a memory."""
    return Call("int32", "tir.tvm_storage_sync", [storage_scope, is_load, num_blocks] if is_load else [storage_scope])


def tvm_warp_shuffle(mask: Any, value: Any, warp_id: Any, width: Any, warp_size: Any) -> PrimExpr:
    """`value` of another thread of the warp."""
    value = as_expr(value)
    return Call(value.dtype, "tir.tvm_warp_shuffle", [mask, value, warp_id, width, warp_size])


def tvm_warp_shuffle_up(mask: Any, value: Any, offset: Any, width: Any, warp_size: Any) -> PrimExpr:
    """`value` of the thread `offset` lanes below."""
    value = as_expr(value)
    return Call(value.dtype, "tir.tvm_warp_shuffle_up", [mask, value, offset, width, warp_size])


def tvm_warp_shuffle_down(mask: Any, value: Any, offset: Any, width: Any, warp_size: Any) -> PrimExpr:
    """`value` of the thread `offset` lanes above."""
    value = as_expr(value)
    return Call(value.dtype, "tir.tvm_warp_shuffle_down", [mask, value, offset, width, warp_size])


def tvm_warp_activemask() -> PrimExpr:
    """A bit for each thread of the warp that runs."""
    return Call("uint32", "tir.tvm_warp_activemask", [])


# -- matrix units --

for _name, _count in (
    ("tvm_load_matrix_sync", 8),
    ("tvm_mma_sync", 8),
    ("tvm_bmma_sync", 8),
    ("tvm_fill_fragment", 6),
    ("tvm_store_matrix_sync", 8),
    ("make_filled_simdgroup_matrix", 5),
    ("simdgroup_load", 7),
    ("simdgroup_store", 7),
    ("simdgroup_multiply_accumulate", 8),
):
    register(_name, OPAQUE, num_inputs=_count)
for _name, _accesses in (
    ("ptx_mma", {6: "r", 8: "r", 10: "rw"}),
    ("ptx_mma_sp", {6: "r", 8: "r", 10: "rw", 12: "r"}),
    ("ptx_ldmatrix", {3: "w", 5: "r"}),
    ("mma_store", {2: "w", 3: "r"}),
    ("mma_fill", {1: "w"}),
):
    register(_name, OPAQUE, script_dtype_first=True, pointer_accesses=_accesses)


def tvm_load_matrix_sync(
    fragment: Any, m: Any, n: Any, k: Any, index: Any, buffer_ptr: Any, stride: Any, layout: str
) -> PrimExpr:
    """Loads a matrix into a fragment."""
    return Call(HANDLE, "tir.tvm_load_matrix_sync", [fragment, m, n, k, index, buffer_ptr, stride, layout])


def tvm_mma_sync(
    fragment_d: Any,
    index_d: Any,
    fragment_a: Any,
    index_a: Any,
    fragment_b: Any,
    index_b: Any,
    fragment_c: Any,
    index_c: Any,
) -> PrimExpr:
    """d = a * b + c over fragments."""
    return Call(
        HANDLE,
        "tir.tvm_mma_sync",
        [fragment_d, index_d, fragment_a, index_a, fragment_b, index_b, fragment_c, index_c],
    )


def tvm_bmma_sync(
    fragment_d: Any,
    index_d: Any,
    fragment_a: Any,
    index_a: Any,
    fragment_b: Any,
    index_b: Any,
    fragment_c: Any,
    index_c: Any,
) -> PrimExpr:
    """d = popcount(a op b) + c over fragments of bits."""
    return Call(
        HANDLE,
        "tir.tvm_bmma_sync",
        [fragment_d, index_d, fragment_a, index_a, fragment_b, index_b, fragment_c, index_c],
    )


def tvm_fill_fragment(fragment: Any, m: Any, n: Any, k: Any, index: Any, value: Any) -> PrimExpr:
    """Sets all elements of a fragment."""
    return Call(HANDLE, "tir.tvm_fill_fragment", [fragment, m, n, k, index, value])


def tvm_store_matrix_sync(
    fragment: Any, m: Any, n: Any, k: Any, index: Any, buffer_ptr: Any, stride: Any, layout: str
) -> PrimExpr:
    """Stores a fragment as a matrix."""
    return Call(HANDLE, "tir.tvm_store_matrix_sync", [fragment, m, n, k, index, buffer_ptr, stride, layout])


def ptx_mma(
    dtype: str,
    shape: str,
    A_layout: str,
    B_layout: str,
    A_dtype: str,
    B_dtype: str,
    C_dtype: str,
    multiplicand_a: Any,
    a_index: Any,
    multiplicand_b: Any,
    b_index: Any,
    accumulator: Any,
    c_index: Any,
    saturate: Any,
    operator: str | None = None,
) -> PrimExpr:
    """The warp-wide `mma` instruction; `operator` is "xor" or "and" for single bits."""
    args = [shape, A_layout, B_layout, A_dtype, B_dtype, C_dtype]
    args += [multiplicand_a, a_index, multiplicand_b, b_index, accumulator, c_index, saturate]
    return Call(dtype, "tir.ptx_mma", args if operator is None else [*args, operator])


def ptx_mma_sp(
    dtype: str,
    shape: str,
    A_layout: str,
    B_layout: str,
    A_dtype: str,
    B_dtype: str,
    C_dtype: str,
    multiplicand_a: Any,
    a_index: Any,
    multiplicand_b: Any,
    b_index: Any,
    accumulator: Any,
    c_index: Any,
    metadata: Any,
    meta_index: Any,
    sparse_selector: Any,
    saturate: Any,
) -> PrimExpr:
    """The warp-wide `mma.sp` instruction, whose first operand is sparse."""
    args = [shape, A_layout, B_layout, A_dtype, B_dtype, C_dtype]
    args += [multiplicand_a, a_index, multiplicand_b, b_index, accumulator, c_index]
    return Call(dtype, "tir.ptx_mma_sp", [*args, metadata, meta_index, sparse_selector, saturate])


def ptx_ldmatrix(
    dtype: str,
    trans: Any,
    num: Any,
    type: Any,
    local_ptr: Any,
    local_offset: Any,
    smem_ptr: Any,
    smem_offset: Any,
) -> PrimExpr:
    """The `ldmatrix` instruction: `num` 8 by 8 matrices from shared memory to registers."""
    return Call(dtype, "tir.ptx_ldmatrix", [trans, num, type, local_ptr, local_offset, smem_ptr, smem_offset])


def mma_store(dtype: str, m: Any, n: Any, dst_ptr: Any, src_ptr: Any, src_offset: Any, dst_stride: Any) -> PrimExpr:
    """Stores the accumulator of `ptx_mma`."""
    return Call(dtype, "tir.mma_store", [m, n, dst_ptr, src_ptr, src_offset, dst_stride])


def mma_fill(dtype: str, local_size: Any, local_ptr: Any, offset: Any) -> PrimExpr:
    """Sets the accumulator of `ptx_mma` to zero."""
    return Call(dtype, "tir.mma_fill", [local_size, local_ptr, offset])


def make_filled_simdgroup_matrix(d: Var, index: Any, value: Any, col: int = 8, row: int = 8) -> PrimExpr:
    """A simdgroup matrix with all elements `value`."""
    return Call(HANDLE, "tir.make_filled_simdgroup_matrix", [d, index, value, col, row])


def simdgroup_load(
    d: Var, index: Any, ptr: Any, stride: Any, col: int = 8, row: int = 8, transpose_matrix: bool = False
) -> PrimExpr:
    """Loads a simdgroup matrix from memory."""
    return Call(HANDLE, "tir.simdgroup_load", [d, index, ptr, stride, col, row, transpose_matrix])


def simdgroup_store(
    d: Any, index: Any, ptr: Any, stride: Any, col: int = 8, row: int = 8, transpose_matrix: bool = False
) -> PrimExpr:
    """Stores a simdgroup matrix to memory."""
    return Call(HANDLE, "tir.simdgroup_store", [d, index, ptr, stride, col, row, transpose_matrix])


def simdgroup_multiply_accumulate(
    d: Var, index_d: Any, a: Var, index_a: Any, b: Var, index_b: Any, c: Var, index_c: Any
) -> PrimExpr:
    """d = a * b + c over simdgroup matrices."""
    return Call(HANDLE, "tir.simdgroup_multiply_accumulate", [d, index_d, a, index_a, b, index_b, c, index_c])


# -- asynchronous copies --

for _name in ("ptx_cp_async", "ptx_cp_async_bulk"):
    register(_name, OPAQUE, script_dtype_first=True, pointer_accesses={0: "w", 2: "r"})
register("ptx_ldg32", OPAQUE, num_inputs=3, script_dtype_first=True, pointer_accesses={0: "w", 2: "r"})
for _name, _count in (
    ("ptx_commit_group", 0),
    ("ptx_wait_group", 1),
    ("ptx_cp_async_barrier", 1),
    ("ptx_init_barrier_thread_count", 2),
    ("ptx_arrive_barrier", 1),
    ("ptx_arrive_barrier_expect_tx", 2),
    ("ptx_wait_barrier", 1),
    ("create_barriers", 1),
):
    register(_name, OPAQUE, num_inputs=_count)


def ptx_cp_async(
    dtype: str,
    shared_ptr: Any,
    shared_offset: Any,
    global_ptr: Any,
    global_offset: Any,
    bytes: Any,
    valid: Any = None,
) -> PrimExpr:
    """Starts copying `bytes`, 4, 8 or 16, from global to shared memory; zeros after the first `valid` of them."""
    args = [shared_ptr, shared_offset, global_ptr, global_offset, bytes]
    return Call(dtype, "tir.ptx_cp_async", args if valid is None else [*args, valid])


def ptx_cp_async_bulk(
    dtype: str,
    shared_ptr: Any,
    shared_offset: Any,
    global_ptr: Any,
    global_offset: Any,
    bytes: Any,
    barrier_id: Any,
) -> PrimExpr:
    """Starts copying `bytes` from global to shared memory; a barrier counts their arrival."""
    return Call(
        dtype, "tir.ptx_cp_async_bulk", [shared_ptr, shared_offset, global_ptr, global_offset, bytes, barrier_id]
    )


def ptx_commit_group() -> PrimExpr:
    """Closes the group of copies started so far."""
    return Call(VOID, "tir.ptx_commit_group", [])


def ptx_wait_group(num: Any) -> PrimExpr:
    """Waits until at most `num` groups of copies are under way."""
    return Call(VOID, "tir.ptx_wait_group", [num])


def ptx_cp_async_barrier(barrier_id: Any) -> PrimExpr:
    """Makes the copies started so far arrive at a barrier."""
    return Call(VOID, "tir.ptx_cp_async_barrier", [barrier_id])


def ptx_init_barrier_thread_count(barrier_id: Any, thread_count: Any) -> PrimExpr:
    """Prepares a barrier for so many threads."""
    return Call(VOID, "tir.ptx_init_barrier_thread_count", [barrier_id, thread_count])


def ptx_arrive_barrier(barrier_id: Any) -> PrimExpr:
    """Arrives at a barrier."""
    return Call(VOID, "tir.ptx_arrive_barrier", [barrier_id])


def ptx_arrive_barrier_expect_tx(barrier_id: Any, byte_count: Any) -> PrimExpr:
    """Arrives at a barrier that also awaits bytes."""
    return Call(VOID, "tir.ptx_arrive_barrier_expect_tx", [barrier_id, byte_count])


def ptx_wait_barrier(barrier_id: Any) -> PrimExpr:
    """Waits at a barrier."""
    return Call(VOID, "tir.ptx_wait_barrier", [barrier_id])


def create_barriers(barrier_count: Any) -> PrimExpr:
    """Makes so many barriers."""
    return Call(VOID, "tir.create_barriers", [barrier_count])


def ptx_ldg32(dtype: str, local_ptr: Any, predicate: Any, global_ptr: Any) -> PrimExpr:
    """Loads 4 bytes from global memory to a register where the predicate holds, and sets it to zero elsewhere."""
    return Call(dtype, "tir.ptx_ldg32", [local_ptr, predicate, global_ptr])


# -- copies of an engine, and memory of a processor --

for _name, _count in (
    ("dma_copy", 5),
    ("dma_wait", 2),
    ("dma_start_group", 1),
    ("dma_end_group", 1),
    ("nd_mem_alloc_with_scope", 3),
):
    register(_name, OPAQUE, num_inputs=_count)


def dma_copy(queue: Any, target: Any, source: Any, size: Any, bypass_cache: Any) -> PrimExpr:
    """Has an engine copy `size` bytes from one address to another, after what stands in its queue."""
    return Call("int32", "tir.dma_copy", [queue, target, source, size, bypass_cache])


def dma_wait(queue: Any, inflight: Any) -> PrimExpr:
    """Waits until at most `inflight` copies, or groups of them, of a queue are under way."""
    return Call("int32", "tir.dma_wait", [queue, inflight])


def dma_start_group(queue: Any) -> PrimExpr:
    """Begins copies that are waited for together."""
    return Call("int32", "tir.dma_start_group", [queue])


def dma_end_group(queue: Any) -> PrimExpr:
    """Ends copies that are waited for together."""
    return Call("int32", "tir.dma_end_group", [queue])


def nd_mem_alloc_with_scope(scope: Any, ndim: Any, shape: Any) -> PrimExpr:
    """Memory of a scope for so many elements along `ndim` dimensions, from the runtime."""
    return Call(HANDLE, "tir.nd_mem_alloc_with_scope", [scope, ndim, shape])


# -- lanes --

for _name in ("vectorlow", "vectorhigh", "vectorcombine", "dp4a", "get_active_lane_mask"):
    register(_name, PURE, script_dtype_first=_name != "dp4a")
register("q_multiply_shift", PURE, num_inputs=4)
register("q_multiply_shift_per_axis", PURE, num_inputs=7)


def vectorlow(dtype: str, vec: Any) -> PrimExpr:
    """The lower half of a vector."""
    return Call(dtype, "tir.vectorlow", [vec])


def vectorhigh(dtype: str, vec: Any) -> PrimExpr:
    """The upper half of a vector."""
    return Call(dtype, "tir.vectorhigh", [vec])


def vectorcombine(dtype: str, vec1: Any, vec2: Any) -> PrimExpr:
    """Two vectors as one of twice the length."""
    return Call(dtype, "tir.vectorcombine", [vec1, vec2])


def dp4a(vec1: Any, vec2: Any, acc: Any = 0) -> PrimExpr:
    """`acc` plus the dot product of two vectors of four bytes."""
    vec1, vec2, acc = as_expr(vec1), as_expr(vec2), as_expr(acc)
    if vec1.dtype not in ("int8x4", "uint8x4") or vec2.dtype not in ("int8x4", "uint8x4"):
        raise TypeMismatch(f"dp4a expects vectors int8x4 or uint8x4, found {vec1.dtype} and {vec2.dtype}")
    both_unsigned = vec1.dtype == "uint8x4" and vec2.dtype == "uint8x4"
    return Call("uint32" if both_unsigned else "int32", "tir.dp4a", [vec1, vec2, acc])


def get_active_lane_mask(dtype: str, base: Any, limit: Any) -> PrimExpr:
    """For each lane i whether `base + i < limit`."""
    return Call(dtype, "tir.get_active_lane_mask", [base, limit])


def get_vscale_expr(dtype: str, min_size: int = 128) -> PrimExpr:
    """The lanes of a scalable vector of a dtype whose smallest size is `min_size` bits."""
    from .op import vscale

    return ops.multiply(min_size // DataType(dtype).bits, vscale())


def q_multiply_shift(x: Any, y: Any, q: Any, s: Any) -> PrimExpr:
    """round(x * y * 2**-s) of Q-numbers with `q` fractional bits; halves are rounded up."""
    return Call("int32", "tir.q_multiply_shift", [x, y, q, s])


def q_multiply_shift_per_axis(
    x: Any, y: Any, ls: Any, rs: Any, q: Any, is_lshift_required: Any, is_rshift_required: Any
) -> PrimExpr:
    """As `q_multiply_shift`, with a left shift before and a right shift after."""
    return Call("int32", "tir.q_multiply_shift_per_axis", [x, y, ls, rs, q, is_lshift_required, is_rshift_required])


# -- the runtime --

register("TVMBackendAllocWorkspace", OPAQUE, num_inputs=5)
register("TVMBackendFreeWorkspace", OPAQUE, num_inputs=3)
register("start_profile_intrinsic", OPAQUE, num_inputs=1)
register("end_profile_intrinsic", OPAQUE, num_inputs=1)
register("anylist_getitem", READ, num_inputs=2)
register("anylist_resetitem", OPAQUE, num_inputs=2)
register("anylist_setitem_call_packed", OPAQUE)
register("anylist_setitem_call_cpacked", OPAQUE)
register("ignore_loop_partition", CallEffectKind.EmbedInfo, num_inputs=1)
register("tvm_call_trace_packed", OPAQUE)
register("tvm_call_trace_packed_lowered", OPAQUE)


def TVMBackendAllocWorkspace(
    device_type: Any, device_id: Any, nbytes: Any, dtype_code_hint: Any, dtype_bits_hint: Any
) -> PrimExpr:
    """Temporary memory of a device."""
    args = [device_type, device_id, nbytes, dtype_code_hint, dtype_bits_hint]
    return Call(HANDLE, "tir.TVMBackendAllocWorkspace", args)


def TVMBackendFreeWorkspace(device_type: Any, device_id: Any, ptr: Any) -> PrimExpr:
    """Gives temporary memory back."""
    return Call("int32", "tir.TVMBackendFreeWorkspace", [device_type, device_id, ptr])


def start_profile_intrinsic(id: Any) -> PrimExpr:
    """Marks the begin of a section to time."""
    return Call(HANDLE, "tir.start_profile_intrinsic", [id])


def end_profile_intrinsic(id: Any) -> PrimExpr:
    """Marks the end of a section to time."""
    return Call(HANDLE, "tir.end_profile_intrinsic", [id])


def anylist_getitem(list_handle: Any, index: Any) -> PrimExpr:
    """A value of a list of values of any kind."""
    return Call(HANDLE, "tir.anylist_getitem", [list_handle, index])


def anylist_resetitem(list_handle: Any, index: Any) -> PrimExpr:
    """Clears a value of such a list."""
    return Call("int32", "tir.anylist_resetitem", [list_handle, index])


def anylist_setitem_call_packed(list_handle: Any, index: Any, func_name: Any, *args: Any) -> PrimExpr:
    """Calls a registered function and keeps its result in such a list."""
    return Call("int32", "tir.anylist_setitem_call_packed", [list_handle, index, func_name, *args])


def anylist_setitem_call_cpacked(list_handle: Any, index: Any, func_name: Any, *args: Any) -> PrimExpr:
    """Calls a function by its symbol and keeps its result in such a list."""
    return Call("int32", "tir.anylist_setitem_call_cpacked", [list_handle, index, func_name, *args])


def ignore_loop_partition(predicate: Any) -> PrimExpr:
    """`predicate`, by which loop partitioning does not split loops."""
    return Call(BOOL, "tir.ignore_loop_partition", [ops.as_bool(predicate)])


def trace(args: Any, trace_action: str = "tvm.default_trace_action") -> PrimExpr:
    """Calls a registered function with values at run time, for debugging.

    The value of the expression is what the function returns, or the last value if it returns None.
    """
    values = [as_expr(a) for a in args]
    return Call(values[-1].dtype, "tir.tvm_call_trace_packed", [trace_action, *values])
