"""Recorded applications of primitives."""

from __future__ import annotations

import pytest

from oneir import tir
from oneir.runtime.error import NotRegistered
from oneir.script import tir as T
from oneir.tir.schedule import BlockRV, Instruction, InstructionKind, LoopRV, Trace


@T.prim_func
def copy(A: T.Buffer((8,)), B: T.Buffer((8,))):
    for i in range(8):
        with T.block("B"):
            v = T.axis.spatial(8, i)
            B[v] = A[v]


def test_what_a_schedule_records() -> None:
    sch = tir.Schedule(copy)
    block = sch.get_block("B")
    (loop,) = sch.get_loops(block)
    sch.split(loop, [None, 2])
    sch.annotate(block, "mine", 1)
    insts = sch.trace.insts
    assert all(isinstance(inst, Instruction) and isinstance(inst.kind, InstructionKind) for inst in insts)
    assert [inst.kind.name for inst in insts] == ["GetBlock", "GetLoops", "Split", "Annotate"]
    get, loops, split, annotate = insts
    assert list(get.outputs) == [block] and not get.inputs and list(get.attrs) == ["B", "main"]
    assert list(loops.inputs) == [block] and list(loops.outputs) == [loop]
    assert split.inputs[0] is loop and len(split.outputs) == 2 and all(isinstance(o, LoopRV) for o in split.outputs)
    assert (get.kind.is_pure, split.kind.is_pure) == (True, False)
    sch.enter_postproc()
    assert [inst.kind.is_postproc for inst in sch.trace.insts] == [False] * 4 + [True]
    assert str(get) == '_ = sch.get_block(name="B", func_name="main")'
    assert annotate.kind is InstructionKind.get("Annotate") and str(annotate).startswith("sch.annotate(")


def test_instructions_made_by_hand_run_as_recorded_ones() -> None:
    block, loop = BlockRV(), LoopRV()
    trace = Trace(
        [
            Instruction(InstructionKind.get("GetBlock"), [], ["B", "main"], [block]),
            Instruction(InstructionKind.get("GetLoops"), [block], [], [loop]),
            Instruction(InstructionKind.get("Vectorize"), [loop], [], []),
        ],
        {},
    )
    sch, expected = tir.Schedule(copy), tir.Schedule(copy)
    trace.apply_to_schedule(sch, remove_postproc=False)
    expected.vectorize(expected.get_loops(expected.get_block("B"))[0])
    assert sch.mod.script() == expected.mod.script()
    with pytest.raises(NotRegistered, match="no primitive is recorded as 'Vectorise'"):
        InstructionKind.get("Vectorise")
