"""InstrumentProfileIntrinsics: which sections are marked, and how they are numbered."""

from __future__ import annotations

import pytest
from pass_checks import apply, unchanged

import oneir
from oneir.ir.structural import assert_structural_equal
from oneir.ir.transform import PassContext
from oneir.runtime.error import NotRegistered
from oneir.script import tir as T
from oneir.tir.transform import InstrumentProfileIntrinsics


@T.prim_func
def two_nests(A: T.Buffer((4, 4), "float32")):
    for i in range(4):
        for j in range(4):
            A[i, j] = T.float32(0)
    for i in range(4):
        A[i, i] = T.float32(1)


def test_the_function_and_loops_beside_others_that_are_no_innermost_ones():
    @T.prim_func
    def expected(A: T.Buffer((4, 4), "float32")):
        T.evaluate(T.start_profile_intrinsic(0))
        T.evaluate(T.start_profile_intrinsic(1))
        for i in range(4):
            for j in range(4):
                A[i, j] = T.float32(0)
        T.evaluate(T.end_profile_intrinsic(1))
        for i in range(4):
            A[i, i] = T.float32(1)
        T.evaluate(T.end_profile_intrinsic(0))

    after = apply(InstrumentProfileIntrinsics(), two_nests)
    assert_structural_equal(after.without_attr("global_symbol"), expected.without_attr("global_symbol"))


def test_options_choose_the_loops():
    def sections(**options):
        config = {f"tir.{key}": value for key, value in options.items()}
        with PassContext(config=config):
            return apply(InstrumentProfileIntrinsics(), two_nests).script().count("start_profile")

    assert sections(instr_siblings=False, lwp_min_height=0) == 4
    assert sections(instr_siblings=False, lwp_min_height=0, lwp_max_depth=1) == 3
    assert sections(lwp_min_height=0) == 3
    assert sections(lwp_min_height=0, lwp_disable_func_prof=True) == 2


def test_numbers_go_on_from_function_to_function_unless_reset():
    mod = oneir.ir.IRModule({"f": two_nests, "g": two_nests})
    assert "start_profile_intrinsic(4)" in InstrumentProfileIntrinsics()(mod)["g"].script()
    with PassContext(config={"tir.reset_start_id": True}):
        assert "start_profile_intrinsic(4)" not in InstrumentProfileIntrinsics()(mod)["g"].script()


def test_nothing_to_mark():
    with PassContext(config={"tir.lwp_disable_func_prof": True, "tir.lwp_min_height": 5}):
        unchanged(InstrumentProfileIntrinsics(), two_nests)


def test_an_unknown_option_is_refused():
    with pytest.raises(NotRegistered, match=r"no option 'tir\.lwp_depth'"):
        PassContext(config={"tir.lwp_depth": 1})
