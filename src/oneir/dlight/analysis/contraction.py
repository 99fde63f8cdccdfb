"""Which blocks multiply and sum."""

from __future__ import annotations

from ...ir.dtype import DataType
from ...ir.expr import Add, Cast, FloorDiv, FloorMod, IntImm, Mul, PrimExpr, Var, as_int
from ...tir.analysis.variables import variables
from ...tir.expr import BufferLoad
from ...tir.stmt import Block, BufferStore
from .leaves import Leaf


def operands(block: Block) -> tuple[BufferLoad, BufferLoad] | None:
    """The two loads that a block multiplies and adds to its result; None for another block."""
    body = block.body
    if not isinstance(body, BufferStore) or not isinstance(body.value, Add):
        return None
    total, product = body.value.a, body.value.b
    if not (isinstance(total, BufferLoad) and total.buffer is body.buffer and isinstance(product, Mul)):
        return None
    a, b = without_cast(product.a), without_cast(product.b)
    return (a, b) if isinstance(a, BufferLoad) and isinstance(b, BufferLoad) else None


def without_cast(expr: PrimExpr) -> PrimExpr:
    """An expression without the cast around it, if there is one."""
    return expr.value if isinstance(expr, Cast) else expr


def dot_length(dtype: DataType) -> int | None:
    """How many elements along a sum the dot products of processors take together, those of a word: four bytes, or two
    of bfloat16. None for dtypes without dot products.
    """
    return 4 if dtype.bits == 8 else 2 if dtype == "bfloat16" else None


def panel_width(load: BufferLoad, var: Var) -> int | None:
    """The elements of a panel along the variable, where the buffer lies in panels: `B[v // 32, ..., v % 32]`, or
    `B[v // 32, ..., k // 4, v % 32, k % 4]` with the bytes of a word together.
    """
    indices = load.indices[:-1] if summed_in_words(load) is not None else load.indices
    last = indices[-1] if indices else None
    if isinstance(last, FloorMod) and last.a is var and isinstance(last.b, IntImm):
        return last.b.value
    return None


def has_room(load: BufferLoad, var: Var, extent: int) -> bool:
    """Whether rows of the buffer along the variable have so many elements: `B[..., v]`."""
    room = as_int(load.buffer.shape[-1]) if load.indices else None
    return room is not None and room >= extent and load.indices[-1] is var and var not in variables(*load.indices[:-1])


def summed_in_words(load: BufferLoad) -> Var | None:
    """The variable `k` of panels in words: `B[..., k // 4, v % 32, k % 4]` of bytes; None for other loads."""
    length = dot_length(load.buffer.dtype)
    if length is None or len(load.indices) < 4:
        return None
    words, lane, within = load.indices[-3:]
    if not (isinstance(words, FloorDiv) and isinstance(lane, FloorMod) and isinstance(within, FloorMod)):
        return None
    var = within.a
    same = words.a is var and isinstance(var, Var) and lane.a is not var
    whole = all(isinstance(d, IntImm) and d.value == length for d in (words.b, within.b))
    return var if same and whole and isinstance(var, Var) else None


def is_contraction(leaf: Leaf) -> bool:
    """Whether a block multiplies and sums."""
    return leaf.reduces and leaf.block.init is not None and operands(leaf.block) is not None
