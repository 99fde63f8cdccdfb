"""The schedule itself: finding things, handles, copies, the trace, and what refusals say."""

from __future__ import annotations

import pytest
from schedule_programs import chain, diamond, matmul

import oneir as tvm
from oneir.ir.structural import StructuralMismatch, assert_structural_equal
from oneir.runtime.error import InvalidValue, NotRegistered
from oneir.script import tir as T
from oneir.tir import DepKind, Schedule, ScheduleError, ScheduleState, StmtSRef
from oneir.tir.schedule import BlockRV, InstructionKind, LoopRV, ScheduleDebugMask, Trace, state
from oneir.tir.schedule.testing import assert_structural_equal_ignore_global_symbol, verify_trace_roundtrip


def names(sch, handles):
    return [sch.get(handle).name_hint for handle in handles]


def test_finding_blocks_and_loops():
    sch = Schedule(diamond)
    block = sch.get_block("B")
    assert isinstance(block, BlockRV) and sch.get(block).name_hint == "B"
    loops = sch.get_loops(block)
    assert all(isinstance(loop, LoopRV) for loop in loops)
    assert [sch.get(loop).loop_var.name for loop in loops] == ["i", "j"]
    assert names(sch, sch.get_consumers(block)) == ["C1", "C2"]
    assert names(sch, sch.get_producers("D")) == ["C1", "C2"]
    assert names(sch, sch.get_child_blocks(sch.get_block("root"))) == ["B", "C1", "C2", "D"]
    assert names(sch, sch.get_child_blocks(loops[0])) == ["B"]
    assert names(sch, sch.get_output_blocks("root")) == ["D"]


def test_finding_what_is_not_there_or_there_twice():
    sch = Schedule(chain)
    with pytest.raises(ScheduleError, match=r"Cannot find a block with the name: X, in the function `main`"):
        sch.get_block("X")
    with pytest.raises(NotRegistered, match=r"the module has no function 'f'"):
        sch.get_block("B", "f")
    with pytest.raises(ScheduleError, match=r"The primitive does not operate on the root block"):
        sch.get_producers("root")


def test_the_function_that_is_worked_on():
    mod = tvm.IRModule({"f": chain.with_attr("global_symbol", "f"), "g": matmul.with_attr("global_symbol", "g")})
    sch = Schedule(mod)
    assert sch.func_working_on is None
    with pytest.raises(InvalidValue, match=r"pass func_name to get_block, or call work_on before"):
        sch.get_block("C")
    sch.work_on("g")
    assert sch.func_working_on.name_hint == "g"
    assert len(sch.get_loops("C")) == 3 and len(sch.get_loops(sch.get_block("C", "f"))) == 2
    sch.parallel(sch.get_loops("C")[0])
    assert_structural_equal(sch.mod["f"], mod["f"])
    assert "T.parallel(8)" in sch.mod["g"].script()


def test_handles_follow_their_statements():
    sch = Schedule(matmul, debug_mask="all")
    i, j, _k = sch.get_loops("C")
    block = sch.get_block("C")
    sref = sch.get_sref(block)
    assert isinstance(sref, StmtSRef) and sch.get_sref(sch.get(block)) is sref and sch.get(sref) is sch.get(block)
    sch.split(i, [2, 4])
    assert sch.get_sref(block) is sref and sch.get(j).loop_var.name == "j"
    with pytest.raises(InvalidValue, match=r"the loop does not exist any more"):
        sch.get(i)
    sch.remove_rv(j)
    with pytest.raises(InvalidValue, match=r"the loop is no part of this schedule"):
        sch.get(j)
    with pytest.raises(InvalidValue, match=r"is no handle of this schedule"):
        sch.remove_rv(j)


def test_a_copy_goes_its_own_way():
    sch = Schedule(matmul, seed=1)
    i, _j, k = sch.get_loops("C")
    other = sch.copy()
    sch.parallel(i)
    other.unroll(k)
    assert_structural_equal(Schedule(matmul).copy().mod, Schedule(matmul).mod)
    assert "T.parallel" in sch.mod.script() and "T.parallel" not in other.mod.script()
    assert "T.unroll" in other.mod.script() and "T.unroll" not in sch.mod.script()
    assert len(sch.trace.insts) == len(other.trace.insts)


