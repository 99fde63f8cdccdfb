"""Moving and shrinking allocations changes no result: random loops that write and read a buffer, interpreted.

The interpreter refuses reads of memory that was not written, so a buffer that starts anew in an iteration that needs an
earlier one's values is found, as is an access outside of a buffer that became too small.
"""

from __future__ import annotations

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from oneir.ir.module import IRModule
from oneir.runtime.error import InterpreterError
from oneir.testing import interpret
from oneir.tir import (
    Block,
    BlockRealize,
    BufferLoad,
    BufferStore,
    For,
    ForKind,
    IfThenElse,
    PrimFunc,
    SeqStmt,
    Var,
    const,
    decl_buffer,
    floordiv,
    floormod,
)
from oneir.tir.transform import CompactBufferAllocation, PlanAndUpdateBufferAllocationLocation

SIZE = 12
OUTER = 3


@st.composite
def indices(draw, outer, inner):
    """An index that may move with each loop, by steps that leave gaps or overlap, and may wrap."""
    index = const(draw(st.integers(0, 2)))
    index = index + outer * draw(st.sampled_from([0, 0, 1, 2, 4]))
    index = index + inner * draw(st.sampled_from([0, 1, 1, 1, 2, -1]))
    shape = draw(st.sampled_from(["plain", "plain", "plain", "mod", "half"]))
    if shape == "mod":
        index = floormod(index, draw(st.sampled_from([2, 3, 4])))
    elif shape == "half":
        index = floordiv(index, 2)
    return index


@st.composite
def statements(draw, outer, tmp, source, result):
    """A loop that writes the buffer from outside, reads it to outside, or updates it, perhaps under a condition."""
    inner = Var("j", "int32")
    index = draw(indices(outer, inner))
    kind = draw(st.sampled_from(["write", "write", "read", "read", "update"]))
    if kind == "write":
        body = BufferStore(tmp, BufferLoad(source, [outer, floormod(inner, SIZE)]), [index])
    elif kind == "read":
        body = BufferStore(result, BufferLoad(result, [outer, 0]) + BufferLoad(tmp, [index]), [outer, 0])
    else:
        body = BufferStore(tmp, BufferLoad(tmp, [draw(indices(outer, inner))]) + 1, [index])
    condition = draw(st.sampled_from([None, None, None, "first", "later", "bound", "inner"]))
    if condition is not None:
        test = {"first": outer < 1, "later": outer > 0, "bound": index < SIZE, "inner": inner < 3}[condition]
        body = IfThenElse(test, body)
    extent = const(draw(st.sampled_from([1, 2, 4, 5]))) if draw(st.booleans()) else outer + 1
    return For(inner, draw(st.integers(0, 1)), extent, ForKind.SERIAL, body)


@st.composite
def programs(draw):
    """A function with one buffer that is allocated outside of the loop in which it is used."""
    tmp = decl_buffer((SIZE,), "int32", name="tmp")
    source, result = (decl_buffer((OUTER, SIZE), "int32", name=name) for name in ("source", "result"))
    outer = Var("i", "int32")
    body = SeqStmt([draw(statements(outer, tmp, source, result)) for _ in range(draw(st.integers(2, 4)))])
    loop = For(outer, 0, OUTER, ForKind.SERIAL, body)
    if draw(st.integers(0, 4)) == 0:
        j = Var("j", "int32")
        loop = SeqStmt([For(j, 0, SIZE, ForKind.SERIAL, BufferStore(tmp, const(7), [j])), loop])
    return PrimFunc([source, result], BlockRealize([], True, Block([], [], [], "root", loop, None, [tmp])))


def run(func):
    source = np.arange(1, OUTER * SIZE + 1, dtype="int32").reshape(OUTER, SIZE)
    result = np.zeros((OUTER, SIZE), "int32")
    interpret(func, source, result)
    return result


@given(programs())
@settings(max_examples=100, deadline=None)
def test_results_stay(func):
    try:
        expected = run(func)
    except InterpreterError:
        assume(False)
        return
    moved = PlanAndUpdateBufferAllocationLocation()(IRModule({"main": func}))
    np.testing.assert_array_equal(run(moved["main"]), expected)
    for strict in (True, False):
        shrunk = CompactBufferAllocation(strict)(moved)
        np.testing.assert_array_equal(run(shrunk["main"]), expected)
