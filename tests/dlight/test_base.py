"""Rules, and the pass that tries them."""

from __future__ import annotations

import pytest

from oneir import dlight, te, tir, topi
from oneir.ir import IRModule, assert_structural_equal
from oneir.ir.transform import pass_key
from oneir.runtime.error import InvalidValue
from oneir.script import ir as I
from oneir.script import tir as T
from oneir.target import Target


@I.ir_module
class Before:
    @T.prim_func
    def main(A: T.Buffer((1, 6), "float32"), B: T.Buffer((6,), "float32")):
        for i in range(6):
            with T.block("B"):
                vi = T.axis.spatial(6, i)
                B[vi] = A[0, vi] + T.float32(1)

    @T.prim_func
    def by_hand(A: T.Buffer((6,), "float32")):
        T.func_attr({"tir.is_scheduled": True})
        for i in range(6):
            with T.block("A"):
                vi = T.axis.spatial(6, i)
                A[vi] = T.float32(1)


@I.ir_module
class After:
    @T.prim_func
    def main(A: T.Buffer((1, 6), "float32"), B: T.Buffer((6,), "float32")):
        T.func_attr({"tir.is_scheduled": True})
        for i_0 in T.thread_binding(1, thread="blockIdx.x"):
            for i_1 in T.thread_binding(1024, thread="threadIdx.x"):
                with T.block("B"):
                    vi = T.axis.spatial(6, i_0 * 1024 + i_1)
                    T.where(i_0 * 1024 + i_1 < 6)
                    B[vi] = A[0, vi] + T.float32(1)

    @T.prim_func
    def by_hand(A: T.Buffer((6,), "float32")):
        T.func_attr({"tir.is_scheduled": True})
        for i in range(6):
            with T.block("A"):
                vi = T.axis.spatial(6, i)
                A[vi] = T.float32(1)


def test_functions_that_nobody_has_scheduled_are_scheduled():
    fallback = dlight.ApplyDefaultSchedule(dlight.gpu.Fallback())
    with Target("cuda"):
        after = fallback(Before)
        assert_structural_equal(after, After)
        assert fallback(after) is after


@dlight.ScheduleRule.from_callable("Unrolled")
def unrolled(func: tir.PrimFunc, target: Target, tunable: bool):
    if target.kind.name != "cuda":
        return None
    sch = tir.Schedule(func)
    for block in sch.get_child_blocks(sch.get_block("root")):
        sch.unroll(sch.get_loops(block)[0])
    return [sch, sch] if tunable else sch


def kinds(mod: IRModule) -> list[tir.ForKind]:
    sch = tir.Schedule(mod["main"])
    return [sch.get(sch.get_loops(block)[0]).kind for block in sch.get_child_blocks(sch.get_block("root"))]


def test_a_function_is_a_rule():
    assert isinstance(unrolled, dlight.ScheduleRule) and type(unrolled).__name__ == "Unrolled"
    assert unrolled.is_target_available(Target("llvm"))
    spaces = unrolled.apply(Before["main"], Target("cuda"), True)
    assert isinstance(spaces, list) and len(spaces) == 2


def test_the_first_rule_that_knows_one_has_its_way():
    rules = dlight.ApplyDefaultSchedule(unrolled, dlight.gpu.Fallback())
    with Target("cuda"):
        assert kinds(rules(Before)) == [tir.ForKind.UNROLLED]
    with Target("metal"):
        assert kinds(rules(Before)) == [tir.ForKind.THREAD_BINDING]
    with Target("llvm"):
        assert rules(Before) is Before


def test_the_target_of_a_function_comes_before_that_which_is_entered():
    mod = IRModule({"main": Before["main"].with_attr("target", Target("cuda"))})
    with Target("llvm"):
        assert kinds(dlight.ApplyDefaultSchedule(unrolled)(mod)) == [tir.ForKind.UNROLLED]


def test_a_default_schedule_is_known_by_its_rules():
    def key(*rules: dlight.ScheduleRule) -> str | None:
        return pass_key(dlight.ApplyDefaultSchedule(*rules))

    matmul, fallback = dlight.gpu.Matmul(), dlight.gpu.Fallback()
    assert dlight.ApplyDefaultSchedule(matmul) == dlight.ApplyDefaultSchedule(matmul)
    assert key(matmul, fallback) == key(dlight.gpu.Matmul(), dlight.gpu.Fallback()) is not None
    assert len({key(), key(matmul), key(fallback), key(matmul, fallback), key(fallback, matmul)}) == 5
    # What a function does is not known by its name.
    assert key(unrolled) is None and key(matmul, unrolled) is None
    with pytest.raises(TypeError, match="unexpected keyword argument 'rules'"):
        dlight.ApplyDefaultSchedule(rules=(matmul,))


def test_inlining_leaves_what_others_still_read():
    a = te.placeholder((4, 5), "float32", name="A")
    b = topi.exp(a)
    sch = tir.Schedule(te.create_prim_func([a, topi.add(topi.sqrt(b), b)]))
    infos = dlight.normalize_prim_func(sch)
    assert infos is not None and len(infos) == 3
    (left,) = dlight.try_inline(sch, infos)
    assert left.name == "T_add" and len(sch.get_child_blocks(sch.get_block("root"))) == 1


def test_no_target():
    with pytest.raises(InvalidValue, match=r"no target for `main`: enter one, as `with Target\('llvm'\):`"):
        dlight.ApplyDefaultSchedule(unrolled)(Before)


def test_a_default_schedule_is_one():
    count = 1

    @dlight.ScheduleRule.from_callable("Several")
    def several(func: tir.PrimFunc, target: Target, tunable: bool):
        return [tir.Schedule(func)] * count

    with Target("cuda"):
        assert kinds(dlight.ApplyDefaultSchedule(several)(Before)) == [tir.ForKind.SERIAL]
        count = 2
        with pytest.raises(InvalidValue, match="Several gives 2 schedules of a function; a default schedule is one"):
            dlight.ApplyDefaultSchedule(several)(Before)


def test_a_rule_without_a_schedule():
    with pytest.raises(NotImplementedError):
        dlight.ScheduleRule().apply(Before["main"], Target("cuda"), False)