def test_a_refusal_shows_the_function_and_changes_nothing():
    sch = Schedule(matmul)
    before = sch.mod
    with pytest.raises(ScheduleError) as error:
        sch.vectorize(sch.get_loops("C")[2])
    text = str(error.value)
    assert "An error occurred in the schedule primitive 'vectorize'" in text
    assert "# tir.Block#0\n" in text and "^^^^^^^^^^^" in text and 'Error message: The "vectorize" cannot' in text
    assert sch.mod is before and sch.trace.insts[-1].kind.name == "GetLoops"
    fast = Schedule(matmul, error_render_level="fast")
    with pytest.raises(ScheduleError) as error:
        fast.vectorize(fast.get_loops("C")[2])
    assert str(error.value).startswith('The "vectorize" cannot be fulfilled with regard to block tir.Block#0')
    with pytest.raises(InvalidValue, match=r"error_render_level is one of detail, fast, none; found 'loud'"):
        Schedule(matmul, error_render_level="loud")


def test_the_trace_reads_as_python():
    sch = Schedule(matmul)
    block = sch.get_block("C")
    i, j, _k = sch.get_loops(block)
    i0, i1 = sch.split(i, [None, 4])
    sch.reorder(i0, j, i1)
    sch.fuse(i0, j)
    sch.annotate(block, "key", "text")
    assert str(sch.trace) == "\n".join(
        [
            "# from tvm import tir",
            "def apply_trace(sch: tir.Schedule) -> None:",
            '  b0 = sch.get_block(name="C", func_name="main")',
            "  l1, l2, l3 = sch.get_loops(block=b0)",
            "  l4, l5 = sch.split(loop=l1, factors=[None, 4], preserve_unit_iters=True, disable_predication=False)",
            "  sch.reorder(l4, l2, l5)",
            "  l6 = sch.fuse(l4, l2, preserve_unit_iters=True)",
            '  sch.annotate(block_or_loop=b0, ann_key="key", ann_val="text")',
        ]
    )
    assert str(Trace()).endswith("  pass")
    scope = {}
    exec(str(sch.trace).replace(": tir.Schedule", ""), scope)
    other = Schedule(matmul)
    scope["apply_trace"](other)
    assert_structural_equal(other.mod, sch.mod)


def test_a_trace_can_be_simplified_and_changed():
    sch = Schedule(matmul)
    sch.get_block("C")
    sch.get_loops("C")
    sch.parallel(sch.get_loops("C")[0])
    kinds = [inst.kind.name for inst in sch.trace.simplified(remove_postproc=False).insts]
    assert kinds == ["GetBlock", "GetLoops", "Parallel"]
    trace = Trace(sch.trace.insts, sch.trace.decisions)
    assert trace.pop().kind.name == "Parallel" and len(trace.insts) == len(sch.trace.insts) - 1
    changed = sch.trace.with_decision(sch.trace.insts[0], 3, remove_postproc=False)
    assert changed.get_decision(changed.insts[0]) == 3 and sch.trace.get_decision(sch.trace.insts[0]) is None
    assert Trace().pop() is None
    assert InstructionKind.get("GetBlock").is_pure and not InstructionKind.get("Split").is_pure
    with pytest.raises(NotRegistered, match=r"no primitive is recorded as 'Nothing'"):
        InstructionKind.get("Nothing")
    with pytest.raises(InvalidValue, match=r"a trace in JSON is two lists"):
        Trace.apply_json_to_schedule([1], sch)
    with pytest.raises(InvalidValue, match=r"the trace uses 'b7' before it is made"):
        Trace.apply_json_to_schedule([[["GetLoops", ["b7"], [], []]], []], sch)


def test_a_schedule_without_a_trace():
    sch = Schedule._create_non_traced(matmul)
    sch.parallel(sch.get_loops("C")[0])
    assert sch.trace is None and "T.parallel" in sch.mod.script()


def test_dependencies_of_a_scope():
    state = ScheduleState(diamond)
    root = state.stmt2ref[diamond.body.block]
    scope = state.get_block_scope(root)
    b, c1, c2, d = state.child_blocks(root)
    assert [(x.src, x.dst, x.kind) for x in scope.get_deps_by_dst(d)] == [(c1, d, DepKind.RAW), (c2, d, DepKind.RAW)]
    assert [x.dst for x in scope.get_deps_by_src(b)] == [c1, c2] and not scope.get_deps_by_dst(b)
    flags = state._get_cached_flags(d)
    assert flags.affine_binding and flags.region_cover and state.is_stage_pipeline(root)


def test_statements_of_a_schedule_are_replaced_by_hand():
    sch = Schedule(chain, debug_mask="all")
    block = sch.get(sch.get_block("B"))
    sref = sch.get_sref(block)
    sch.state.replace(sref, block.replace(name_hint="X"))
    assert names(sch, [sch.get_block("X")]) == ["X"] and sref.stmt is None


