"""What counts as index arithmetic in generated code: it cannot overflow, since the memory that it indexes is finite."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from ..ir import expr as e
from ..ir.op import Op

# What divisions by powers of two become, and how rows of shared memory are permuted.
_BITS = (Op.get("tir.bitwise_and"), Op.get("tir.shift_right"), Op.get("tir.bitwise_xor"))


def is_index_arithmetic(node: Any, data_variables: Set[e.Var]) -> bool:
    """Whether an expression is arithmetic over loop variables, shapes and constants only.

    `data_variables` are variables bound to other values, such as loaded elements.
    """
    kind = type(node)
    if kind is e.IntImm:
        return True
    if isinstance(node, e.Var):
        return node not in data_variables
    if kind in (e.Add, e.Sub, e.Mul, e.FloorDiv, e.FloorMod, e.Div, e.Mod, e.Min, e.Max):
        return is_index_arithmetic(node.a, data_variables) and is_index_arithmetic(node.b, data_variables)
    if kind is e.Ramp:
        return is_index_arithmetic(node.base, data_variables) and is_index_arithmetic(node.stride, data_variables)
    if kind is e.Call and node.op in _BITS:
        return all(is_index_arithmetic(arg, data_variables) for arg in node.args)
    return kind in (e.Broadcast, e.Cast) and is_index_arithmetic(node.value, data_variables)
