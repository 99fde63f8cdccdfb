"""`MemoryInfo`: what a special memory of a device is like.

@register_global_func("tvm.info.mem.global.scratch")
def scratch():
    return MemoryInfo(unit_bits=32, max_num_bits=1 << 20, max_simd_bits=128)
"""

from __future__ import annotations

from ..ir.expr import PrimExpr
from ..ir.node import Node, attr
from ..runtime.error import NotRegistered
from ..runtime.registry import get_global_func


class MemoryInfo(Node):
    """A memory in units of `unit_bits`, of `max_num_bits` in all, of which one vector takes up to `max_simd_bits`.

    `head_address` is where it begins, if programs can address it.
    """

    unit_bits: int
    max_num_bits: int
    max_simd_bits: int
    head_address: PrimExpr | None = attr(default=None)


def get_memory_info(scope: str) -> MemoryInfo:
    """What the function registered as "tvm.info.mem." and the scope says; `NotRegistered` if there is none."""
    describe = get_global_func(f"tvm.info.mem.{scope}", allow_missing=True)
    if describe is None:
        raise NotRegistered(
            f'no memory "{scope}" is known; register a function "tvm.info.mem.{scope}" that gives its MemoryInfo'
        )
    return describe()