def test_what_tests_of_schedules_check():
    sch = Schedule(matmul)
    sch.parallel(sch.get_loops("C")[0])
    assert_structural_equal(verify_trace_roundtrip(sch, matmul).mod, sch.mod)
    assert_structural_equal_ignore_global_symbol(matmul, matmul.with_attr("global_symbol", "other"))
    with pytest.raises(StructuralMismatch, match="StructuralEqual check failed"):
        assert_structural_equal_ignore_global_symbol(matmul, chain)
    with pytest.raises(InvalidValue, match="a trace is written as 'python' or 'json', found 'xml'"):
        verify_trace_roundtrip(sch, matmul, text_format="xml")


def test_how_much_a_refusal_says():
    messages = {}
    for level in ("none", "fast", "detail"):
        sch = Schedule(matmul, error_render_level=level)
        with pytest.raises(ScheduleError) as error:
            sch.vectorize(sch.get_loops("C")[2])
        messages[level] = str(error.value)
    assert messages["none"] == "ScheduleError: (not rendered)"
    assert messages["fast"] in messages["detail"] and "@T.prim_func" not in messages["fast"]
    lines = messages["detail"].splitlines()
    marked = next(i for i, line in enumerate(lines) if line.endswith("# tir.Block#0"))
    assert lines[marked + 1].strip() == 'with T.block("C"):' and set(lines[marked + 2].strip()) == {"^"}


def test_conditions_that_are_not_checked():
    @T.prim_func
    def before(A: T.Buffer((8,), "float32"), B: T.Buffer((8, 8), "float32")):
        for i, j in T.grid(8, 8):
            with T.block("B"):
                vi = T.axis.spatial(8, i)
                vj = T.axis.spatial(8, T.min(j, i))
                B[vi, vj] = A[vj]

    sch = Schedule(before)
    with pytest.raises(ScheduleError, match=r"The block tir.Block#0 is required to have an affine binding"):
        sch.reorder(*sch.get_loops("B")[::-1])
    sch = Schedule(before, enable_check=False)
    sch.reorder(*sch.get_loops("B")[::-1])
    assert [sch.get(loop).loop_var.name for loop in sch.get_loops("B")] == ["j", "i"]


@pytest.mark.parametrize("mask", ["none", "all", 0, 1, 2, 3, ScheduleDebugMask.VERIFY_SREF_TREE])
def test_what_is_verified_after_each_change(mask):
    sch = Schedule(matmul, debug_mask=mask)
    i, j, _ = sch.get_loops("C")
    stray = sch.get(i).replace(annotations={"key": 1})
    sch.state.stmt2ref[stray] = StmtSRef(stray)
    if mask in ("none", 0):
        sch.unroll(j)
    else:
        with pytest.raises(AssertionError, match="there are handles of statements that are not in the program"):
            sch.unroll(j)


def test_unused_questions_are_simplified_away():
    sch = Schedule(diamond, seed=1)
    for name in ("B", "C1", "D"):
        sch.get_consumers(name), sch.get_producers(name), sch.get_loops(name)
    sch.sample_categorical([1, 2], [0.5, 0.5])
    sch.parallel(sch.get_loops("D")[0])
    simple = sch.trace.simplified(remove_postproc=False)
    assert simple.as_python() == [
        'b0 = sch.get_block(name="D", func_name="main")',
        "l1, l2 = sch.get_loops(block=b0)",
        "sch.parallel(loop=l1)",
    ]
    other = Schedule(diamond)
    simple.apply_to_schedule(other, remove_postproc=False)
    assert_structural_equal(other.mod, sch.mod)
    assert len(sch.trace.insts) > 10 and simple.simplified(False).as_json() == simple.as_json()


def test_work_on_a_function_that_does_not_exist():
    sch = Schedule(chain)
    with pytest.raises(NotRegistered, match="the module has no function 'other'"):
        sch.work_on("other")
    sch.work_on("main")
    assert sch.func_working_on.name_hint == "main"


def test_show_prints_the_program_and_the_trace(capsys):
    sch = Schedule(chain)
    sch.parallel(sch.get_loops("B")[0])
    sch.show(style=None)
    text = capsys.readouterr().out
    assert "T.parallel(16)" in text and "sch.parallel(loop=l1)" in text


def test_who_only_looks_needs_no_proofs(monkeypatch):
    examined = []
    covers = state.covers_its_reads
    monkeypatch.setattr(state, "covers_its_reads", lambda *args: examined.append(args) or covers(*args))
    sch = Schedule(diamond)
    names(sch, sch.get_consumers("B"))
    other = sch.copy()
    assert examined == []
    sch.parallel(sch.get_loops("B")[0])
    assert len(examined) == 4  # each block below the root, once
    sch.parallel(sch.get_loops("D")[0])
    assert len(examined) == 4
    other.parallel(other.get_loops("B")[0])
    assert len(examined) == 8
