"""Intrinsics of NVIDIA's sm_90: copies of tiles, barriers that count bytes, and products of warpgroups.

A warpgroup is four warps, 128 threads. A barrier is 8 bytes of shared memory; it has phases, of parity 0, 1, 0, ...:
one ends when so many arrivals as it was made for, and all bytes that were announced, have come.

Pointers are given as memory and the number of an element in it, as those of `ptx_ldmatrix` are.
"""

from __future__ import annotations

from typing import Any

from ..ir.dtype import HANDLE, VOID
from ..ir.expr import Call, PrimExpr
from .op import OPAQUE, register

for _name, _count in (
    ("cuda_tensor_map", 10),
    ("ptx_cp_async_bulk_tensor", 8),
    ("ptx_mbarrier_init", 3),
    ("ptx_mbarrier_arrive", 2),
    ("ptx_mbarrier_arrive_expect_tx", 3),
    ("ptx_mbarrier_wait", 3),
    ("ptx_fence_proxy_async", 0),
    ("ptx_wgmma", 14),
    ("ptx_wgmma_fence", 0),
    ("ptx_wgmma_commit_group", 0),
    ("ptx_wgmma_wait_group", 4),
    ("ptx_setmaxnreg", 2),
):
    register(_name, OPAQUE, num_inputs=_count)

TENSOR_MAP_SCOPE = "grid_constant"
"""The scope of what a tensor map, which a kernel takes as an argument, points to."""


def cuda_tensor_map(data: Any, itemsize: int, *numbers: Any) -> PrimExpr:
    """What the host tells a kernel of a tensor of which it copies tiles.

    The tensor has three dimensions, here with the innermost first: `numbers` are their extents, the bytes from one
    element to the next along the second and the third, and the elements of a tile along each. `data` and these bytes
    are multiples of 16; a row of a tile has 128 bytes. An element has 1, 2 or 4 bytes.
    """
    return Call(HANDLE, "tir.cuda_tensor_map", [data, itemsize, *numbers])


def ptx_cp_async_bulk_tensor(
    shared: Any, offset: Any, tensor_map: Any, barriers: Any, barrier: Any, *coordinates: Any
) -> PrimExpr:
    """Starts copying the tile at three `coordinates`, innermost first, to shared memory; a barrier counts its bytes.

    The copy permutes pieces of 16 bytes: bits 4 to 6 of an address are xored with its bits 7 to 9. What is outside of
    the tensor is zero.
    """
    return Call(VOID, "tir.ptx_cp_async_bulk_tensor", [shared, offset, tensor_map, barriers, barrier, *coordinates])


def ptx_mbarrier_init(barriers: Any, barrier: Any, count: Any) -> PrimExpr:
    """Makes a barrier for so many arrivals, in its phase 0."""
    return Call(VOID, "tir.ptx_mbarrier_init", [barriers, barrier, count])


def ptx_mbarrier_arrive(barriers: Any, barrier: Any) -> PrimExpr:
    """Arrives at a barrier, without waiting."""
    return Call(VOID, "tir.ptx_mbarrier_arrive", [barriers, barrier])


def ptx_mbarrier_arrive_expect_tx(barriers: Any, barrier: Any, count: Any) -> PrimExpr:
    """Announces that `count` bytes are copied in this phase of a barrier, and arrives there."""
    return Call(VOID, "tir.ptx_mbarrier_arrive_expect_tx", [barriers, barrier, count])


def ptx_mbarrier_wait(barriers: Any, barrier: Any, parity: Any) -> PrimExpr:
    """Waits until the phase of a barrier that has this parity is over; that of a new one with parity 1 is."""
    return Call(VOID, "tir.ptx_mbarrier_wait", [barriers, barrier, parity])


def ptx_fence_proxy_async() -> PrimExpr:
    """Makes what this thread wrote to shared memory, such as new barriers, visible to copies of tiles and products."""
    return Call(VOID, "tir.ptx_fence_proxy_async", [])


def ptx_wgmma(
    shape: str,
    in_dtype: str,
    out_dtype: str,
    a_transposed: bool,
    b_transposed: bool,
    sums: Any,
    sums_offset: Any,
    a: Any,
    a_offset: Any,
    a_step: Any,
    b: Any,
    b_offset: Any,
    b_step: Any,
    accumulate: Any,
) -> PrimExpr:
    """Starts C = A * B, plus C where `accumulate` holds: C in registers of a warpgroup, A and B in shared memory.

    A and B lie as `ptx_cp_async_bulk_tensor` copies them, in rows of 128 bytes without gaps: along the sum, or, where
    they are `transposed`, across it, in columns of 64 elements, each `a_step` or `b_step` bytes behind the one before.
    `shape` is such as "m64n128k16": rows and columns of C, and how many products are added up.
    """
    args = [shape, in_dtype, out_dtype, a_transposed, b_transposed, sums, sums_offset]
    return Call(VOID, "tir.ptx_wgmma", [*args, a, a_offset, a_step, b, b_offset, b_step, accumulate])


def ptx_wgmma_fence() -> PrimExpr:
    """Orders what a warpgroup did with registers before the products that it starts."""
    return Call(VOID, "tir.ptx_wgmma_fence", [])


def ptx_wgmma_commit_group() -> PrimExpr:
    """Closes the group of products started so far."""
    return Call(VOID, "tir.ptx_wgmma_commit_group", [])


def ptx_wgmma_wait_group(num: Any, sums: Any, offset: Any, size: Any) -> PrimExpr:
    """Waits until at most `num` groups of products are under way; `size` sums may be read then."""
    return Call(VOID, "tir.ptx_wgmma_wait_group", [num, sums, offset, size])


def ptx_setmaxnreg(increase: bool, count: Any) -> PrimExpr:
    """Waits for more registers, or gives some back, until each thread of the warpgroup has `count`."""
    return Call(VOID, "tir.ptx_setmaxnreg", [increase, count])
